"""The records that wait: batches by partition, and the futures of their records.

`RecordBatcher` and `send_table` put records into the batches of an `Accumulator` (Kafka's
``RecordAccumulator``), which hands the ready partitions to the sender. `TopicRouter` keeps the
topics' metadata, and a `PartitionQueue` for each of their partitions.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
