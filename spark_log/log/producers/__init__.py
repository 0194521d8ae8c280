"""Producers as a log's batch headers show them: their sequences, epochs and transactions."""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
