"""A bridge between Kafka and a log: topics are mirrored, consumer groups move over.

A `KafkaToLog` and a `LogToKafka` copy records, each exactly once, and keep an `OffsetMap` of every
partition in the same transaction. `GroupTranslation` moves committed offsets by it. A `RootMirror`
copies the segments of one root to another. Names and rules are those of MirrorMaker 2 (KIP-382).
"""

from spark_log.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
