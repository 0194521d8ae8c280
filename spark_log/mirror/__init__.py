"""A bridge between Kafka and a log: mirrors topics and translates consumer groups' offsets.

`KafkaToLog` and `LogToKafka` copy each record exactly once, and keep an `OffsetSyncs` of every
partition in the same transaction. `GroupTranslation` translates committed offsets by them. A
`RootMirror` copies the segments of one root to another. Names and rules are those of MirrorMaker 2
(KIP-382).
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
