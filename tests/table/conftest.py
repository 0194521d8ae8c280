"""A root with a topic that is a table, whose files have the times of a test's clock."""

import pytest

from spark_log import Admin, NewTopic
from tests.coordinator.storage_dates import dated_by
from tests.sleeping_clock import SleepingClock
from tests.table.support import DELTA, TableRoot


@pytest.fixture
def clock():
    return SleepingClock()


@pytest.fixture
def opened(tmp_path, clock, monkeypatch):
    """Return a function that makes a root with the topic, with these settings."""
    dated_by(clock, monkeypatch)
    url = str(tmp_path / "root")

    def make(*, partitions=1, **settings):
        configs = DELTA | {key.replace("_", "."): value for key, value in settings.items()}
        Admin(url).create_topics([NewTopic("t", num_partitions=partitions, topic_configs=configs)])
        return TableRoot(url, clock)

    return make


@pytest.fixture
def root(opened):
    return opened()
