"""Snapshots of a partition: summaries of its segments and its producer state, up to an offset."""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
