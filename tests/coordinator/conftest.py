"""An opened root with the topic ``t``, and a Spark session to read Delta with."""

from pathlib import Path

import pytest

from spark_log import Admin, NewTopic
from spark_log.cluster import Cluster
from spark_log.testing.spark import spark
from spark_log.util.clock import ManualClock
from tests.coordinator.storage_dates import dated_by
from tests.sleeping_clock import SleepingClock

__all__ = ["clock", "cluster", "spark"]


@pytest.fixture
def clock() -> ManualClock:
    """The clock of the processes, and of the storage unless a test sets another one."""
    return SleepingClock()


@pytest.fixture
def storage_clock(clock: ManualClock) -> ManualClock:
    return clock


@pytest.fixture
def cluster(tmp_path: Path, clock: ManualClock, storage_clock: ManualClock, monkeypatch) -> Cluster:
    url = str(tmp_path / "root")
    dated_by(storage_clock, monkeypatch)
    Admin(url).create_topics([NewTopic("t", num_partitions=4)])
    return Cluster(url, clock=clock)
