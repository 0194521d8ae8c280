"""A log of states is viewed, and the names of all states are listed, without an open log."""

import pytest

from spark_log.coordinator.group import group_decisions
from spark_log.coordinator.group.group import Group
from spark_log.coordinator.group.group_log import GroupLog
from spark_log.errors import CorruptRecordError
from spark_log.log import StateView
from spark_log.transaction import TransactionMetadata, TransactionStateLog, decisions
from tests.log.support import HookedStore

LONG = "g" * 300
"""A name that is too long for the name of a directory."""


@pytest.fixture
def store(memory_store):
    return HookedStore(memory_store, is_mapped=False)


def raised(store, clock, name):
    log = GroupLog(store, name, clock)
    return log.commit(lambda group: group_decisions.raise_generation(group, group.generation + 1))


def initialized(store, clock, name):
    log = TransactionStateLog(store, name, clock)
    return log.commit(lambda state: decisions.initialize(state, 1000, 1))


BOTH = pytest.mark.parametrize(
    ("log_class", "change"), [(GroupLog, raised), (TransactionStateLog, initialized)]
)


@BOTH
@pytest.mark.parametrize("name", ["a/b", LONG])
def test_a_view_costs_a_listing_and_the_newest_segment(store, clock, log_class, change, name):
    state = change(store, clock, name)
    store.calls.clear()
    view = log_class.view(store, name, clock)
    assert [call for call, _ in store.calls] == ["list", "open_buffer"]
    assert view.state == state
    (newest,) = (f for f in store.inner.list(log_class.directory_of(name)) if ".log" in f.name)
    assert view.changed_us == newest.modified_us


@BOTH
def test_all_names_are_listed(store, clock, log_class, change):
    assert log_class.list_names(store, clock) == []
    for name in ("b", LONG, "a/b"):
        change(store, clock, name)
    assert log_class.list_names(store, clock) == ["a/b", "b", LONG]


@BOTH
def test_a_directory_is_viewed_without_its_name(store, clock, log_class, change):
    states = [change(store, clock, name) for name in ("a/b", LONG)]
    found = [
        log_class.view_directory(store, directory, clock).state
        for directory in log_class.directories(store)
    ]
    assert found == states


def test_a_state_without_a_record_is_the_initial_one(store, clock):
    assert GroupLog.view(store, "g", clock) == StateView(Group("g"))
    assert TransactionStateLog.view(store, "t", clock) == StateView(TransactionMetadata("t"))


def test_a_record_of_another_name_is_damage(store, clock, memory_store):
    raised(store, clock, "g")
    for file in list(memory_store.list(GroupLog.directory_of("g"))):
        data = memory_store.open_buffer(file.path).to_pybytes()
        memory_store.put(f"{GroupLog.directory_of('h')}/{file.name}", data)
    with pytest.raises(CorruptRecordError, match="'g'"):
        GroupLog.view(store, "h", clock)
