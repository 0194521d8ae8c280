"""Spark: ``format("spark_log")`` for reads and writes, and `by_partition`. Imports pyspark."""

from spark_log.datasource.partitioning import by_partition
from spark_log.datasource.source import SparkLogDataSource

__all__ = ["SparkLogDataSource", "by_partition"]
