"""A mirror from root to root: copies the segments of each partition, with all offsets."""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
