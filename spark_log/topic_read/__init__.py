"""Reading a topic's table and its log as one.

- `bounds`: the partitions, offsets and times that a read is limited to.
- `plan`: the files that are read of each partition, and the offsets that are read from its log.
- `timestamp_types`: what a file of the table has in no column.
- `parquet_files`, `log_rows`: the rows of both as Arrow batches.
- `topic_scan`: the public function `scan`.

Spark reads by the same plan (`datasource.table`).
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
