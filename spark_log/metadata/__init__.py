"""Metadata: topics, partitions and configs as replayed records; `Cluster` and `Admin` use them."""

from spark_log.metadata.admin import Admin
from spark_log.metadata.cluster import Cluster
from spark_log.metadata.image import MetadataImage, TopicImage

__all__ = ["Admin", "Cluster", "MetadataImage", "TopicImage"]
