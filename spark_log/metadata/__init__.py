"""Metadata: topics, partitions, brokers and configs, replayed from the metadata log."""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
