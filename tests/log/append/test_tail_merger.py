"""Merges by appenders: the log's tail stays short at little cost, and no record is lost."""

import pytest

from spark_log import Admin, NewTopic
from spark_log.cluster import Cluster
from spark_log.errors import StorageError
from spark_log.log.append import tail_merger
from spark_log.log.files.file_names import SegmentName
from spark_log.record.producer_append import ProducerAppend
from spark_log.util.clock import ManualClock
from tests.log.support import (
    HookedStore,
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
def log(store, clock):
    return open_log(store, clock=clock, merge_tail_segments=TAIL)


def append(log, count=1, records=1):
    for _ in range(count):
        log.append(numbered(0, records))


def live(store):
    """Base, last offset and generation of each live segment."""
    names = [segment.name for segment in open_log(store).observe().live.segments]
    return [(name.base_offset, name.last_offset, name.generation) for name in names]


def merged(path):
    return "-" in path.rpartition("/")[2]


def plain(store):
    names = map(SegmentName.parse, file_names(store))
    return [name.base_offset for name in names if name and not name.generation]


def failing_for_merged(path, call):
    if merged(path):
        raise StorageError("no")
    return call()


class TestMerging:
    def test_is_done_by_the_append_that_makes_the_tail_too_long(self, log, inner):
        append(log, TAIL - 1)
        assert live(inner) == [(0, None, 0), (1, None, 0), (2, None, 0)]
        append(log)
        assert live(inner) == [(0, 3, 1)]
        assert len(values(open_log(inner))) == TAIL

    def test_continues_level_by_level(self, log, inner):
        append(log, 300)
        assert len(live(inner)) <= 4 * TAIL
        assert max(generation for _, _, generation in live(inner)) >= 3
        assert len(values(open_log(inner))) == 300

    def test_of_partitions_that_are_written_together_is_done_one_after_the_other(self, tmp_path):
        """A producer's call that appends to all of them waits for one merge, not for all."""
        root = str(tmp_path / "root")
        with Admin(root) as admin:
            admin.create_topics([NewTopic("t", 4, topic_configs={"merge.tail.segments": "32"})])
        cluster = Cluster(root)
        merged_after: dict[int, int] = {}
        for partition in range(4):
            log = cluster.partition_log(cluster.topic("t"), partition)
            for number in range(1, 40):
                append(log)
                if len(log.observe().live.segments) < number:
                    merged_after.setdefault(partition, number)
        assert merged_after == {0: 32, 1: 33, 2: 34, 3: 35}

    def test_may_be_switched_off(self, store, inner):
        append(open_log(store, merge_tail_segments=0), 200)
        assert len(live(inner)) == 200

    def test_needs_no_listing_while_one_appends_alone(self, log, store):
        append(log)
        store.calls.clear()
        append(log, TAIL - 1)
        assert store.called("list") == []
        assert any(map(merged, store.called("put_if_absent")))

    def test_is_done_by_a_later_appender_too(self, store, inner, clock):
        """A task of a Spark job appends once, with a `LocalLog` of its own."""
        for _ in range(TAIL + 1):
            append(open_log(store, clock=clock, merge_tail_segments=TAIL))
        assert live(inner)[0] == (0, 4, 1) or live(inner)[0] == (0, 3, 1)
        assert len(live(inner)) <= 2

    def test_leaves_large_segments_to_the_cleaner(self, store, clock, inner, monkeypatch):
        monkeypatch.setattr(tail_merger, "_MAX_MERGE_BYTES", 1)
        append(open_log(store, clock=clock, merge_tail_segments=TAIL), 3 * TAIL)
        assert len(live(inner)) == 3 * TAIL

    def test_leaves_producers_as_they_were(self, store, inner):
        log = open_log(store, merge_tail_segments=TAIL)
        for sequence in range(2 * TAIL):
            log.append(numbered(sequence, 1), producer=ProducerAppend(7, 0, sequence))
        assert len(live(inner)) == 2
        again = open_log(inner).append(numbered(1, 2), producer=ProducerAppend(7, 0, 1))
        assert (again.base_offset, again.last_offset) == (1, 2)

    def test_that_fails_fails_no_append(self, log, store, inner):
        append(log, TAIL - 1)
        store.on("put_if_absent", failing_for_merged)
        append(log)
        assert len(live(inner)) == TAIL
        store.hooks.clear()
        append(log, TAIL)
        assert len(values(open_log(inner))) == 2 * TAIL

    def test_lists_first_if_it_knew_the_names_long_ago(self, log, inner, clock):
        """A segment may have been deleted since, and its name taken by a late put."""
        for _ in range(TAIL - 1):
            append(log)
            clock.advance_ms(20_000)
        merge(inner, 0, TAIL - 1)
        free(inner, *map(SegmentName, range(TAIL - 1)))
        put_segment(inner, [numbered(500, 1)], SegmentName(0))
        append(log, 2 * TAIL)
        assert values(open_log(inner)) == [(at, b"record:0") for at in range(3 * TAIL - 1)]

    def test_beside_another_appender_is_done_by_one_of_them(self, inner, clock):
        stores = [HookedStore(inner) for _ in range(2)]
        logs = [open_log(store, clock=clock, merge_tail_segments=TAIL) for store in stores]
        for _ in range(4 * TAIL):
            for log in logs:
                append(log)
        assert len(values(open_log(inner))) == 8 * TAIL
        made = [path for store in stores for path in store.called("put_if_absent") if merged(path)]
        assert len(made) <= 12, "eight of the first generation, two of the second, hardly any twice"
        assert len(live(inner)) <= 2 * TAIL


class TestFreeing:
    def test_waits_for_the_delay(self, log, inner, clock):
        append(log, TAIL)
        clock.advance_ms(60_000)
        append(log)
        assert plain(inner) == [0, 1, 2, 3, 4], "some storages tell the time in whole seconds"
        clock.advance_ms(1_000)
        append(log)
        assert plain(inner) == [4, 5]
        assert len(values(open_log(inner))) == TAIL + 2

    def test_takes_indexes_along(self, inner, clock):
        log = open_log(inner, clock=clock, merge_tail_segments=2, index_interval_bytes=0)
        for _ in range(2):
            log.append([numbered(0, 1), numbered(1, 1)])
        assert sum(name.endswith(".index") for name in file_names(inner)) == 2
        clock.advance_ms(61_000)
        append(log)
        assert [
            name for name in file_names(inner) if name.startswith("00000000000000000000.")
        ] == []

    def test_that_fails_is_left_to_the_cleaner(self, log, store, inner, clock):
        append(log, TAIL)
        clock.advance_ms(61_000)
        store.on("delete", failing(StorageError("no")))
        append(log)
        del store.hooks["delete"]
        append(log)
        assert plain(inner)[:TAIL] == [0, 1, 2, 3]
