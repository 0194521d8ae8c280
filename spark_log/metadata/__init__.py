"""Metadata: topics, partitions and configs as replayed records; `Cluster` opens a root."""

from spark_log.metadata.cluster import Cluster
from spark_log.metadata.image import MetadataImage, TopicImage

__all__ = ["Cluster", "MetadataImage", "TopicImage"]
