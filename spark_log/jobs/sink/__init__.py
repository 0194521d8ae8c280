"""Destinations of records: files, the console, or a Delta table, which gets each record once."""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
