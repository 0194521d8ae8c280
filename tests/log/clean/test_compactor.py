"""Compaction: the last record of every key is kept at its offset; rules of Kafka's cleaner."""

import random
from typing import Any

import pyarrow as pa
import pytest

from spark_log.errors import CorruptRecordError
from spark_log.log.clean.compactor import compact
from spark_log.log.clean.generations import take_generation
from spark_log.log.clean.log_to_clean import log_to_clean
from spark_log.log.files.file_names import SegmentName
from spark_log.record.producer_append import ProducerAppend
from tests.log.support import (
    DIRECTORY,
    file_names,
    free,
    move_start,
    open_log,
    put_segment,
    records_of,
)
from tests.record.samples import record_batch, row

DAY_MS = 86_400_000


@pytest.fixture
def store(memory_store):
    return memory_store


@pytest.fixture
def log(store, clock):
    return open_log(store, clock=clock, cleanup_policy="compact")


SETTLED_MS = 61_000
"""Time after which a log may be compacted again."""


NO_TIME_US = -1000
"""A record without a timestamp: -1 ms in Kafka."""


def append(log, *pairs, producer=None, timestamps_us=None):
    """Append records ``(key, value)`` as one segment."""
    times = timestamps_us or [log.clock.time_us()] * len(pairs)
    rows = [
        row(value, key=key, timestamp=time) for (key, value), time in zip(pairs, times, strict=True)
    ]
    return log.append(record_batch(rows), producer=producer).base_offset


def compacted(log, **settings):
    return compact(log, now_us=log.clock.time_us(), **settings)


def pairs(log):
    """Return ``[(offset, key, value), …]`` as a reader gets them."""
    found = records_of(log.scan(log.observe().log_start_offset))
    return [(offset, row["key"], row["value"]) for offset, row in found]


def test_the_last_record_of_each_key_stays_at_its_offset(log):
    append(log, (b"a", b"0"), (b"b", b"1"), (b"a", b"2"))
    append(log, (b"c", b"3"), (b"b", b"4"))
    append(log, (b"a", b"5"))
    done = compacted(log)
    assert pairs(log) == [(2, b"a", b"2"), (3, b"c", b"3"), (4, b"b", b"4"), (5, b"a", b"5")]
    assert (done.records_read, done.records_written, done.segments_written) == (5, 3, 1)
    assert log.observe().log_end_offset == 6


def test_the_last_segment_is_active_and_left_alone(log):
    append(log, (b"a", b"0"))
    assert compacted(log).segments_written == 0
    append(log, (b"a", b"1"), (b"a", b"2"))
    compacted(log)
    assert pairs(log) == [(0, b"a", b"0"), (1, b"a", b"1"), (2, b"a", b"2")]


def test_records_without_a_key_are_removed(store, log, clock):
    append(open_log(store, clock=clock), (None, b"0"), (b"a", b"1"))
    append(log, (b"z", b""))
    compacted(log)
    assert pairs(log) == [(1, b"a", b"1"), (2, b"z", b"")]


def test_a_compacted_log_is_clean_until_more_is_appended(log):
    for number in range(4):
        append(log, (b"a", b"%d" % number))
    assert compacted(log).end_offset == 3
    found, _ = log_to_clean(log, log.observe(), now_us=log.clock.time_us())
    assert (found.first_dirty_offset, found.end_offset, found.dirty_bytes) == (3, 3, 0)
    append(log, (b"b", b""))
    found, _ = log_to_clean(log, log.observe(), now_us=log.clock.time_us())
    assert (found.first_dirty_offset, found.end_offset) == (3, 4)
    assert 0 < found.ratio < 1


def test_a_new_record_of_a_key_replaces_the_clean_one(log, clock):
    append(log, (b"a", b"0"), (b"b", b"1"))
    append(log, (b"z", b""))
    compacted(log)
    clock.advance_ms(SETTLED_MS)
    append(log, (b"a", b"3"))
    append(log, (b"z", b"4"))
    compacted(log)
    assert pairs(log) == [(1, b"b", b"1"), (2, b"z", b""), (3, b"a", b"3"), (4, b"z", b"4")]


class TestTombstones:
    def test_tombstones_are_kept_for_delete_retention_ms(self, log, clock):
        append(log, (b"a", b"0"), (b"a", None), (b"b", b"2"))
        append(log, (b"z", b""))
        compacted(log)
        kept = [(1, b"a", None), (2, b"b", b"2"), (3, b"z", b"")]
        assert pairs(log) == kept
        clock.advance_ms(DAY_MS - 1)
        append(log, (b"y", b""))
        assert compacted(log).end_offset == 4
        assert pairs(log)[:3] == kept
        clock.advance_ms(SETTLED_MS)
        append(log, (b"x", b""))
        assert compacted(log).tombstones_removed == 1
        assert pairs(log)[0] == (2, b"b", b"2")

    def test_tombstones_keep_their_retention_if_the_compaction_was_suspended(self, log, clock):
        """The compaction read the time, was suspended for half a day, and then listed the log."""
        began_us = clock.time_us()
        clock.advance_ms(DAY_MS // 2)
        append(log, (b"a", b"0"), (b"a", None))
        append(log, (b"z", b""))
        assert compact(log, now_us=began_us).is_complete
        clock.advance_ms(DAY_MS - 1)
        append(log, (b"y", b""))
        assert compacted(log).tombstones_removed == 0
        clock.advance_ms(SETTLED_MS)
        append(log, (b"x", b""))
        assert compacted(log).tombstones_removed == 1

    def test_replaced_tombstones_are_removed_at_once(self, log):
        append(log, (b"a", None), (b"a", b"1"))
        append(log, (b"z", b""))
        compacted(log)
        assert pairs(log) == [(1, b"a", b"1"), (2, b"z", b"")]

    def test_tombstones_wait_for_earlier_listings(self, store, clock):
        log = open_log(store, clock=clock, cleanup_policy="compact", delete_retention_ms=0)
        append(log, (b"a", b"0"), (b"a", None))
        append(log, (b"z", b""))
        compacted(log)
        append(log, (b"y", b""))
        clock.advance_ms(SETTLED_MS - 1)
        assert compacted(log).segments_written == 0
        clock.advance_ms(1)
        assert compacted(log).tombstones_removed == 1

    def test_a_late_merge_restores_no_deleted_record(self, store, clock):
        """The merge starts before the compaction, is wider, and ends after it."""
        log = open_log(store, clock=clock, cleanup_policy="compact", segment_bytes=2**20)
        append(log, (b"k", b"0" * 2**20))
        append(log, (b"a", b"1"))
        append(log, (b"b", b"1"), (b"a", None))
        append(log, (b"z", b""))
        put_late = late_rewrite(log, generation=1, end_offset=5)
        compacted(log)
        clock.advance_ms(DAY_MS)
        append(log, (b"y", b""))
        assert compacted(log).tombstones_removed == 1
        put_late()
        assert [key for _, key, _ in pairs(log)] == [b"k", b"b", b"z", b"y"]

    def test_a_late_older_compaction_restores_no_deleted_record(self, log, clock):
        append(log, (b"a", b"0"))
        append(log, (b"b", b"1"), (b"a", None))
        append(log, (b"z", b""))
        put_late = late_rewrite(log, generation=log_generation(log) + 1)
        take(log)
        compacted(log)
        clock.advance_ms(DAY_MS)
        append(log, (b"y", b""))
        assert compacted(log).tombstones_removed == 1
        put_late()
        assert [key for _, key, _ in pairs(log)] == [b"b", b"z", b"y"]

    def test_tombstones_wait_for_an_older_compaction(self, log, clock):
        """It starts between the two, with a listing from before the first."""
        append(log, (b"a", b"0"))
        append(log, (b"b", b"1"), (b"a", None))
        append(log, (b"z", b""))
        compacted(log)
        clock.advance_ms(DAY_MS)
        take(log)
        append(log, (b"y", b""))
        assert compacted(log).tombstones_removed == 0
        clock.advance_ms(DAY_MS)
        append(log, (b"x", b""))
        assert compacted(log).tombstones_removed == 1


def log_generation(log):
    return log.observe().live.compaction_generation


def take(log):
    """Take a generation, like a compaction that crashes then."""
    assert take_generation(log.files, log.observe()) is not None


def late_rewrite(log, *, generation, end_offset=3):
    """Rewrite the log's first segments; return a function that puts the file."""
    records = pa.concat_batches([each.records for each in log.scan(0, end_offset)])
    name = SegmentName(0, end_offset - 1, generation)
    return lambda: put_segment(log.files.store, [records], name)


class TestProducers:
    def test_the_last_batch_of_a_producer_is_kept_when_empty(self, store, log):
        append(log, (b"a", b"0"), producer=ProducerAppend(7, 0, 0))
        append(log, (b"a", b"1"), producer=ProducerAppend(7, 0, 1))
        append(log, (b"a", b"2"))
        append(log, (b"z", b""))
        compacted(log)
        assert pairs(log) == [(2, b"a", b"2"), (3, b"z", b"")]
        for name in file_names(store):
            if name.endswith(".snapshot"):
                store.delete(f"{DIRECTORY}/{name}")
        again = open_log(store, clock=log.clock, cleanup_policy="compact")
        assert append(again, (b"a", b"1"), producer=ProducerAppend(7, 0, 1)) == 1
        assert append(again, (b"a", b"4"), producer=ProducerAppend(7, 0, 2)) == 4


class TestTwoAtOnce:
    def test_one_of_two_compactions_gives_up(self, store, log):
        append(log, (b"a", b"0"), (b"a", b"1"))
        append(log, (b"z", b""))
        taken: list[Any] = []

        def other(*args, **kwargs):
            if not taken:
                taken.append("begun")
                taken.append(compacted(log))

        done = compact(log, now_us=log.clock.time_us(), on_progress=other)
        assert taken[1].is_complete
        assert done.is_complete, "of an older generation; its files do not count"
        assert pairs(log) == [(1, b"a", b"1"), (2, b"z", b"")]


class TestLag:
    def test_young_segments_are_not_compacted(self, store, clock):
        log = open_log(store, clock=clock, cleanup_policy="compact", min_compaction_lag_ms=1000)
        append(log, (b"a", b"0"))
        clock.advance_ms(600)
        append(log, (b"a", b"1"))
        append(log, (b"a", b"2"))
        clock.advance_ms(400)
        assert compacted(log).end_offset == 1
        clock.advance_ms(SETTLED_MS)
        assert compacted(log).end_offset == 2
        assert pairs(log) == [(1, b"a", b"1"), (2, b"a", b"2")]

    def test_a_record_older_than_the_max_lag_makes_the_log_overdue(self, store, clock):
        log = open_log(store, clock=clock, cleanup_policy="compact", max_compaction_lag_ms=1000)
        append(log, (b"a", b"0"))
        append(log, (b"a", b"1"))
        found, _ = log_to_clean(log, log.observe(), now_us=clock.time_us())
        assert not found.is_overdue
        clock.advance_ms(1001)
        found, _ = log_to_clean(log, log.observe(), now_us=clock.time_us())
        assert found.is_overdue

    def test_the_time_of_its_file_counts_for_records_without_a_timestamp(self, store, clock):
        log = open_log(store, clock=clock, cleanup_policy="compact", min_compaction_lag_ms=1000)
        append(log, (b"a", b"0"), timestamps_us=[NO_TIME_US])
        append(log, (b"a", b"1"), timestamps_us=[NO_TIME_US])
        append(log, (b"a", b"2"))
        clock.advance_ms(999)
        assert compacted(log).end_offset == 0
        clock.advance_ms(SETTLED_MS)
        assert compacted(log).end_offset == 2
        assert pairs(log) == [(1, b"a", b"1"), (2, b"a", b"2")]

    @pytest.mark.parametrize("is_alone", [True, False])
    def test_a_record_without_a_timestamp_makes_the_log_overdue_by_its_file(
        self, store, clock, is_alone
    ):
        log = open_log(store, clock=clock, cleanup_policy="compact", max_compaction_lag_ms=1000)
        without, rest = (b"a", b"0"), [] if is_alone else [(b"b", b"0")]
        times = [NO_TIME_US, *(clock.time_us() for _ in rest)]
        append(log, without, *rest, timestamps_us=times)
        append(log, (b"a", b"1"))
        assert not log_to_clean(log, log.observe(), now_us=clock.time_us())[0].is_overdue
        clock.advance_ms(1001)
        assert log_to_clean(log, log.observe(), now_us=clock.time_us())[0].is_overdue


def test_only_live_segments_are_compacted(log):
    append(log, (b"a", b"0"), (b"b", b"1"), (b"b", b"2"))
    append(log, (b"z", b""))
    log.snapshots.write()
    move_start(log.files.store, 1, 0)
    compacted(log)
    assert pairs(log) == [(2, b"b", b"2"), (3, b"z", b"")]


def test_damage_replaces_nothing(store, log):
    append(log, (b"a", b"0"), (b"a", b"1"))
    append(log, (b"z", b""))
    path = f"{DIRECTORY}/{SegmentName(0).file_name}"
    data = bytearray(store.open_buffer(path).to_pybytes())
    data[data.rindex(b"aa")] ^= 1
    store.delete(path)
    store.put_if_absent(path, bytes(data))
    before = file_names(store)
    with pytest.raises(CorruptRecordError):
        compacted(log)
    assert [name for name in file_names(store) if name.endswith(".log")] == [
        name for name in before if name.endswith(".log")
    ]


@pytest.mark.parametrize("seed", range(30))
def test_compactions_equal_a_dictionary(store, clock, seed):
    """Random appends, compactions, deletions of files, and passing time."""
    chance = random.Random(seed)
    log = open_log(
        store, clock=clock, cleanup_policy="compact", segment_bytes=2**20, delete_retention_ms=1000
    )
    history = []
    for step in range(40):
        match chance.randrange(6):
            case 0 | 1 | 2:
                rows = [
                    (
                        b"%d" % chance.randrange(8),
                        None if chance.random() < 0.3 else b"%d.%d" % (step, number),
                    )
                    for number in range(chance.randrange(1, 5))
                ]
                append(log, *rows)
                history += rows
            case 3:
                memory = chance.choice([1, 2**20])
                compact(log, now_us=clock.time_us(), memory_bytes=memory)
            case 4:
                clock.advance_ms(chance.choice([1, 500, 61_000]))
            case 5:
                clock.advance_ms(61_000)
                free(store)
        found = pairs(log)
        assert [offset for offset, _, _ in found] == sorted({offset for offset, _, _ in found})
        for offset, key, value in found:
            assert history[offset] == (key, value)
        table = {}
        for _, key, value in found:
            table[key] = value
        expected = dict(history)
        assert {key: value for key, value in table.items() if value is not None} == {
            key: value for key, value in expected.items() if value is not None
        }
        assert log.observe().log_end_offset == len(history)
