"""Other cases of Kafka's LogCleanerTest (docs/internals/cleaner-parity.md lists all of them)."""

import pytest

from spark_log.errors import CorruptRecordError
from spark_log.log.clean.compactor import compact
from spark_log.log.files.file_names import SegmentName
from spark_log.record.producer_append import ProducerAppend
from tests.log.support import DIRECTORY, file_names, open_log, records_of
from tests.record.samples import record_batch, row

SETTLED_MS = 61_000


@pytest.fixture
def log(store, clock):
    return open_log(store, clock=clock, cleanup_policy="compact")


def append(log, *keys, value=b"value", producer=None, **fields):
    """Append records as one segment."""
    rows = [row(value, key=key, **{"timestamp": log.clock.time_us(), **fields}) for key in keys]
    info = log.append(record_batch(rows), producer=producer)
    return info.base_offset, info.last_offset


def compacted(log, **limit):
    return compact(log, now_us=log.clock.time_us(), **limit)


def keys(log):
    return [
        (offset, row["key"]) for offset, row in records_of(log.scan(log.observe().log_start_offset))
    ]


def last_offsets(log):
    """Return the last offsets of all batches, also of those without records."""
    found = []
    for segment in log.observe().live.segments:
        reader = log.files.open(segment.name)
        for _, headers in reader.all_headers():
            found += [reader.base_offset + header.last_offset_delta for header in headers]
    return found


def without_snapshots(log):
    """Open the log as another process that finds only segments."""
    for name in file_names(log.files.store):
        if name.endswith(".snapshot"):
            log.files.store.delete(f"{DIRECTORY}/{name}")
    return open_log(log.files.store, clock=log.clock, cleanup_policy="compact")


class TestProducers:
    def test_a_retry_of_removed_records_is_recognised(self, log, clock):
        batches = {
            1: (b"1", b"2", b"3"),
            2: (b"3", b"1", b"4"),
            3: (b"1", b"4"),
        }
        for id_, sent in batches.items():
            append(log, *sent, producer=ProducerAppend(id_, 0, 0))
        append(log, b"z")
        compacted(log)
        assert keys(log) == [(1, b"2"), (3, b"3"), (6, b"1"), (7, b"4"), (8, b"z")]
        assert last_offsets(log) == [2, 5, 7, 8]
        for _ in range(2):
            again = without_snapshots(log)
            assert [
                append(again, *sent, producer=ProducerAppend(id_, 0, 0))
                for id_, sent in batches.items()
            ] == [(0, 2), (3, 5), (6, 7)]
            clock.advance_ms(SETTLED_MS)
            append(log, b"2", producer=ProducerAppend(4, 0, 0))
            append(log, b"z")
            compacted(log)
        assert last_offsets(log)[:3] == [2, 5, 7], "the first one's has no record any more"
        assert {number for number, _ in keys(log)} & {0, 1, 2} == set()

    def test_producers_keep_their_last_sequence_number_only(self, log):
        append(log, b"0")
        for id_ in (1, 2, 3):
            append(log, b"0", producer=ProducerAppend(id_, 0, 0))
        append(log, b"1", producer=ProducerAppend(2, 0, 1))
        append(log, b"z")
        compacted(log)
        assert last_offsets(log) == [1, 3, 4, 5]
        assert keys(log) == [(3, b"0"), (4, b"1"), (5, b"z")]
        producers = dict(without_snapshots(log).producers().entries())
        assert {id_: entry.next_sequence for id_, entry in producers.items()} == {1: 1, 2: 2, 3: 1}

    def test_a_batch_behind_the_limit_may_be_lost_and_replaces_no_last_batch(self, log):
        append(log, b"0", producer=ProducerAppend(1, 0, 0))
        append(log, b"0", producer=ProducerAppend(1, 0, 1))
        append(log, b"0", producer=ProducerAppend(2, 0, 0))
        append(log, b"0")
        limit = append(log, b"z")[1] + 1
        append(log, b"z", producer=ProducerAppend(1, 0, 2))
        append(log, b"z", producer=ProducerAppend(2, 0, 1))
        compacted(log, limit_offset=limit)
        assert last_offsets(log) == [1, 2, 3, 4, 5, 6]
        assert [number for number, _ in keys(log)] == [3, 4, 5, 6]


class TestTombstones:
    def test_delete_retention_is_counted_from_the_compaction_not_from_timestamps(self, log, clock):
        """The replaced record has a timestamp in the future, the tombstone an old one."""
        retention_us = log.config.delete_retention_ms * 1000
        append(log, b"0", timestamp=clock.time_us() + retention_us + 10_000_000)
        append(log, b"z")
        compacted(log)
        clock.advance_ms(SETTLED_MS)
        long_ago_us = clock.time_us() - retention_us - 10_000_000
        append(log, b"0", value=None, timestamp=long_ago_us)
        for _ in range(3):
            append(log, b"z")
            compacted(log)
            assert (2, b"0") in keys(log)
            clock.advance_ms(SETTLED_MS)

    def test_tombstones_delete_every_second_key(self, log, clock):
        for number in range(20):
            append(log, b"%d" % number)
        append(log, *(b"%d" % number for number in range(0, 20, 2)), value=None)
        append(log, b"z")
        compacted(log)
        clock.advance_ms(log.config.delete_retention_ms)
        append(log, b"z")
        compacted(log)
        assert [key for _, key in keys(log)] == [*(b"%d" % n for n in range(1, 20, 2)), b"z", b"z"]


class TestWhatItDid:
    def test_a_compaction_reports_records_and_bytes(self, log):
        append(log, b"0", b"1", b"0", b"1", b"0")
        append(log, b"z")
        size_bytes = log.observe().live.segments[0].file.size_bytes
        done = compacted(log)
        assert (done.end_offset, done.records_read, done.records_written) == (5, 5, 2)
        after = log.observe().live.segments
        assert (done.bytes_read, done.bytes_written) == (size_bytes, after[0].file.size_bytes)


class TestLargeRecords:
    def test_records_above_the_topics_new_size_limit_are_kept(self, store, log, clock):
        append(log, b"0", b"1", value=b"x" * 2**20)
        append(log, b"1", value=b"y" * 2**20)
        strict = open_log(store, clock=clock, cleanup_policy="compact", max_message_bytes=1024)
        append(strict, b"z")
        compacted(strict)
        assert keys(log) == [(0, b"0"), (2, b"1"), (3, b"z")]


class TestDamage:
    @pytest.mark.parametrize("kept_bytes", [0, 10, 1024, -20])
    def test_a_truncated_file_is_an_error_and_nothing_is_replaced(self, store, log, kept_bytes):
        append(log, b"0", value=b"x" * 4096)
        append(log, b"0")
        append(log, b"z")
        path = f"{DIRECTORY}/{SegmentName(0).file_name}"
        store.put(path, store.open_buffer(path).to_pybytes()[:kept_bytes])
        with pytest.raises(CorruptRecordError):
            compacted(open_log(store, clock=log.clock, cleanup_policy="compact"))
        assert sum(name.endswith(".log") for name in file_names(store)) == 3
