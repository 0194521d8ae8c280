"""A group's log: conditional appends, lost answers, and a bounded number of files."""

import pytest

from spark_log.config import ClusterConfig
from spark_log.coordinator.group import group_decisions
from spark_log.coordinator.group.group import Member
from spark_log.coordinator.group.group_log import GroupLog
from spark_log.errors import (
    CorruptRecordError,
    LogTruncatedError,
    StorageError,
    UnknownOutcomeError,
)
from tests.log.support import HookedStore, JumpingBackClock, done_but, failing

LOST = UnknownOutcomeError("no answer")


@pytest.fixture
def store(memory_store):
    return HookedStore(memory_store)


@pytest.fixture
def log(store, clock):
    return GroupLog(store, "g", clock)


def rise(group):
    return group_decisions.raise_generation(group, group.generation + 1)


def files(store):
    return [file.name for file in store.inner.list(GroupLog.directory_of("g"))]


class TestCommit:
    def test_is_seen_by_all(self, store, log, clock):
        other = GroupLog(store, "g", clock)
        other.replay()
        log.commit(rise)
        assert (other.replay(), other.state.generation) == (1, 1)
        assert other.state == log.state

    def test_that_others_came_before_is_decided_again(self, store, log, clock):
        other = GroupLog(store, "g", clock)
        seen = []

        def decide(group):
            seen.append(group.generation)
            if not seen[1:]:
                other.commit(rise)
            return rise(group)

        assert log.commit(decide).generation == 2
        assert seen == [0, 1]

    def test_a_clock_that_jumps_back_before_the_append_does_not_refuse_it(self, store):
        log = GroupLog(store, "g", JumpingBackClock())
        assert log.commit(rise).generation == 1

    def test_of_a_group_that_takes_megabytes_is_accepted(self, store, log, clock):
        member = Member("m", topics=("t" * 2_000_000,))
        config = ClusterConfig()
        log.commit(lambda group: group_decisions.join(group, member, {}, config))
        other = GroupLog(store, "g", clock)
        other.replay()
        assert other.state.members == {"m": member}

    def test_on_a_state_that_was_just_read_does_not_look_again(self, store, log):
        log.replay()
        store.on("open_buffer", failing(StorageError("down")))
        store.on("list", failing(StorageError("down")))
        assert log.commit(rise, is_recent=True).generation == 1

    def test_without_a_record_appends_nothing(self, store, log):
        log.commit(lambda group: None)
        assert files(store) == []

    def test_whose_answer_was_lost_is_made_once(self, store, log, clock):
        """Also if the first attempt to read the outcome fails."""

        def lose(path, call):
            call()
            store.once("list", failing(StorageError("down")))
            raise LOST

        log.replay()
        store.once("put_if_absent", lose)
        decided = []

        def decide(group):
            decided.append(group.generation)
            return rise(group)

        assert log.commit(decide).generation == 1
        assert decided == [0], "it was found, and not made again"
        assert len(files(store)) == 1

    def test_whose_answer_was_lost_and_that_is_not_there_is_made_again(self, store, log):
        store.once("put_if_absent", failing(LOST))
        assert log.commit(rise).generation == 1

    def test_that_can_never_be_found_out_is_unknown(self, store, log):
        def lose(path, call):
            call()
            store.on("list", failing(StorageError("down")))
            store.on("open_buffer", failing(StorageError("down")))
            raise LOST

        store.on("put_if_absent", lose)
        with pytest.raises(UnknownOutcomeError):
            log.commit(rise)

    def test_that_fails_changes_nothing(self, store, log):
        store.once("put_if_absent", failing(StorageError("down")))
        with pytest.raises(StorageError, match="down"):
            log.commit(rise)
        assert log.state.generation == 0
        assert log.commit(rise).generation == 1

    def test_that_stands_is_made_whatever_fails_behind_it(self, store, log):
        """If reading the outcome fails, the change is not reported as failed."""
        log.replay()
        store.on("open_buffer", failing(StorageError("down")))
        store.once("put_if_absent", done_but(LOST))
        store.hooks.clear()
        assert log.commit(rise).generation == 1


class TestReplay:
    def test_reads_only_the_newest_record_at_first(self, store, log, clock):
        for _ in range(20):
            log.commit(rise)
        new = GroupLog(store, "g", clock)
        store.calls.clear()
        assert (new.replay(), new.state.generation) == (1, 20)
        assert len(store.called("open_buffer")) <= 6

    def test_at_the_end_looks_for_one_name(self, store, log):
        log.commit(rise)
        log.replay()
        store.calls.clear()
        assert log.replay() == 0
        assert len(store.calls) == 1

    def test_goes_on_behind_what_was_deleted_meanwhile(self, store, log, clock):
        other = GroupLog(store, "g", clock)
        log.commit(rise)
        other.replay()
        for _ in range(70):
            log.commit(rise)
        clock.advance_ms(200_000)
        log.trimmer.trim()
        log.trimmer.trim()
        other.replay()
        assert other.state.generation == 71

    def test_of_a_log_that_was_removed_says_so(self, store, log, memory_store, clock):
        log.commit(rise)
        memory_store.delete_directory(GroupLog.directory_of("g"))
        clock.advance_ms(200_000)  # more than half of file.delete.delay.ms
        with pytest.raises(LogTruncatedError, match="files were removed"):
            log.replay()

    def test_of_damage_says_so(self, store, log, clock, memory_store):
        log.commit(rise)
        path = f"{GroupLog.directory_of('g')}/{files(store)[0]}"
        data = memory_store.open_buffer(path).to_pybytes()
        memory_store.put(path, data[: len(data) // 2])
        with pytest.raises(CorruptRecordError):
            GroupLog(store, "g", clock).replay()
