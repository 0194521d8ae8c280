"""A root with a topic of two partitions."""

import pytest

from spark_log import Admin, NewTopic
from spark_log.cluster import Cluster
from spark_log.util.clock import ManualClock


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def root(tmp_path):
    root = str(tmp_path / "root")
    Admin(root).create_topics([NewTopic("t", 2, topic_configs={"flush.on.append": False})])
    return root


@pytest.fixture
def cluster(root, clock):
    return Cluster(root, clock=clock)
