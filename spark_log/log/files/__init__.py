"""The files of a partition's directory: their names, and which segments are the log."""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
