"""Rewriting segments, and deleting files that are no longer part of the log."""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
