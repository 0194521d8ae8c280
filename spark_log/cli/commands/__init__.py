"""The commands of ``spark-log``: one file for each group of commands."""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
