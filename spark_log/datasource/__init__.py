"""Spark data source: ``format("spark_log")`` for reads and writes.

`by_partition` prepares a write; `lag_of` and `metrics_of` read a streaming query's progress. This
package imports pyspark.
"""

from spark_log.datasource.source import SparkLogDataSource
from spark_log.datasource.stream.lag import PartitionLag, lag_of, metrics_of
from spark_log.datasource.write.partitioning import by_partition

__all__ = ["PartitionLag", "SparkLogDataSource", "by_partition", "lag_of", "metrics_of"]
