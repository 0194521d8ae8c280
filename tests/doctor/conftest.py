"""A root on a disk whose files are dated by the clock of the test, and a doctor for it."""

import pytest

from spark_log import Admin, NewTopic
from spark_log.cluster import Cluster
from spark_log.util.clock import ManualClock
from tests.coordinator.storage_dates import dated_by
from tests.doctor.support import Patient


@pytest.fixture
def clock():
    """The clock of this machine; the storage's is `storage_clock`."""
    return ManualClock()


@pytest.fixture
def storage_clock(clock):
    return clock


@pytest.fixture
def patient(tmp_path, clock, storage_clock, monkeypatch):
    """A root with the topic ``t`` of two partitions."""
    dated_by(storage_clock, monkeypatch)
    root = str(tmp_path / "root")
    Admin(root).create_topics([NewTopic("t", 2, topic_configs={"flush.on.append": False})])
    return Patient(root, clock)


@pytest.fixture
def cluster(patient):
    return Cluster(patient.root, clock=patient.clock)
