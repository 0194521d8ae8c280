"""Producers and their transactions, as the batch headers of a log describe them."""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
