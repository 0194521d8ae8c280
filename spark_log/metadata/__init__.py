"""Metadata: topics, partitions and configs, replayed from the metadata log.

`Cluster` opens a root. `topics/` creates and deletes topics; `ClusterCleaner` and `ClusterVerifier`
clean and verify all partitions of a root.
"""

from spark_log.metadata.cluster import Cluster
from spark_log.metadata.image import MetadataImage, TopicImage

__all__ = ["Cluster", "MetadataImage", "TopicImage"]
