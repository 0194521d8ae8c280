"""Commits of one process share a version; each has its own outcome, and is fenced."""

import multiprocessing
import os
import threading
from itertools import count
from pathlib import Path
from unittest.mock import create_autospec

import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from spark_log import OffsetAndMetadata, TopicPartition
from spark_log.cluster import Cluster
from spark_log.coordinator import OffsetsTable
from spark_log.coordinator.offsets.rows import PartitionKey, Row
from spark_log.delta.delta_log import DeltaLog
from spark_log.delta.files import DataFiles
from spark_log.errors import (
    CommitFailedError,
    IllegalGenerationError,
    InvalidGroupIdError,
    LogEndOffsetMismatchError,
    OffsetOutOfRangeError,
    StorageError,
    StorageUnavailableError,
    UnknownOutcomeError,
)
from spark_log.util.clock import ManualClock

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def positions(table, group):
    return {tp: committed.offset for tp, committed in table.fetch(group).items()}


def other_process(cluster):
    """A table that shares no cache with that of the cluster, as in another process."""
    return OffsetsTable(Cluster(cluster.root, clock=ManualClock(cluster.clock.time_us())))


def before_version(cluster, monkeypatch, act):
    """Run ``act`` once, after the fence was read, before the next version is put."""
    store = cluster.store
    put = store.put_if_absent
    left = [act]

    def hooked(path, source, **options):
        if path.endswith(".json") and left:
            left.pop()()
        put(path, source, **options)

    monkeypatch.setattr(store, "put_if_absent", hooked)


def reads(monkeypatch):
    """Return a mock that has the reads of data files from now on as its calls."""
    parts = create_autospec(DataFiles.parts, side_effect=DataFiles.parts)
    monkeypatch.setattr(DataFiles, "parts", parts)
    return parts


def data_files(table):
    return {path.name for path in Path(table.url).glob("*.parquet")}


def test_commits_that_wait_become_one_version_and_each_has_its_own_outcome(cluster):
    table = OffsetsTable(cluster)
    table.fence("old", 5)
    version = DeltaTable(table.url).version()
    outcomes = {}

    def commit(group, generation, offset):
        try:
            table.commit(group, {P0: OffsetAndMetadata(offset)}, generation=generation)
            outcomes[group, generation] = "done"
        except IllegalGenerationError:
            outcomes[group, generation] = "refused"

    wanted = [(f"g{number}", 1, number) for number in range(20)] + [("old", 4, 1), ("old", 5, 2)]
    threads = [threading.Thread(target=commit, args=each) for each in wanted]
    shared = table._shared()  # noqa: SLF001 - all of them have to wait
    with shared.table.lock:  # another thread commits
        for thread in threads:
            thread.start()
        while len(shared.commits._waiting) < len(wanted):  # noqa: SLF001
            os.sched_yield()
    for thread in threads:
        thread.join()

    assert outcomes.pop(("old", 4)) == "refused"
    assert set(outcomes.values()) == {"done"}
    assert DeltaTable(table.url).version() == version + 1
    assert positions(table, "old") == {P0: 2}
    assert [positions(table, f"g{number}") for number in range(20)] == [
        {P0: number} for number in range(20)
    ]


def test_a_commit_that_is_done_does_not_wait_for_the_next_version(cluster, monkeypatch):
    table = OffsetsTable(cluster)
    table.commit("g", {P0: OffsetAndMetadata(0)})
    waiting = table._shared().commits._waiting  # noqa: SLF001 - all of them have to wait
    put, versions = cluster.store.put_if_absent, count(1)
    threads = {
        name: threading.Thread(target=table.commit, args=(name, {P0: OffsetAndMetadata(1)}))
        for name in "abcd"
    }

    def start(*names):
        for name in names:
            threads[name].start()
        while len(waiting) < len(names):
            os.sched_yield()

    def hooked(path, source, **options):
        version = next(versions) if path.endswith(".json") else 0
        if version == 1:
            start("b", "c")  # they share the next version
        if version == 2:
            start("d")
        if version == 3:
            for name in "bc":
                threads[name].join(60)
                assert not threads[name].is_alive()
        put(path, source, **options)

    monkeypatch.setattr(cluster.store, "put_if_absent", hooked)
    threads["a"].start()
    for name in "abcd":
        while threads[name].ident is None:
            os.sched_yield()
        threads[name].join()
    assert [positions(table, name) for name in "abcd"] == [{P0: 1}] * 4
    assert next(versions) == 4


def test_a_generation_that_begins_during_a_commit_refuses_it(cluster, monkeypatch):
    table, other = OffsetsTable(cluster), other_process(cluster)
    table.commit("g", {P0: OffsetAndMetadata(5)}, generation=1)
    before_version(cluster, monkeypatch, lambda: other.fence("g", 2))

    with pytest.raises(IllegalGenerationError):
        table.commit("g", {P0: OffsetAndMetadata(9)}, generation=1)

    assert positions(table, "g") == positions(other, "g") == {P0: 5}
    assert len(data_files(table)) == 1  # its file was deleted


def test_a_file_that_a_version_holds_is_kept_whatever_was_told_of_it(cluster, monkeypatch):
    """A version of its own may look void where the clock of the file system jumped back."""
    table, other = OffsetsTable(cluster), other_process(cluster)
    append = DeltaLog.append_staged

    def made_and_denied(log, staged):
        version = append(log, staged)
        monkeypatch.undo()
        other.fence("g", 2)
        raise LogEndOffsetMismatchError("void", expected=version.number, actual=version.number + 2)

    table.fence("g", 1)
    monkeypatch.setattr(DeltaLog, "append_staged", made_and_denied)
    with pytest.raises(IllegalGenerationError):
        table.commit("g", {P0: OffsetAndMetadata(9)}, generation=1)

    assert positions(OffsetsTable(cluster), "g") == {P0: 9}


def test_a_fence_that_loses_the_race_to_a_commit_is_raised_behind_it(cluster, monkeypatch):
    table, other = OffsetsTable(cluster), other_process(cluster)
    table.fence("g", 1)
    before_version(
        cluster, monkeypatch, lambda: other.commit("g", {P0: OffsetAndMetadata(7)}, generation=1)
    )

    table.fence("g", 2)

    assert positions(table, "g") == {P0: 7}
    with pytest.raises(IllegalGenerationError):
        other.commit("g", {P0: OffsetAndMetadata(9)}, generation=1)


def test_commits_of_other_groups_in_between_only_take_another_try(cluster, monkeypatch):
    table, other = OffsetsTable(cluster), other_process(cluster)
    table.commit("g", {P0: OffsetAndMetadata(5)}, generation=1)
    before_version(cluster, monkeypatch, lambda: other.commit("h", {P0: OffsetAndMetadata(1)}))

    table.commit("g", {P0: OffsetAndMetadata(6), P1: OffsetAndMetadata(1)}, generation=1)

    assert positions(other, "g") == {P0: 6, P1: 1}
    assert len(data_files(table)) == 3  # the same file was used again


def test_a_change_is_decided_again_when_another_commit_comes_first(cluster, monkeypatch):
    table, other = OffsetsTable(cluster), other_process(cluster)
    table.commit("g", {P0: OffsetAndMetadata(5)}, generation=1)
    before_version(
        cluster, monkeypatch, lambda: other.commit("g", {P0: OffsetAndMetadata(7)}, generation=1)
    )

    table.change(
        "g",
        lambda found: [Row(key, committed.offset + 1) for key, committed in found.items()],
        generation=1,
    )

    assert positions(other, "g") == {P0: 8}


def test_what_is_unknown_is_said_to_be_and_its_file_stays(cluster, monkeypatch):
    table = OffsetsTable(cluster)
    table.commit("g", {P0: OffsetAndMetadata(5)}, generation=1)
    store = cluster.store
    put, late = store.put_if_absent, []

    def lose(path, source, **options):
        if not path.endswith(".json"):
            return put(path, source, **options)
        late.append((path, source.read_back().to_pybytes()))
        raise UnknownOutcomeError("lost", path=path)

    with monkeypatch.context() as patch:
        patch.setattr(store, "put_if_absent", lose)
        with pytest.raises(UnknownOutcomeError):
            table.commit("g", {P0: OffsetAndMetadata(6)}, generation=1)
    put(*late[0])  # it is delivered late, and takes effect
    assert positions(table, "g") == {P0: 6}
    table.commit("g", {P0: OffsetAndMetadata(6)}, generation=1)
    assert positions(table, "g") == {P0: 6}


def test_a_storage_that_does_not_answer_is_asked_again_until_the_time_is_over(cluster, monkeypatch):
    table = OffsetsTable(cluster)
    table.commit("g", {P0: OffsetAndMetadata(5)})
    store = cluster.store
    look, failures = store.open_buffer, iter(range(2))

    def unavailable(path):
        if path.endswith(".json") and next(failures, None) is not None:
            raise StorageUnavailableError("no answer")
        return look(path)

    monkeypatch.setattr(store, "open_buffer", unavailable)
    table.commit("g", {P0: OffsetAndMetadata(6)})
    assert positions(table, "g") == {P0: 6}
    failures = count()
    with pytest.raises(CommitFailedError, match="could not be committed in time: no answer"):
        table.commit("g", {P0: OffsetAndMetadata(7)}, timeout_s=0.05)


def test_only_the_files_of_newer_versions_are_read_again(cluster, monkeypatch):
    table, other = OffsetsTable(cluster), other_process(cluster)
    for offset in range(5):
        other.commit("g", {P0: OffsetAndMetadata(offset)}, generation=1)
    assert positions(table, "g") == {P0: 4}
    other.commit("g", {P1: OffsetAndMetadata(1)}, generation=1)
    other.commit("h", {P0: OffsetAndMetadata(1)}, generation=1)
    parts = reads(monkeypatch)

    assert positions(table, "g") == positions(table, "g") == {P0: 4, P1: 1}
    assert parts.call_count == 1


def test_few_positions_are_kept_in_memory_and_the_others_are_read_again(cluster, monkeypatch):
    monkeypatch.setattr("spark_log.coordinator.offsets.store._MAX_CACHED_OFFSETS", 3)
    table = OffsetsTable(cluster)
    for number in range(10):
        table.commit(f"g{number}", {P0: OffsetAndMetadata(number)})
    for _ in range(2):
        assert [positions(table, f"g{n}") for n in range(10)] == [{P0: n} for n in range(10)]
    parts = reads(monkeypatch)
    for number, is_read in ((7, False), (8, False), (9, False), (6, True)):
        parts.reset_mock()
        assert positions(table, f"g{number}") == {P0: number}
        assert parts.called == is_read


def test_a_version_that_delta_rs_made_is_fenced_and_read_too(cluster):
    table = OffsetsTable(cluster)
    table.commit("g", {P0: OffsetAndMetadata(1)}, generation=1)
    rows = table.history("g")
    write_deltalake(
        table.url,
        rows.set_column(4, rows.schema.field("offset"), [[3]]).set_column(
            7, rows.schema.field("generation"), rows["generation"].take([0]).combine_chunks()
        ),
        mode="append",
        commit_properties=CommitProperties(app_transactions=[Transaction("group:g", 2)]),
    )
    with pytest.raises(IllegalGenerationError):
        table.commit("g", {P0: OffsetAndMetadata(4)}, generation=1)
    assert table.history("g").num_rows == 2


def test_a_lost_table_is_an_error_and_nothing_begins_anew(cluster):
    import shutil

    table = OffsetsTable(cluster)
    table.commit("g", {P0: OffsetAndMetadata(1)})
    shutil.rmtree(table.url)
    fresh = other_process(cluster)
    for call in (
        lambda: fresh.fetch("g"),
        lambda: fresh.commit("g", {P0: OffsetAndMetadata(0)}),
        lambda: fresh.fence("g", 1),
    ):
        with pytest.raises(StorageError, match=r"is gone.*groups repair"):
            call()
    assert not Path(table.url).exists()


def test_a_missing_data_file_is_an_error_and_not_an_empty_position(cluster):
    table = OffsetsTable(cluster)
    table.commit("g", {P0: OffsetAndMetadata(1)})
    (file,) = Path(table.url).glob("*.parquet")
    file.unlink()
    with pytest.raises(StorageError, match=f"{file.name} is missing.*groups repair"):
        other_process(cluster).fetch("g")


def test_what_is_no_position_or_no_group_id_is_refused(cluster):
    table = OffsetsTable(cluster)
    with pytest.raises(OffsetOutOfRangeError, match="t-0: offset -1 cannot be committed"):
        table.commit("g", {P0: OffsetAndMetadata(-1)})
    with pytest.raises(InvalidGroupIdError):
        table.commit("\udc80", {P0: OffsetAndMetadata(1)})
    assert not Path(table.url).exists()


def test_a_forgotten_position_is_none_until_it_is_committed_again(cluster):
    table = OffsetsTable(cluster)
    table.commit("g", {P0: OffsetAndMetadata(1), P1: OffsetAndMetadata(2)})
    key = PartitionKey("t", cluster.topic("t").topic_id, 0)
    table.change("g", lambda _: [Row(key, -1)], generation=0)
    assert positions(table, "g") == positions(other_process(cluster), "g") == {P1: 2}
    table.commit("g", {P0: OffsetAndMetadata(0)})
    assert positions(table, "g") == {P0: 0, P1: 2}


def _commit_in_fork(table):
    table.commit("child", {P0: OffsetAndMetadata(2)})
    os._exit(0)


def test_a_forked_child_commits_while_its_parent_holds_the_lock(cluster, monkeypatch):
    table = OffsetsTable(cluster)
    table.commit("parent", {P0: OffsetAndMetadata(1)})
    held, let_go = threading.Event(), threading.Event()

    def hold():
        held.set()
        let_go.wait(30)

    before_version(cluster, monkeypatch, hold)
    thread = threading.Thread(target=table.commit, args=("g", {P0: OffsetAndMetadata(1)}))
    thread.start()
    held.wait(30)
    child = multiprocessing.get_context("fork").Process(target=_commit_in_fork, args=(table,))
    child.start()
    child.join(30)
    let_go.set()
    thread.join()
    assert child.exitcode == 0
    assert positions(table, "child") == {P0: 2}
    assert positions(table, "g") == {P0: 1}


@pytest.mark.parametrize("what", ["a data file", "the mark"])
def test_what_could_not_be_read_of_a_new_version_is_read_later(cluster, monkeypatch, what):
    """Otherwise the cache of this process would never get it."""
    table, other = OffsetsTable(cluster), other_process(cluster)
    other.commit("g", {P0: OffsetAndMetadata(1)})
    assert positions(table, "g") == {P0: 1}
    other.commit("g", {P0: OffsetAndMetadata(2)})

    def fail(*_):
        raise StorageError("down")

    with monkeypatch.context() as patch:
        if what == "a data file":
            patch.setattr(DataFiles, "rows_of", fail)
        else:
            patch.setattr("spark_log.coordinator.offsets.store.mark", fail)
        with pytest.raises(StorageError, match="down"):
            table.commit("g", {P0: OffsetAndMetadata(3)})
    assert positions(table, "g") == {P0: 2}


def test_who_makes_the_table_after_others_did_sees_what_they_committed(cluster, monkeypatch):
    """It read before the table existed, and has cached that the group has no offsets."""
    table, other = OffsetsTable(cluster), other_process(cluster)
    assert positions(table, "g") == {}
    store = cluster.store
    put = store.put_if_absent

    def come_second(path, source, **options):
        monkeypatch.undo()
        other.commit("g", {P0: OffsetAndMetadata(1)})
        put(path, source, **options)

    monkeypatch.setattr(store, "put_if_absent", come_second)
    table.commit("h", {P0: OffsetAndMetadata(2)})
    assert positions(table, "g") == {P0: 1}
