"""Spark data source: ``format("spark_log")`` for reads and writes.

`by_partition` prepares a write; `lag_of` and `metrics_of` read a streaming query's progress. This
package imports pyspark.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
