"""A root with a topic that is a table, whose files have the times of a test's clock."""

import pytest

from tests.coordinator.storage_dates import dated_by
from tests.sleeping_clock import SleepingClock
from tests.table.support import new_table


@pytest.fixture
def clock():
    return SleepingClock()


@pytest.fixture
def opened(tmp_path, clock, monkeypatch):
    """Return a function that makes a root with the topic, with these settings."""
    dated_by(clock, monkeypatch)

    def make(**settings):
        return new_table(tmp_path / "root", clock, **settings)

    return make


@pytest.fixture
def root(opened):
    return opened()
