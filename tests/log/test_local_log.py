"""One partition's log: appends and reads, by one process and by several."""

import multiprocessing
import signal
import subprocess
import sys
import threading
import tracemalloc
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_log.errors import (
    CorruptRecordError,
    InvalidRecordError,
    LogEndOffsetMismatchError,
    OffsetOutOfRangeError,
    StorageError,
    StorageFullError,
)
from spark_log.log import LocalLog, LogAppendInfo
from spark_log.log.files.file_names import SegmentName
from spark_log.storage.local import LocalStore
from spark_log.storage.memory import MemoryStore
from spark_log.util.suppressed import SuppressedErrors
from tests.log.support import (
    DIRECTORY,
    TOPIC_ID,
    HookedStore,
    Part,
    failing,
    file_names,
    free,
    merge,
    move_start,
    open_log,
    put_bytes,
    put_segment,
    records_of,
    segment_bytes,
    values,
    values_of,
)
from tests.record.samples import START_US, numbered, record_batch, row, row_lists
from tests.storage.full_disk import DISKS

PROJECT = Path(__file__).parents[2]


@pytest.fixture(params=["local_store", "memory_store"])
def store(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def log(store):
    return open_log(store)


def expected_values(first, last, mark="record"):
    return [(offset, f"{mark}:{offset}".encode()) for offset in range(first, last)]


# --- one process ---------------------------------------------------------------------------------


class TestAppend:
    def test_appends_take_the_offsets_one_after_the_other(self, log):
        assert log.append(numbered(0, 3)) == LogAppendInfo(0, 2)
        assert log.append(numbered(3, 1)) == LogAppendInfo(3, 3)
        assert log.append([numbered(4, 2), numbered(6, 2)]) == LogAppendInfo(4, 7)
        assert log.observe().log_end_offset == 8
        assert values(log) == expected_values(0, 8)

    def test_an_append_is_one_segment_under_the_name_of_its_base_offset(self, store, log):
        log.append(numbered(0, 3))
        log.append([numbered(3, 2), numbered(5, 1)])
        assert file_names(store) == [SegmentName(0).file_name, SegmentName(3).file_name]

    def test_the_appended_records_are_visible_to_any_other_handle_at_once(self, store, log):
        other = open_log(store)
        for number in range(4):
            log.append(numbered(number, 1))
            assert other.observe().log_end_offset == number + 1
            assert values(other)[-1] == (number, f"record:{number}".encode())

    def test_a_new_handle_goes_on_where_the_log_ends(self, store):
        for number in range(3):
            assert open_log(store).append(numbered(number, 1)).base_offset == number

    @pytest.mark.parametrize("fails_at", [0, 1, 2])
    def test_an_error_while_records_are_made_appends_nothing(self, store, log, fails_at):
        def batches():
            for number in range(fails_at):
                yield numbered(number, 1)
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            log.append(batches())
        assert list(store.list(DIRECTORY)) == []
        assert log.observe().log_end_offset == 0

    @pytest.mark.parametrize(
        "records", [[], [record_batch([])], [numbered(0, 1), record_batch([])]]
    )
    def test_no_records_or_none_in_a_batch_append_nothing(self, store, log, records):
        with pytest.raises(InvalidRecordError):
            log.append(records)
        assert file_names(store) == []
        assert log.append(numbered(0, 1)).base_offset == 0

    def test_nothing_but_segments_is_left_behind(self, local_store):
        log = open_log(local_store)
        log.append(numbered(0, 3))
        with pytest.raises(InvalidRecordError):
            log.append([numbered(0, 1), record_batch([])])
        open_log(local_store).append(numbered(3, 3))
        found = sorted(path.name for path in Path(local_store.url, DIRECTORY).iterdir())
        assert found == file_names(local_store)

    @pytest.mark.parametrize(
        ("topics", "writers", "used"),
        [
            ("producer", "none", "none"),
            ("producer", "zstd", "zstd"),
            ("lz4", "zstd", "lz4"),
            ("none", "zstd", "none"),
        ],
    )
    def test_the_topics_compression_goes_before_the_writers(
        self, memory_store, topics, writers, used
    ):
        batch = numbered(0, 50, value_bytes=1_000)
        open_log(memory_store, compression_type=topics).append(batch, compression=writers)
        expected = {
            compression: put_segment(
                memory_store, [batch], SegmentName(50 + at), compression=compression
            ).size_bytes
            for at, compression in enumerate(("none", "lz4", "zstd"))
        }
        assert len(set(expected.values())) == 3
        size = memory_store.head(f"{DIRECTORY}/{SegmentName(0).file_name}").size_bytes
        assert size == expected[used]

    @pytest.mark.parametrize("flush", [True, False])
    def test_the_topic_says_whether_appends_are_synced(self, memory_store, monkeypatch, flush):
        synced = []
        real = MemoryStore.put_if_absent

        def put_if_absent(self, path, source, *, sync=True):
            synced.append(sync)
            real(self, path, source, sync=sync)

        monkeypatch.setattr(MemoryStore, "put_if_absent", put_if_absent)
        open_log(memory_store, flush_on_append=flush).append(numbered(0, 1))
        assert synced == [flush]

    def test_indexes_are_written_where_the_segment_is_large_enough(self, store):
        log = open_log(store, index_interval_bytes=0)
        log.append([numbered(0, 1), numbered(1, 1), numbered(2, 1)])
        log.append([numbered(3, 1), numbered(4, 1), numbered(5, 1)])
        for base in (0, 3):
            name = SegmentName(base)
            assert {name.file_name, name.index, name.time_index} <= set(file_names(store))
        assert values(log) == expected_values(0, 6)
        assert values(log, 5) == expected_values(5, 6)

    def test_an_index_that_cannot_be_written_fails_no_append(self, memory_store):
        store = HookedStore(memory_store)
        store.on("put", failing(StorageError("no")))
        log = open_log(store, index_interval_bytes=0)
        assert log.append([numbered(0, 1), numbered(1, 1)]) == LogAppendInfo(0, 1)
        assert log.append(numbered(2, 1)) == LogAppendInfo(2, 2)
        assert len(store.called("put")) == 1, "the second segment is too small for one"
        assert values(log) == expected_values(0, 3)

    def test_an_error_behind_an_append_is_counted_and_logged_once(self, memory_store, caplog):
        store = HookedStore(memory_store)
        client = SuppressedErrors()
        log = open_log(
            store,
            suppressed=client,
            index_interval_bytes=0,
            merge_tail_segments=4,
            snapshot_interval_segments=2,
        )
        with caplog.at_level("WARNING", "spark_log.util.suppressed"):
            log.append([numbered(0, 1), numbered(1, 1)])
            assert (log.suppressed.counts(), caplog.messages) == ({}, [])
            store.on("put", failing(StorageError("no room")))
            store.on("stage", failing(StorageError("no room")))
            for first in range(2, 20, 2):
                store.hooks.pop("stage")
                writer = log.stager.segment_writer()
                writer.write(numbered(first, 1))
                writer.write(numbered(first + 1, 1))
                segment = writer.finish()
                store.on("stage", failing(StorageError("no room")))
                log.appender.append_segment(segment)
        assert values(log) == expected_values(0, 20)
        counts = log.suppressed.counts()
        assert counts["index"] == 9
        assert counts["tail merge"] >= 1
        assert counts["snapshot"] >= 3
        assert client.counts() == counts
        logged = [line for line in caplog.messages if line.startswith(DIRECTORY)]
        assert sorted(line.split(":")[1] for line in logged) == [
            " index failed and was skipped (StorageError",
            " snapshot failed and was skipped (StorageError",
            " tail merge failed and was skipped (StorageError",
        ]

    def test_a_damaged_index_or_snapshot_is_counted_and_not_used(self, memory_store, caplog):
        log = open_log(memory_store, index_interval_bytes=0)
        for first in (0, 200):
            log.append([numbered(at, 20) for at in range(first, first + 200, 20)])
        log.snapshots.write()
        for name in file_names(memory_store):
            if name.endswith(("index", ".snapshot")):
                memory_store.put(f"{DIRECTORY}/{name}", b"nothing")
        again = open_log(HookedStore(memory_store, is_mapped=False), index_interval_bytes=0)
        with caplog.at_level("WARNING", "spark_log.util.suppressed"):
            assert again.segments(again.observe())[0][0].record_count == 200
            assert again.offset_for_time(START_US + 350_000) == (350, START_US + 350_000)
        assert again.suppressed.counts().keys() == {"index", "snapshot"}
        assert len([line for line in caplog.messages if line.startswith(DIRECTORY)]) == 2

    @given(st.lists(st.lists(row_lists, min_size=1, max_size=3), min_size=1, max_size=4))
    def test_appended_records_are_read_back(self, appends):
        store = MemoryStore("log-fields")
        store.delete_directory(DIRECTORY)
        log = open_log(store)
        for append in appends:
            log.append([record_batch(each) for each in append])
        all_rows = [each for append in appends for batch in append for each in batch]
        assert records_of(log.scan(0)) == list(enumerate(all_rows))


class TestConditionalAppend:
    def test_it_appends_at_exactly_the_expected_offset(self, log):
        assert log.append(numbered(0, 2), expected_end_offset=0) == LogAppendInfo(0, 1)
        assert log.append(numbered(2, 1), expected_end_offset=2) == LogAppendInfo(2, 2)

    @pytest.mark.parametrize("expected", [0, 1, 3, 100])
    @pytest.mark.parametrize("fresh", [True, False])
    def test_elsewhere_it_appends_nothing_and_the_error_has_the_end(self, store, expected, fresh):
        log = open_log(store)
        log.append(numbered(0, 2))
        handle = open_log(store) if fresh else log
        with pytest.raises(LogEndOffsetMismatchError) as caught:
            handle.append(numbered(2, 1), expected_end_offset=expected)
        assert (caught.value.expected, caught.value.actual) == (expected, 2)
        assert caught.value.retriable
        assert values(log) == expected_values(0, 2)
        assert handle.append(numbered(2, 1), expected_end_offset=2) == LogAppendInfo(2, 2)

    def test_a_log_that_knows_an_older_end_lists_again_before_it_refuses(self, store):
        behind, ahead = open_log(store), open_log(store)
        behind.append(numbered(0, 1))
        ahead.append(numbered(1, 1))
        assert behind.append(numbered(2, 1), expected_end_offset=2) == LogAppendInfo(2, 2)

    def test_when_another_writer_is_first_nothing_is_appended(self, memory_store):
        store = HookedStore(memory_store)

        def come_first(path, call):
            open_log(memory_store).append(numbered(0, 5, mark="other"))
            call()

        store.once("put_if_absent", come_first)
        with pytest.raises(LogEndOffsetMismatchError) as caught:
            open_log(store).append(numbered(0, 1), expected_end_offset=0)
        assert (caught.value.expected, caught.value.actual) == (0, 5)
        assert values(open_log(memory_store)) == expected_values(0, 5, "other")

    def test_of_many_at_once_exactly_one_succeeds(self, store):
        barrier = threading.Barrier(8)

        def append(mark):
            log = open_log(store)
            barrier.wait(timeout=60)
            try:
                log.append(numbered(0, 2, mark=mark), expected_end_offset=0)
            except LogEndOffsetMismatchError:
                return None
            return mark

        with ThreadPoolExecutor(8) as pool:
            winners = [mark for mark in pool.map(append, map(str, range(8))) if mark]
        assert len(winners) == 1
        assert values(open_log(store)) == expected_values(0, 2, winners[0])


class TestRead:
    @pytest.fixture
    def log(self, store):
        """Offsets 0 to 11 in four segments, one of them of several batches."""
        log = open_log(store)
        for batches in ([(0, 3)], [(3, 1)], [(4, 2), (6, 1), (7, 2)], [(9, 3)]):
            log.append([numbered(first, count) for first, count in batches])
        return log

    def test_any_range_is_read_across_segments(self, log):
        for first in range(13):
            assert values(log, first) == expected_values(first, 12)
            for last in range(15):
                expected = expected_values(first, min(last, 12))
                assert values_of(log.scan(first, last)) == expected

    @pytest.mark.parametrize("offset", [-1, 13, 10**12])
    def test_an_offset_out_of_range_is_refused_with_the_range(self, log, offset):
        for read in (lambda: list(log.scan(offset)), lambda: log.read(offset)[0]):
            with pytest.raises(OffsetOutOfRangeError) as caught:
                read()
            assert caught.value.offset == offset
            assert (caught.value.log_start_offset, caught.value.log_end_offset) == (0, 12)

    def test_at_the_logs_end_there_is_nothing_yet(self, log):
        assert list(log.scan(12)) == []
        assert log.read(12)[0] == []

    def test_an_empty_log_begins_and_ends_at_0(self, store):
        log = open_log(store)
        assert (log.observe().log_start_offset, log.observe().log_end_offset) == (0, 0)
        assert log.read(0)[0] == []
        assert log.offset_for_time(0) is None
        with pytest.raises(OffsetOutOfRangeError):
            log.read(1)

    def test_a_scan_ends_where_the_log_ended_when_it_began(self, store, log):
        scan = log.scan(0)
        first = next(scan)
        open_log(store).append(numbered(12, 5))
        assert values_of([first, *scan]) == expected_values(0, 12)

    def test_a_scan_to_a_later_end_does_not_wait_for_it(self, log):
        assert values_of(log.scan(10, 1_000)) == expected_values(10, 12)

    def test_columns_and_checks_are_handed_down(self, store, log):
        batches = list(log.scan(2, columns=["value"]))
        assert {tuple(batch.records.schema.names) for batch in batches} == {("value",)}
        assert log.read(2, columns=["key"])[0][0].records.schema.names == ["key"]
        path = f"{DIRECTORY}/{SegmentName(3).file_name}"
        content = store.open_buffer(path).to_pybytes().replace(b"record:3", b"record;3")
        store.put(path, content)
        for read in (lambda **kw: list(log.scan(0, **kw)), lambda **kw: log.read(0, **kw)[0]):
            with pytest.raises(CorruptRecordError) as caught:
                read()
            assert caught.value.path == path
            assert len(values_of(read(check_crcs=False))) == 12

    @pytest.mark.parametrize("marks", [0, 1])
    def test_control_records_take_offsets_and_are_not_handed_out(self, memory_store, marks):
        parts = [
            [Part([row(b"a")]), Part([row(b"marker")], attributes=1 << 5)],
            [Part([row(b"b")])],
        ]
        put_bytes(memory_store, segment_bytes(parts[marks:] or parts))
        log = open_log(memory_store)
        expected = [(0, b"a"), (2, b"b")] if marks == 0 else [(0, b"b")]
        assert values(log) == values_of(log.read(0)[0]) == expected

    def test_fetch_stops_before_it_exceeds_its_bytes(self, store):
        log = open_log(store)
        for number in range(6):
            log.append(numbered(number, 1, value_bytes=1_000))
        sizes = [batch.stored_bytes for batch in log.read(0)[0]]
        assert len(sizes) == 6
        for count in range(1, 7):
            assert len(log.read(0, sum(sizes[:count]))[0]) == count
            assert len(log.read(0, sum(sizes[:count]) + sizes[0] - 1)[0]) == count

    @pytest.mark.parametrize("max_bytes", [0, 1])
    def test_fetch_gives_the_first_batch_however_large(self, log, max_bytes):
        assert values_of(log.read(4, max_bytes)[0]) == expected_values(4, 6)


class TestStartOfTheLog:
    @pytest.fixture
    def log(self, store):
        log = open_log(store)
        for first in (0, 5, 10):
            log.append(numbered(first, 5))
        return log

    @pytest.mark.parametrize(("start", "base"), [(1, 0), (4, 0), (5, 5), (7, 5), (14, 10)])
    def test_the_log_begins_at_the_marker_also_within_a_segment(self, store, log, start, base):
        move_start(store, start, base)
        for handle in (log, open_log(store)):
            assert handle.observe().log_start_offset == start
            assert values(handle) == expected_values(start, 15)
            with pytest.raises(OffsetOutOfRangeError) as caught:
                handle.read(start - 1)
            assert caught.value.log_start_offset == start
        assert log.append(numbered(15, 1)).base_offset == 15

    def test_segments_below_it_may_be_deleted(self, store, log):
        move_start(store, 12, 10)
        free(store, SegmentName(0), SegmentName(5))
        assert values(log) == expected_values(12, 15)

    def test_an_emptied_log_keeps_its_end_and_goes_on_there(self, store, log):
        move_start(store, 15, 15)
        free(store, SegmentName(0), SegmentName(5), SegmentName(10))
        for handle in (log, open_log(store)):
            assert (handle.observe().log_start_offset, handle.observe().log_end_offset) == (15, 15)
            assert handle.read(15)[0] == []
        assert open_log(store).append(numbered(15, 2)) == LogAppendInfo(15, 16)
        assert values(log) == expected_values(15, 17)

    def test_a_marker_without_any_segment_is_an_empty_log_too(self, store):
        move_start(store, 7, 7)
        assert open_log(store).append(numbered(7, 1)).base_offset == 7

    def test_time_is_not_found_below_it(self, store, log):
        move_start(store, 7, 5)
        assert log.offset_for_time(0) == (7, START_US + 7_000)


class TestOffsetForTime:
    times = st.lists(st.integers(-20, 20), min_size=1, max_size=5)

    @given(st.lists(times, min_size=1, max_size=6), st.sampled_from([0, 10_000]), st.data())
    def test_is_the_first_record_that_is_not_earlier_over_all_segments(
        self, appends, interval, data
    ):
        store = MemoryStore("log-times")
        store.delete_directory(DIRECTORY)
        log = open_log(store, index_interval_bytes=interval)
        for seconds in appends:
            log.append([record_batch([row(timestamp=each)]) for each in seconds])
        times_us = [each for seconds in appends for each in seconds]
        if data.draw(st.booleans()):
            bases = [0]
            for seconds in appends:
                bases.append(bases[-1] + len(seconds))
            merge(store, 0, data.draw(st.sampled_from(bases[1:])))
        start = data.draw(st.integers(0, len(times_us) - 1))
        if start:
            base = max(
                name.base_offset
                for name in map(SegmentName.parse, file_names(store))
                if name and not name.generation and name.base_offset <= start
            )
            move_start(store, start, base)
        for asked in range(-21, 22):
            hits = [at for at in range(start, len(times_us)) if times_us[at] >= asked]
            expected = (hits[0], times_us[hits[0]]) if hits else None
            assert log.offset_for_time(asked) == expected


# --- several processes ---------------------------------------------------------------------------


class TestManyWriters:
    def check(self, store, acknowledged):
        """Offsets are dense, and each record is in the log once, at its acknowledged offset."""
        found = values(open_log(store))
        assert [offset for offset, _ in found] == list(range(len(found)))
        expected = {
            info.base_offset + at: f"{mark}:{at}".encode()
            for mark, info in acknowledged.items()
            for at in range(info.last_offset - info.base_offset + 1)
        }
        assert dict(found) == expected

    def test_threads_lose_nothing_and_double_nothing(self, store):
        barrier = threading.Barrier(8)

        def append(writer):
            log = open_log(store)  # a handle is for one thread at a time
            barrier.wait(timeout=60)
            marks = [f"{writer}/{number}" for number in range(20)]
            return {
                mark: log.append(numbered(0, 1 + number % 3, mark=mark))
                for number, mark in enumerate(marks)
            }

        with ThreadPoolExecutor(8) as pool:
            acknowledged: dict[int, Any] = {}
            for part in pool.map(append, range(8)):
                acknowledged |= part
        assert len(acknowledged) == 160
        self.check(store, acknowledged)

    def test_processes_lose_nothing_and_double_nothing(self, local_store):
        context = multiprocessing.get_context("spawn")
        barrier = context.Barrier(2)
        with ProcessPoolExecutor(2, context, meet_at, (barrier,)) as pool:
            futures = [pool.submit(append_many, local_store, writer, 40) for writer in range(2)]
            acknowledged: dict[int, Any] = {}
            for future in futures:
                acknowledged |= future.result(timeout=120)
        assert len(acknowledged) == 80
        self.check(local_store, acknowledged)

    def test_readers_see_a_prefix_at_any_moment(self, store):
        done = threading.Event()

        def write():
            try:
                log = open_log(store)
                for number in range(60):
                    log.append(numbered(number, 1))
            finally:
                done.set()

        def read():
            longest = 0
            while True:
                last_look = done.is_set()
                found = values(open_log(store))
                assert found == expected_values(0, len(found))
                assert len(found) >= longest
                longest = len(found)
                if last_look:
                    return longest

        with ThreadPoolExecutor(3) as pool:
            writing, *reading = [pool.submit(write), pool.submit(read), pool.submit(read)]
            writing.result()
            assert [reader.result() for reader in reading] == [60, 60]

    def test_a_killed_writer_leaves_its_acknowledged_appends_and_at_most_one_more(
        self, local_store
    ):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITE_FOREVER, local_store.url],
            cwd=PROJECT,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        acknowledged = [process.stdout.readline() for _ in range(40)]
        process.send_signal(signal.SIGKILL)
        acknowledged += process.stdout.readlines()
        assert process.wait(timeout=60) == -signal.SIGKILL
        told = [line for line in acknowledged if line.endswith("\n")]
        found = values(open_log(local_store))
        assert found == expected_values(0, len(found))
        assert len(found) in (2 * len(told), 2 * len(told) + 2)
        assert open_log(local_store).append(numbered(0, 1)).base_offset == len(found)


process_barrier: Any = None


def meet_at(barrier):
    global process_barrier  # noqa: PLW0603 - the only way to hand a barrier to a pool's process
    process_barrier = barrier


def append_many(store, writer, count):
    log = open_log(store)
    process_barrier.wait(timeout=60)
    return {
        f"{writer}/{number}": log.append(numbered(0, 1 + number % 3, mark=f"{writer}/{number}"))
        for number in range(count)
    }


WRITE_FOREVER = """
import itertools, sys
from spark_log.storage.local import LocalStore
from tests.log.support import open_log
from tests.record.samples import numbered

log = open_log(LocalStore(sys.argv[1]), flush_on_append=True)
for number in itertools.count():
    print(log.append(numbered(2 * number, 2)).base_offset, flush=True)
"""


# --- files that appear and disappear -------------------------------------------------------------


class TestRewrittenMeanwhile:
    @pytest.fixture
    def log(self, store):
        log = open_log(store)
        for first in (0, 5, 10, 15):
            log.append([numbered(first, 2), numbered(first + 2, 3)])
        return log

    PLAIN = tuple(SegmentName(first) for first in (0, 5, 10, 15))

    @pytest.mark.parametrize("after", range(8))
    @pytest.mark.parametrize("merges", [[(0, 20)], [(0, 10), (10, 20)], [(5, 15)]])
    def test_a_scan_goes_on_in_the_replacement_of_a_file_that_is_gone(
        self, store, log, after, merges
    ):
        scan = log.scan(0)
        batches = [next(scan) for _ in range(after)]
        for base, end in merges:
            merge(store, base, end)
            covered = [name for name in self.PLAIN if base <= name.base_offset < end]
            free(store, *covered)
        assert values_of([*batches, *scan]) == expected_values(0, 20)

    def test_time_is_found_in_the_replacement(self, memory_store):
        log = open_log(memory_store)
        for first in (0, 5, 10):
            log.append(numbered(first, 5))
        store = HookedStore(memory_store)

        def replace(path, call):
            merge(memory_store, 0, 15)
            free(memory_store, *(SegmentName(first) for first in (0, 5, 10)))
            return call()

        store.once("open_buffer", replace)
        found = open_log(store).offset_for_time(START_US + 7_000)
        assert found == (7, START_US + 7_000)

    def test_time_is_found_although_the_start_moves_on_meanwhile(self, memory_store):
        log = open_log(memory_store)
        for first in (0, 5, 10):
            log.append(numbered(first, 5))
        store = HookedStore(memory_store)
        opened = iter(range(3))

        def trim(path, call):
            if next(opened, None) == 1:  # the end is known; the search begins
                move_start(memory_store, 7, 5)
                free(memory_store, SegmentName(0))
            return call()

        store.on("open_buffer", trim)
        assert open_log(store).offset_for_time(START_US + 1_000) == (7, START_US + 7_000)

    def test_a_scan_that_the_logs_start_overtook_raises(self, store, log):
        scan = log.scan(0)
        next(scan)
        move_start(store, 16, 15)
        free(store, *self.PLAIN[:3])
        with pytest.raises(OffsetOutOfRangeError) as caught:
            list(scan)
        assert (caught.value.offset, caught.value.log_start_offset) == (5, 16)

    def test_the_end_is_found_although_the_last_file_is_replaced_meanwhile(self, memory_store):
        open_log(memory_store).append(numbered(0, 5))
        store = HookedStore(memory_store)

        def replace(path, call):
            merge(memory_store, 0, 5)
            free(memory_store, SegmentName(0))
            return call()

        store.once("open_buffer", replace)
        assert open_log(store).observe().log_end_offset == 5

    def test_appends_go_on_behind_a_rewritten_segment(self, store, log):
        merge(store, 0, 20)
        free(store, *self.PLAIN)
        for handle in (log, open_log(store)):
            base = handle.observe().log_end_offset
            assert handle.append(numbered(base, 2)).base_offset == base
        assert values(log) == expected_values(0, 24)


class TestMissingSegment:
    """A lost file is an error for every reader, never a gap and never a shorter log."""

    @pytest.fixture
    def log(self, store):
        log = open_log(store)
        for first in (0, 5, 10, 15):
            log.append(numbered(first, 5))
        return log

    def test_in_the_middle_is_an_error_for_a_read_over_it(self, store, log):
        free(store, SegmentName(5))
        with pytest.raises(CorruptRecordError, match="missing") as caught:
            values(log)
        assert caught.value.path == f"{DIRECTORY}/{SegmentName(0).file_name}"
        assert values(log, 10) == expected_values(10, 20)

    def test_in_the_middle_is_an_error_for_a_lookup_by_time(self, store, log):
        free(store, SegmentName(5))
        with pytest.raises(CorruptRecordError):
            log.offset_for_time(START_US + 6_000)

    @pytest.mark.parametrize("lost", [0, 5, 10])
    def test_behind_a_rewritten_segment_or_at_the_start_it_does_not_shorten_the_log(
        self, store, log, lost
    ):
        if lost:
            merge(store, 0, lost)
            free(store, SegmentName(0), *([SegmentName(5)] if lost == 10 else []))
        free(store, SegmentName(lost))
        before = file_names(store)
        handle = open_log(store)
        for use in (
            handle.observe,
            lambda: handle.append(numbered(0, 5, mark="over")),
            lambda: values(handle, lost),
        ):
            with pytest.raises(CorruptRecordError):
                use()
        assert file_names(store) == before, "nothing was put in the place of what was lost"

    @pytest.mark.parametrize("left_out", [SegmentName(0), SegmentName(5), SegmentName(0, 4, 1)])
    def test_a_file_that_only_the_listing_left_out_is_not_missing(self, memory_store, left_out):
        """A listing may lack a file that appeared during it, and show a later one."""
        first = open_log(memory_store)
        for base in (0, 5, 10):
            first.append(numbered(base, 5))
        if left_out.generation:
            merge(memory_store, 0, 5)
            free(memory_store, SegmentName(0))
        store = HookedStore(memory_store)

        def leave_out(path, call):
            return [file for file in call() if file.name != left_out.file_name]

        for use, expected in (
            (lambda log: values(log, 0), expected_values(0, 15)),
            (lambda log: log.offset_for_time(START_US + 6_000), (6, START_US + 6_000)),
            (lambda log: log.append(numbered(15, 1)).base_offset, 15),
        ):
            store.once("list", leave_out)
            assert use(open_log(store)) == expected


# --- large appends and full disks ----------------------------------------------------------------


class TestConstantMemory:
    def test_appending_and_scanning_hold_a_batch_and_not_the_segment(self, local_store):
        """200 MB through a log with batches of 1 MB."""
        log = open_log(local_store)
        batch = numbered(0, 1_000, value_bytes=1_000)
        arrow_before, arrow_most = pa.total_allocated_bytes(), 0
        tracemalloc.start()

        def batches():
            nonlocal arrow_most
            for _ in range(200):
                arrow_most = max(arrow_most, pa.total_allocated_bytes())
                yield batch

        try:
            log.append(batches(), compression="lz4")
            log.append(batches())
            rows = 0
            for each in log.scan(0):
                rows += each.records.num_rows
                arrow_most = max(arrow_most, pa.total_allocated_bytes())
                del each
            _, python_most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert rows == 400_000
        assert arrow_most - arrow_before < 12_000_000
        assert python_most < 12_000_000


@pytest.fixture(params=DISKS)
def disk(request, tmp_path):
    with request.param(tmp_path / "disk") as disk:
        yield disk


class TestFullDisk:
    def test_an_append_leaves_nothing_and_the_log_works_on_when_there_is_room(self, disk):
        store = LocalStore(str(disk.path))
        log = open_log(store)
        log.append(numbered(0, 3))
        large = [numbered(3 + 100 * part, 100, value_bytes=1_000) for part in range(5)]
        with disk.full_but_for(200_000):
            with pytest.raises(StorageFullError) as caught:
                log.append(large)
            assert caught.value.retriable
            assert self.files(disk) == [SegmentName(0).file_name]
            assert values(log) == expected_values(0, 3)
            assert log.append(numbered(3, 1)).base_offset == 3, "a small one still fits"
        assert log.append(large) == LogAppendInfo(4, 503)
        assert [offset for offset, _ in values(log)] == list(range(504))
        assert self.files(disk) == [SegmentName(base).file_name for base in (0, 3, 4)]

    def test_wherever_the_space_runs_out_nothing_is_visible(self, tmp_path):
        """The limit moves through the whole file: schema, batches, footer."""
        store = LocalStore(str(tmp_path))
        segment = put_segment(store, [numbered(0, 9), numbered(9, 9)])
        size = segment.size_bytes
        free(store, SegmentName(0))
        with DISKS[0](tmp_path / "disk") as disk:
            log = open_log(LocalStore(str(disk.path)))
            for limit in [*range(0, size, 150), size - 1]:
                with disk.full_but_for(limit), pytest.raises(StorageFullError):
                    log.append([numbered(0, 9), numbered(9, 9)])
                assert self.files(disk) == []
            with disk.full_but_for(size):
                assert log.append([numbered(0, 9), numbered(9, 9)]) == LogAppendInfo(0, 17)

    def test_a_full_disk_for_the_index_fails_no_append(self, tmp_path, monkeypatch):
        store = LocalStore(str(tmp_path))
        monkeypatch.setattr(
            LocalStore,
            "put",
            lambda *args, **options: failing(StorageFullError("full"))(None, None),
        )
        log = open_log(store, index_interval_bytes=0)
        assert log.append([numbered(0, 1), numbered(1, 1)]) == LogAppendInfo(0, 1)

    def files(self, disk):
        """All files but the indexes, temporary ones included."""
        found = (disk.path / DIRECTORY).iterdir()
        return sorted(path.name for path in found if not path.name.endswith("index"))


def test_the_directory_of_another_partition_is_refused(store):
    open_log(store).append(numbered(0, 1))
    for topic_id, partition in (("another", 0), (TOPIC_ID, 1)):
        log = LocalLog(store, DIRECTORY, topic_id=topic_id, partition=partition)
        with pytest.raises(CorruptRecordError, match="belongs to topic id and partition"):
            log.observe()
        with pytest.raises(CorruptRecordError):
            log.append(numbered(1, 1))
