"""Helpers of the tests of the metadata layer."""

from spark_log.cluster import Cluster
from spark_log.metadata.metadata_log import METADATA_DIRECTORY
from tests.record.samples import numbered


def metadata_files(root):
    """Return the segments of the metadata log: one per change."""
    return [file.name for file in Cluster(root).store.list(METADATA_DIRECTORY)]


def topic_names(root):
    return [topic.name for topic in Cluster(root).image().topics()]


def append(root, topic, count, *, partition=0, first=0):
    """Append numbered records to a partition, as one segment; return its log."""
    cluster = Cluster(root)
    log = cluster.partition_log(cluster.topic(topic), partition)
    log.append(numbered(first, count))
    return log
