"""Cleaning of a partition log: retention, merging, compaction, and deletion of spent files."""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
