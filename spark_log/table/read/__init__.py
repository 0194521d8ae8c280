"""Reading a topic's table and its log as one, without Spark.

- `bounds`: the partitions, offsets and times that a read is limited to.
- `version`: a version of the table, as reads need it.
- `plan`: the files that are read of each partition, and the offsets that are read from its log.
- `parquet_files`, `log_tail`: the rows of both.
- `topic_scan`: the public function.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
