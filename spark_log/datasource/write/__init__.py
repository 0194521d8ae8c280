"""Writes from Spark, batch and streaming: columns, partitions, and the appends of a task."""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
