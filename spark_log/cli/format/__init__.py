"""The output of commands: tables, JSON, records, dumps of segments and indexes, progress bars."""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
