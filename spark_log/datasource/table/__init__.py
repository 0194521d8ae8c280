"""A read of a topic's table and of its log as one DataFrame.

- `read_table`: the public function.
- `parquet_relation`: the files of the table, read by Spark's own Parquet reader.
- `hadoop_files`: paths and options of the files, as Hadoop names them.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
