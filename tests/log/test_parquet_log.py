"""A log whose cold part is Parquet, compared with the same log as Arrow files."""

import random
from dataclasses import replace
from typing import Any
from unittest import mock

import pyarrow.compute as pc
import pytest

from spark_log.errors import CorruptRecordError
from spark_log.log.clean.cleaner import PartitionCleaner
from spark_log.log.clean.compactor import compact
from spark_log.log.files.file_names import SegmentName
from spark_log.log.producers import TransactionIndex
from spark_log.log.segment.parquet.writer import WRITER_OPTIONS, ParquetSegmentWriter
from spark_log.log.verify.finding import LogSeverity
from spark_log.log.verify.verifier import Verifier
from spark_log.record import EndTransactionMarker, ProducerAppend
from spark_log.storage.memory import MemoryStore
from spark_log.util.clock import ManualClock
from tests.log.support import (
    DIRECTORY,
    HookedStore,
    RetentionAt,
    file_names,
    open_log,
    put_bytes,
    records_of,
    values,
    values_of,
)
from tests.record.samples import START_US, numbered, record_batch, row

COMMITTED = {"isolation_level": "read_committed"}
DELTA = {"table_format": "delta", "retention_ms": -1}
COMPACT = {**DELTA, "cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0.0}


def write(store, clock, *, transactions=60, seed=1, **config):
    """Write transactions of three producers, 30 % of them aborted, with other appends between."""
    log = open_log(store, clock=clock, merge_tail_segments=0, retention_ms=-1, **config)
    rng = random.Random(seed)
    epochs, sequences, first = dict.fromkeys(range(3), 0), dict.fromkeys(range(3), 0), 0
    for _ in range(transactions):
        for producer_id in rng.sample(range(3), 2):
            count = rng.randint(1, 5)
            producer = ProducerAppend(
                producer_id, epochs[producer_id], sequences[producer_id], is_transactional=True
            )
            log.append(numbered(first, count, mark="t"), producer=producer)
            sequences[producer_id] += count
            first += count
        if rng.random() < 0.3:
            log.append(numbered(first, 2, mark="plain"))
            first += 2
        ended = rng.sample(range(3), rng.randint(1, 3))
        for each in ended:
            epochs[each], sequences[each] = epochs[each] + 1, 0
        log.append_markers(
            [EndTransactionMarker(each, epochs[each], rng.random() > 0.3) for each in ended]
        )
        clock.advance_ms(1)
    return log


@pytest.fixture
def clock():
    return ManualClock(time_us=START_US)


@pytest.fixture(params=[True, False], ids=["mapped", "ranged"])
def logs(request, clock):
    """The log as Arrow files, and with Parquet files; both merged by a cleaner."""
    found = []
    for table_format in ("none", "delta"):
        store = MemoryStore(f"memory://{request.node.name}-{table_format}", clock)
        log = write(store, clock, table_format=table_format)
        PartitionCleaner(log, table_at_once=True).clean()
        hooked = HookedStore(store, is_mapped=request.param)
        found.append(open_log(hooked, clock=clock, table_format=table_format, retention_ms=-1))
    clock.advance_ms(120_000)
    return found


def kinds(log):
    return [segment.name.is_parquet for segment in log.observe().live.segments]


def names(log):
    return [segment.name for segment in log.observe().live.segments]


def errors(log):
    return [each for each in Verifier(log).findings() if each.severity is LogSeverity.ERROR]


def with_outcome(log):
    """Each record with its offset, and whether its transaction was aborted, by all headers."""
    readers = [log.files.open(name) for name in names(log)]
    index = TransactionIndex()
    for reader in readers:
        for _, headers in reader.all_headers():
            index.replay(reader.base_offset, headers)
    return [
        (pair, batch.is_aborted)
        for reader in readers
        for batch in reader.read(0, is_aborted=index.is_aborted)
        if not batch.is_control
        for pair in records_of([batch])
    ]


class TestReads:
    def test_the_part_before_the_first_open_transaction_is_parquet(self, logs):
        arrow, parquet = logs
        assert kinds(arrow) == [False] * len(kinds(arrow))
        assert kinds(parquet)[0]
        stable = parquet.transactions().last_stable_offset
        for segment in parquet.observe().live.segments:
            end_offset = parquet.files.open(segment.name).end_offset
            assert segment.name.is_parquet == (end_offset <= stable)

    def test_committed_records_are_equal(self, logs):
        arrow, parquet = logs
        expected = records_of(arrow.scan(0, **COMMITTED))
        assert len(expected) > 100
        assert records_of(parquet.scan(0, **COMMITTED)) == expected
        for start in range(0, expected[-1][0], 37):
            part = [pair for pair in expected if start <= pair[0] < start + 50]
            assert records_of(parquet.scan(start, start + 50, **COMMITTED)) == part

    def test_all_records_are_equal_except_those_of_aborted_transactions(self, logs):
        arrow, parquet = logs
        (cold, *_) = names(parquet)
        expected = [
            pair
            for pair, is_aborted in with_outcome(arrow)
            if not is_aborted or pair[0] > cold.last_offset
        ]
        assert records_of(parquet.scan(0)) == expected

    def test_single_columns_are_equal(self, logs):
        arrow, parquet = logs
        for columns in (["value"], ["timestamp", "key"], ["headers"]):
            told = [
                [
                    (offset, content)
                    for batch in log.scan(0, columns=columns, **COMMITTED)
                    for offset, content in zip(
                        batch.offsets().tolist(),
                        batch.records.select(columns).to_pylist(),
                        strict=True,
                    )
                ]
                for log in (arrow, parquet)
            ]
            assert told[0] == told[1]

    def test_a_consumers_fetches_give_the_same_records(self, logs):
        fetched = []
        for log in logs:
            found, offset = [], 0
            while offset < log.transactions().last_stable_offset:
                batches, offset = log.read(offset, 500, **COMMITTED)
                found += records_of(batches)
            fetched.append(found)
        assert fetched[0] == fetched[1]

    def test_lookups_by_time_skip_only_aborted_records(self, logs):
        arrow, parquet = logs
        remaining = {offset: each["timestamp"] for offset, each in records_of(parquet.scan(0))}
        for time_us in range(START_US - 500, START_US + 500_000, 17_500):
            expected = next(
                ((offset, at_us) for offset, at_us in remaining.items() if at_us >= time_us),
                None,
            )
            assert parquet.offset_for_time(time_us) == expected
            if expected is not None:
                assert arrow.offset_for_time(time_us)[0] <= expected[0]

    def test_producers_and_transactions_are_equal(self, logs):
        arrow, parquet = logs
        told = [
            [(id_, replace(entry, appended_us=0)) for id_, entry in log.producers().entries()]
            for log in (arrow, parquet)
        ]
        assert told[0] == told[1]
        assert arrow.transactions().open == parquet.transactions().open

    def test_both_are_sound(self, logs):
        assert [errors(log) for log in logs] == [[], []]


class TestProducers:
    def test_a_late_retry_is_recognised_by_the_headers_of_a_parquet_file(self, clock):
        store = MemoryStore("memory://retry", clock)
        log = open_log(store, clock=clock, **DELTA, merge_tail_segments=0)
        first = log.append(numbered(0, 3), producer=ProducerAppend(7, 0, 0))
        log.append(numbered(3, 2), producer=ProducerAppend(7, 0, 3))
        PartitionCleaner(log, table_at_once=True).clean()
        again = open_log(store, clock=clock, **DELTA)
        assert kinds(again) == [True]
        info = again.append(numbered(0, 3), producer=ProducerAppend(7, 0, 0))
        assert (info.base_offset, info.is_duplicate) == (first.base_offset, True)
        assert again.observe().log_end_offset == 5

    def test_and_so_is_one_of_an_aborted_transaction(self, clock):
        store = MemoryStore("memory://aborted-retry", clock)
        log = open_log(store, clock=clock, **DELTA, merge_tail_segments=0)
        append = ProducerAppend(7, 0, 0, is_transactional=True)
        log.append(numbered(0, 3), producer=append)
        before = list(log.producers().entries())
        log.append_markers([EndTransactionMarker(8, 1, is_committed=False)])
        assert before[0][1].runs
        log.append_markers([EndTransactionMarker(7, 1, is_committed=False)])
        expected = list(open_log(store, clock=clock).producers().entries())
        PartitionCleaner(log, table_at_once=True).clean()
        for name in file_names(store):
            if name.endswith(".snapshot"):
                store.delete(f"{DIRECTORY}/{name}")
        found = list(open_log(store, clock=clock).producers().entries())
        assert [(id_, entry.epoch, entry.runs) for id_, entry in found] == [
            (id_, entry.epoch, entry.runs) for id_, entry in expected
        ]


class TestCleaning:
    def log_of(self, store, clock, *, appends=20, **config):
        log = open_log(store, clock=clock, merge_tail_segments=0, **{**DELTA, **config})
        for number in range(appends):
            log.append(numbered(2 * number, 2))
        return log

    def test_a_segment_is_cold_when_its_file_is_older_than_the_interval(self, clock):
        store = MemoryStore("memory://cold", clock)
        log = self.log_of(store, clock, table_commit_interval_ms=300_000)
        clock.advance_ms(299_000)
        PartitionCleaner(log).clean()
        assert kinds(log) == [False]
        clock.advance_ms(290_000)
        PartitionCleaner(log).clean()
        assert kinds(log) == [False], "the merged file is new"
        clock.advance_ms(20_000)
        PartitionCleaner(log).clean()
        assert names(log) == [SegmentName(0, 39, 2, is_parquet=True)]
        assert values(log) == [(n, b"record:%d" % n) for n in range(40)]

    def test_what_is_new_is_merged_into_arrow_files_beside_it(self, clock):
        store = MemoryStore("memory://beside", clock)
        log = self.log_of(store, clock)
        clock.advance_ms(400_000)
        PartitionCleaner(log).clean()
        for number in range(10):
            log.append(numbered(40 + number, 1))
        PartitionCleaner(log).clean()
        assert kinds(log) == [True, False]
        clock.advance_ms(400_000)
        PartitionCleaner(log).clean()
        assert kinds(log) == [True, True]
        assert values(log) == [(n, b"record:%d" % n) for n in range(50)]

    def test_parquet_files_are_merged_like_others(self, clock):
        store = MemoryStore("memory://levels", clock)
        log = open_log(store, clock=clock, merge_tail_segments=0, **DELTA)
        for number in range(12):
            log.append(numbered(number, 1))
            PartitionCleaner(log, table_at_once=True).clean()
        assert all(kinds(log))
        assert len(kinds(log)) < 8
        assert values(log) == [(n, b"record:%d" % n) for n in range(12)]

    def test_one_large_segment_is_converted_alone(self, clock):
        store = MemoryStore("memory://alone", clock)
        log = self.log_of(store, clock, appends=1)
        PartitionCleaner(log, table_at_once=True).clean()
        assert names(log) == [SegmentName(0, 1, 1, is_parquet=True)]
        again = PartitionCleaner(log, table_at_once=True).clean()
        assert (again.merged_into, names(log)) == (0, [SegmentName(0, 1, 1, is_parquet=True)])

    def test_nothing_behind_the_high_watermark_is_converted(self, clock):
        store = MemoryStore("memory://limit", clock)
        log = self.log_of(store, clock)
        PartitionCleaner(log, table_at_once=True, limit_offset=10).clean()
        assert names(log)[0] == SegmentName(0, 9, 1, is_parquet=True)
        assert not any(kinds(log)[1:])

    def test_a_plan_counts_what_would_be_converted(self, clock):
        store = MemoryStore("memory://plan", clock)
        log = self.log_of(store, clock, appends=3)
        report = PartitionCleaner(log, table_at_once=True).plan()
        assert (report.merged_segments, report.merged_into) == (3, 1)
        assert kinds(log) == [False] * 3

    def test_turned_off_new_merges_are_arrow_files_and_parquet_is_read(self, clock):
        store = MemoryStore("memory://off", clock)
        self.log_of(store, clock)
        log = open_log(store, clock=clock, **DELTA)
        PartitionCleaner(log, table_at_once=True).clean()
        off = open_log(store, clock=clock, retention_ms=-1, merge_tail_segments=0)
        for number in range(20):
            off.append(numbered(40 + number, 1))
        PartitionCleaner(off, table_at_once=True).clean()
        assert not kinds(off)[-1]
        assert values(off) == [(n, b"record:%d" % n) for n in range(60)]
        again = open_log(store, clock=clock, **DELTA)
        PartitionCleaner(again, table_at_once=True).clean()
        assert all(kinds(again))
        assert values(again) == [(n, b"record:%d" % n) for n in range(60)]

    def test_a_parquet_name_is_freed_only_if_the_table_allows_it(self, clock):
        store = MemoryStore("memory://free", clock)
        log = open_log(store, clock=clock, merge_tail_segments=0, **DELTA)
        for number in range(8):
            log.append(numbered(number, 1))
            PartitionCleaner(log, table_at_once=True).clean()
        spent = SegmentName(0, 0, 1, is_parquet=True)
        assert spent not in names(log)
        clock.advance_ms(120_000)
        asked: list[SegmentName] = []

        def refuses(name):
            asked.append(name)
            return False

        PartitionCleaner(log, table_at_once=True, table_allows=refuses).clean()
        assert spent in asked
        assert spent.file_name in file_names(store)
        assert all(name.is_parquet for name in asked)
        PartitionCleaner(log, table_at_once=True).clean()
        assert spent.file_name not in file_names(store)

    def test_an_appender_neither_merges_a_parquet_segment_nor_frees_its_name(self, clock):
        store = MemoryStore("memory://appender", clock)
        self.log_of(store, clock, appends=2)
        PartitionCleaner(open_log(store, clock=clock, **DELTA), table_at_once=True).clean()
        (cold,) = names(open_log(store, clock=clock))
        log = open_log(store, clock=clock, merge_tail_segments=2, **DELTA)
        for number in range(20):
            log.append(numbered(4 + number, 1))
            clock.advance_ms(61_000)
        assert names(log)[0] == cold
        assert [name.generation for name in names(log)][1] > 0
        assert values(log) == [(n, b"record:%d" % n) for n in range(24)]

    def test_retention_removes_parquet_segments(self, clock):
        store = MemoryStore("memory://retention", clock)
        self.log_of(store, clock, appends=3)
        PartitionCleaner(open_log(store, clock=clock, **DELTA), table_at_once=True).clean()
        log = open_log(store, clock=clock, table_format="delta", retention_ms=1_000)
        log.append(numbered(10_000, 1))
        RetentionAt(log, START_US + 9_000_000).clean()
        assert log.observe().log_start_offset == 6
        clock.advance_ms(120_000)
        PartitionCleaner(open_log(store, clock=clock, **DELTA)).clean()
        assert not any(name.endswith("5.1.parquet") for name in file_names(store))


class TestCompaction:
    def append(self, log, clock, first, *keys):
        rows = [
            row(None if key < 0 else b"v%d" % number, b"k%d" % abs(key), timestamp=START_US)
            for number, key in enumerate(keys, first)
        ]
        log.append(record_batch(rows))
        clock.advance_ms(1)

    def test_compactions_write_parquet_and_compact_it_again(self, clock):
        stores = [MemoryStore(f"memory://compact-{kind}", clock) for kind in ("none", "delta")]
        logs = [
            open_log(store, clock=clock, **{**COMPACT, "table_format": kind})
            for store, kind in zip(stores, ("none", "delta"), strict=True)
        ]
        first = 0
        for _ in range(4):
            for keys in ((1, 2, 3), (2, -4, 5), (4, 6)):
                for log in logs:
                    self.append(log, clock, first, *keys)
                first += len(keys)
            clock.advance_ms(61_000)
            for log in logs:
                assert compact(log, now_us=clock.time_us()).segments_written
            told = [values_of(log.scan(0)) for log in logs]
            assert told[0] == told[1]
            assert [errors(log) for log in logs] == [[], []]
        assert kinds(logs[1]) == [True, False], "the last segment is not compacted yet"
        assert kinds(logs[0]) == [False, False]

    def test_a_log_that_was_compacted_before_is_written_as_parquet_once(self, clock):
        store = MemoryStore("memory://compact-before", clock)
        off = open_log(store, clock=clock, **{**COMPACT, "table_format": "none"})
        for keys in ((1, 2), (1, 3), (4,)):
            self.append(off, clock, 0, *keys)
        clock.advance_ms(61_000)
        PartitionCleaner(off).clean()
        assert kinds(off) == [False, False]
        before = values(off)
        on = open_log(store, clock=clock, **{**COMPACT, "min_cleanable_dirty_ratio": 0.9})
        clock.advance_ms(61_000)
        assert PartitionCleaner(on).plan().compacted_bytes
        PartitionCleaner(on).clean()
        assert (kinds(on), values(on)) == ([True, False], before)
        clock.advance_ms(61_000)
        generations = [name.generation for name in names(on)]
        PartitionCleaner(on).clean()
        assert [name.generation for name in names(on)] == generations

    def test_tombstones_and_markers_are_removed_after_their_time(self, clock):
        stores = [MemoryStore(f"memory://tombs-{kind}", clock) for kind in ("none", "delta")]
        told = []
        for store, kind in zip(stores, ("none", "delta"), strict=True):
            log = open_log(
                store,
                clock=clock,
                **{**COMPACT, "table_format": kind, "delete_retention_ms": 100_000},
            )
            producer = ProducerAppend(7, 0, 0, is_transactional=True)
            log.append(record_batch([row(b"a", b"k1")]), producer=producer)
            log.append_markers([EndTransactionMarker(7, 1, is_committed=True)])
            self.append(log, clock, 2, 1, -1, 2)
            self.append(log, clock, 5, 3)
            steps = []
            for _ in range(4):
                clock.advance_ms(61_000)
                PartitionCleaner(log).clean()
                (first, *_) = names(log)
                control = sum(
                    header.is_control and header.record_count
                    for _, headers in log.files.open(first).all_headers()
                    for header in headers
                )
                steps.append((values_of(log.scan(0)), control))
                assert errors(log) == []
            assert kinds(log)[0] == (kind == "delta")
            told.append(steps)
        assert told[0] == told[1]
        assert told[0][0] != told[0][-1], "something was removed"


class TestDamage:
    def test_a_cut_or_missing_file_is_an_error_that_names_it_and_never_the_end(self, clock):
        store = MemoryStore("memory://cut", clock)
        log = open_log(store, clock=clock, merge_tail_segments=0, **DELTA)
        for number in range(8):
            log.append(numbered(number, 1))
        PartitionCleaner(log, table_at_once=True).clean()
        (name,) = names(log)
        content = store.open_buffer(f"{DIRECTORY}/{name.file_name}")
        for length in (0, 4, 7, 100, content.size - 9, content.size - 1):
            for is_mapped in (True, False):
                store.put(f"{DIRECTORY}/{name.file_name}", content.slice(0, length))
                hooked = HookedStore(store, is_mapped=is_mapped)
                with pytest.raises(CorruptRecordError) as caught:
                    values(open_log(hooked, clock=clock))
                assert caught.value.path.endswith(name.file_name)
                assert name.file_name in caught.value.message
        found = list(Verifier(open_log(store, clock=clock)).findings())
        assert any(name.file_name in each.path for each in found)
        put_bytes(store, content, name)
        assert len(values(open_log(store, clock=clock))) == 8

    def test_verify_compares_what_only_other_programs_read(self, clock):
        stored = ParquetSegmentWriter._stored  # noqa: SLF001 - a writer with a fault

        def shifted(writer, rows):
            batch = stored(writer, rows)
            offsets = pc.add(batch.column("offset"), 5)
            return batch.set_column(0, batch.schema.field(0), offsets)

        wrong: dict[str, Any] = {
            "offset": mock.patch.object(ParquetSegmentWriter, "_stored", shifted),
            "statistics": mock.patch.dict(WRITER_OPTIONS, write_statistics=["offset"]),
        }
        for what, patched in wrong.items():
            store = MemoryStore(f"memory://others-{what}", clock)
            log = open_log(store, clock=clock, merge_tail_segments=0, **DELTA)
            log.append(numbered(0, 8))
            with patched:
                PartitionCleaner(log, table_at_once=True).clean()
            assert len(values(log)) == 8
            (finding,) = errors(log)
            assert what in finding.message
