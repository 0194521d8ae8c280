"""What the tests of the metadata layer share."""

from spark_log.metadata import Cluster
from spark_log.metadata.metadata_log import DIRECTORY


def metadata_files(root):
    """The segments of the metadata log: one for each change."""
    return [file.name for file in Cluster(root).store.list(DIRECTORY)]


def topic_names(root):
    return [topic.name for topic in Cluster(root).image().topics()]
