"""An opened root with the topic ``t``, and a Spark session to read Delta with."""

from pathlib import Path

import pytest

from spark_log import Admin, NewTopic
from spark_log.clock import ManualClock
from spark_log.metadata import Cluster
from spark_log.testing.spark import spark

__all__ = ["clock", "cluster", "spark"]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def cluster(tmp_path: Path, clock: ManualClock) -> Cluster:
    url = str(tmp_path / "root")
    Admin(url).create_topics([NewTopic("t", num_partitions=4)])
    return Cluster(url, clock=clock)
