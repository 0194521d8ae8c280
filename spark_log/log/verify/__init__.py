"""Verification of a partition log: each file of its directory, and the log that they make up."""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
