"""A cluster root: opening it, its brokers' stores, and cleaning and verifying all of it."""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
