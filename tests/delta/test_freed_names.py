"""Logs of groups and of metadata, used by a process that was idle for a while."""

import pytest

from spark_log.coordinator.group import group_decisions
from spark_log.coordinator.group.group_log import GroupLog
from spark_log.errors import ClockSkewError, OffsetOutOfRangeError
from spark_log.log import LocalLog
from spark_log.log.log_start import move_log_start
from spark_log.metadata.metadata_log import METADATA_DIRECTORY, METADATA_TOPIC_ID, MetadataLog
from spark_log.metadata.records import TopicRecord
from spark_log.util.clock import ManualClock
from tests.log.support import HookedStore

DELAY_MS = 60_000
"""``file.delete.delay.ms`` of both."""


@pytest.fixture
def store(memory_store):
    return HookedStore(memory_store)


@pytest.fixture
def idle(store, clock):
    """A process that has read the group's log, and then is idle."""
    idle = GroupLog(store, "g", clock)
    idle.commit(rise)
    return idle


def rise(group):
    return group_decisions.raise_generation(group, group.generation + 1)


def plain(store, directory):
    return [each.name for each in store.inner.list(directory) if each.name.endswith(".log")]


def make_and_free(store, clock, changes):
    """Another process: changes, a trim, and another trim when their names may be deleted."""
    other = GroupLog(store, "g", clock)
    for _ in range(changes):
        other.commit(rise)
    other.trimmer.trim()
    clock.advance_ms(DELAY_MS + 1)
    other.commit(rise)
    other.trimmer.trim()
    return other


def test_an_idle_member_takes_freed_names_for_no_end(store, idle, clock):
    other = make_and_free(store, clock, 10)
    assert f"{2:020}.log" not in plain(store, GroupLog.directory_of("g"))
    store.calls.clear()
    idle.replay()
    assert idle.state.generation == other.state.generation
    assert store.called("list")


def test_an_idle_member_puts_nothing_into_a_freed_name(store, idle, clock):
    other = make_and_free(store, clock, 10)
    assert idle.commit(rise).generation == other.state.generation + 1
    other.replay()
    assert other.state == idle.state
    assert f"{1:020}.log" not in plain(store, GroupLog.directory_of("g"))


def test_an_append_to_where_an_idle_member_was_is_refused(store, idle, clock):
    """The log itself refuses it, without a replay before."""
    make_and_free(store, clock, 10)
    record = rise(idle.state)
    with pytest.raises(Exception, match="the log ends at"):
        idle._append(record)  # noqa: SLF001 - `commit` replays first


@pytest.mark.parametrize("skew_ms", [25 * 3_600_000, 8 * 86_400_000, -8 * 86_400_000])
def test_a_member_with_a_wrong_clock_frees_no_name(store, idle, clock, skew_ms, caplog):
    """Other processes, which have just read the log, rely on these names being unused."""
    wrong = GroupLog(store, "g", ManualClock(clock.time_us() + skew_ms * 1000))
    for _ in range(3 * GroupLog.trim_every):
        wrong.commit(rise)
    with pytest.raises(ClockSkewError, match=r"max\.clock\.skew\.ms"):
        wrong.trimmer.trim()
    assert len(plain(store, GroupLog.directory_of("g"))) == 1 + 3 * GroupLog.trim_every
    assert caplog.text.count("not trimmed by this process") == 1
    assert idle.commit(rise).generation == 2 + 3 * GroupLog.trim_every
    wrong.replay()
    assert wrong.state == idle.state


def test_a_trim_goes_by_the_storage_and_not_by_a_clock_that_jumped(store, idle, clock):
    """Within the allowed skew the process's clock decides nothing either."""
    jumped = GroupLog(store, "g", ManualClock(clock.time_us() + 9 * 60_000_000))
    for _ in range(5):
        jumped.commit(rise)
    jumped.trimmer.trim()
    jumped.commit(rise)
    jumped.trimmer.trim()
    assert len(plain(store, GroupLog.directory_of("g"))) == 7


def test_a_process_that_stood_still_before_a_trim_asks_the_storage(store, idle, clock):
    idle.commit(rise)
    clock.advance_ms(20 * 60_000)
    idle.trimmer.trim()
    assert idle.commit(rise).generation == 3


class TestMetadata:
    """Its names are not deleted yet. If they were, that would not be taken for its end."""

    def change(self, log, name):
        log.commit(lambda _: [TopicRecord(name=name, topic_id="A" * 22)])

    def free(self, store, clock):
        log = MetadataLog(store, clock)
        for number in range(5):
            self.change(log, f"t{number}")
        move_log_start(
            LocalLog(store, METADATA_DIRECTORY, topic_id=METADATA_TOPIC_ID, partition=0), 5
        )
        for number in range(5):
            store.inner.delete(f"{METADATA_DIRECTORY}/{number:020}.log")
        return log

    def test_an_idle_reader_takes_freed_names_for_no_end(self, store, clock):
        idle = MetadataLog(store, clock)
        idle.image()
        self.free(store, clock)
        clock.advance_ms(DELAY_MS / 2)
        with pytest.raises(OffsetOutOfRangeError):
            idle.image()

    def test_an_idle_writer_puts_nothing_into_a_freed_name(self, store, clock):
        idle = MetadataLog(store, clock)
        idle.image()
        self.free(store, clock)
        clock.advance_ms(DELAY_MS / 2)
        with pytest.raises(OffsetOutOfRangeError):
            self.change(idle, "x")
        assert plain(store, METADATA_DIRECTORY) == []

    def test_an_idle_reader_lists_again_and_sees_what_is_new(self, store, clock):
        idle, other = MetadataLog(store, clock), MetadataLog(store, clock)
        idle.image()
        self.change(other, "t")
        clock.advance_ms(10 * DELAY_MS)
        store.calls.clear()
        assert [topic.name for topic in idle.image().topics()] == ["t"]
        assert store.called("list")
