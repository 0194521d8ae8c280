"""Spark: ``format("spark_log")`` for reads and writes, and `by_partition`. Imports pyspark."""

from spark_log.datasource.source import SparkLogDataSource
from spark_log.datasource.write.partitioning import by_partition

__all__ = ["SparkLogDataSource", "by_partition"]
