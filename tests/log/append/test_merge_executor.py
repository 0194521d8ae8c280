"""Merges of the log's end on another thread than the appends."""

from collections import Counter
from collections.abc import Callable

import pytest

from spark_log.config import TopicConfig
from spark_log.errors import StorageError
from spark_log.log import LocalLog, MergeExecutor
from spark_log.log.files.file_names import SegmentName
from spark_log.util.clock import ManualClock
from spark_log.util.suppressed import SuppressedErrors
from tests.log.support import (
    DIRECTORY,
    TOPIC_ID,
    failing,
    file_names,
    free,
    merge,
    open_log,
    put_segment,
    values,
)
from tests.record.samples import numbered

TAIL = 4


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def waiting():
    """The merges that the thread has not begun."""
    return []


@pytest.fixture
def suppressed():
    return SuppressedErrors()


@pytest.fixture
def log(store, clock, waiting, suppressed):
    def run_merge(merge):
        waiting.append(merge)
        return True

    return open_log(
        store, clock=clock, suppressed=suppressed, merge_tail_segments=TAIL, run_merge=run_merge
    )


def append(log, count=1):
    for _ in range(count):
        log.append(numbered(0, 1))


def live(store):
    names = [segment.name for segment in open_log(store).observe().live.segments]
    return [(name.base_offset, name.last_offset) for name in names]


def plain(store):
    names = map(SegmentName.parse, file_names(store))
    return [name.base_offset for name in names if name and not name.generation]


def whole(count):
    return [(at, b"record:0") for at in range(count)]


def test_the_append_that_makes_a_merge_due_does_not_wait_for_it(log, store, inner, waiting):
    append(log)
    store.calls.clear()
    append(log, TAIL - 1)
    assert len(waiting) == 1
    assert [path for path in store.called("put_if_absent") if "-" in path.rpartition("/")[2]] == []
    waiting.pop()()
    assert live(inner) == [(0, 3)]
    append(log)
    assert values(open_log(inner)) == whole(TAIL + 1)


def test_a_log_has_one_merge_at_a_time(log, inner, waiting):
    append(log, 3 * TAIL)
    assert len(waiting) == 1
    waiting.pop()()
    append(log)
    assert len(waiting) == 1, "what was appended meanwhile"
    waiting.pop()()
    assert len(live(inner)) <= 3
    assert values(open_log(inner)) == whole(3 * TAIL + 1)


def test_merged_segments_are_deleted_beside_too(log, store, inner, clock, waiting):
    append(log, TAIL)
    waiting.pop()()
    clock.advance_ms(30_000)
    append(log)
    clock.advance_ms(31_000)
    append(log)
    assert plain(inner) == [0, 1, 2, 3, 4, 5]
    waiting.pop()()
    assert plain(inner) == [4, 5]
    assert values(open_log(inner)) == whole(TAIL + 2)


def test_the_delay_counts_from_the_end_of_the_merge(log, inner, clock, waiting):
    append(log, TAIL)
    clock.advance_ms(20_000)
    waiting.pop()()
    clock.advance_ms(45_000)
    append(log)
    assert waiting == []
    assert plain(inner) == [0, 1, 2, 3, 4]


def test_a_failure_is_counted_and_fails_no_append(log, store, inner, waiting, suppressed):
    append(log, TAIL)
    store.on("put_if_absent", failing(StorageError("no")))
    waiting.pop()()
    store.hooks.clear()
    assert suppressed.counts() == {"tail merge": 1}
    append(log, TAIL)
    assert len(waiting) == 1
    assert values(open_log(inner)) == whole(2 * TAIL)


def test_the_next_append_lists_the_log_if_the_merge_misses_files(log, store, inner, waiting):
    append(log, TAIL)
    inner.delete(f"{log.directory}/{SegmentName(1).file_name}")
    waiting.pop()()
    append(log)
    store.calls.clear()
    append(log)
    assert store.called("list")


def test_a_merge_that_begins_late_merges_what_is_in_the_log(log, inner, clock, waiting):
    """Others have merged and freed the names meanwhile; a late put has taken one of them."""
    append(log, TAIL)
    clock.advance_ms(90_000)
    merge(inner, 0, TAIL)
    free(inner, *map(SegmentName, range(TAIL)))
    put_segment(inner, [numbered(500, 1)], SegmentName(1))
    waiting.pop()()
    assert values(open_log(inner)) == whole(TAIL)
    append(log, TAIL)
    assert values(open_log(inner)) == whole(2 * TAIL)


def snapshots(store):
    return [name for name in file_names(store) if name.endswith(".snapshot")]


def test_a_snapshot_waits_for_the_merge_but_not_for_ever(store, inner, waiting):
    def run(merge):
        waiting.append(merge)
        return True

    log = open_log(store, merge_tail_segments=TAIL, snapshot_interval_segments=TAIL, run_merge=run)
    append(log, 2 * TAIL - 1)
    assert len(waiting) == 1
    assert snapshots(inner) == []
    append(log, 1)
    assert len(snapshots(inner)) == 1


def snapshots_of_rounds(store, rounds, *, partitions, **config):
    """Append to some partitions in turn, and count the snapshots by round; no merge begins."""
    settings = TopicConfig.parse({"flush_on_append": False, **config})
    logs = [
        LocalLog(
            store,
            f"flights.{TOPIC_ID}/flights-{partition}",
            topic_id=TOPIC_ID,
            partition=partition,
            config=settings,
            merge_executor=MergeExecutor(lambda merge: True),
        )
        for partition in range(partitions)
    ]
    counts = []
    for _ in range(rounds):
        store.calls.clear()
        for log in logs:
            append(log)
        written = [path for path in store.called("put") if path.endswith(".snapshot")]
        counts.append(Counter(path.rpartition("/")[0] for path in written))
    return counts


def test_partitions_that_are_written_together_get_no_snapshots_together(store):
    config = {"merge_tail_segments": TAIL, "snapshot_interval_segments": 16}
    counts = snapshots_of_rounds(store, 3 * 16, partitions=16, **config)
    assert max(map(len, counts)) == 1, "partitions with a snapshot in one round"
    assert sum(counts, Counter()).total() == 16, "no partition waits for merges for ever"


def test_nor_do_partitions_that_are_not_merged(store):
    config = {"merge_tail_segments": 0, "snapshot_interval_segments": 32}
    counts = snapshots_of_rounds(store, 32 + 3, partitions=8, **config)
    assert [len(each) for each in counts[-4:]] == [2, 2, 2, 2]


def test_a_snapshot_that_is_left_is_written_when_its_owner_writes_it(store, inner):
    left: list[Callable[[], None]] = []
    log = LocalLog(
        store,
        DIRECTORY,
        topic_id=TOPIC_ID,
        partition=0,
        config=TopicConfig.parse(
            {"flush_on_append": False, "merge_tail_segments": 0, "snapshot_interval_segments": 8}
        ),
        merge_executor=MergeExecutor(lambda merge: True, leave_snapshot=left.append),
    )
    append(log, 7)
    assert left == []
    append(log, 3)
    assert snapshots(inner) == []
    for write in left:  # the second and the third append have left it again
        write()
    assert len(left) == 3
    assert len(snapshots(inner)) == 1
    left.clear()
    append(log, 7)
    assert left == []


def test_segments_that_are_merged_count_once_for_the_next_snapshot(store, inner):
    log = open_log(store, merge_tail_segments=16, snapshot_interval_segments=16)
    append(log, 2 * 16)
    assert snapshots(inner) == []
    append(log, 3 * 16)
    assert len(snapshots(inner)) == 1


def test_appends_go_on_if_the_thread_takes_no_merges(store, inner):
    log = open_log(store, merge_tail_segments=TAIL, run_merge=lambda merge: False)
    append(log, 3 * TAIL)
    assert values(open_log(inner)) == whole(3 * TAIL)
