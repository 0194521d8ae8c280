"""Positions of the assigned partitions: initial offsets, seeks, and resets."""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
