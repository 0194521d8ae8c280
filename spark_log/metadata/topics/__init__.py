"""The rules for names of topics, and the records that create topics and partitions."""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
