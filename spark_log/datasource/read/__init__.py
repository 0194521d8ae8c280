"""Batch reads in Spark: offsets and input splits on the driver, records in tasks."""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
