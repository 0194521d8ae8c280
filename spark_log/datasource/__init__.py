"""Spark data source: ``format("spark_log")`` for reads and writes, and `by_partition`.

This package imports pyspark.
"""

from spark_log.datasource.source import SparkLogDataSource
from spark_log.datasource.write.partitioning import by_partition

__all__ = ["SparkLogDataSource", "by_partition"]
