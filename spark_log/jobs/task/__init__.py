"""Spark tasks, each of which cleans, replicates or mirrors one partition; and their arguments."""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
