"""Changes of partitions: in-sync replicas, elections, reassignments. Pure functions of an image."""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
