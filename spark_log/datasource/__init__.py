"""Spark data source: ``format("spark_log")`` for reads and writes.

`by_partition` prepares a write; `lag_of` and `metrics_of` read a streaming query's progress. This
package imports pyspark.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
