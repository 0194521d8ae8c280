"""Stripes: one object has the batches of many partitions, and one put orders them (ADR 29, 76)."""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
