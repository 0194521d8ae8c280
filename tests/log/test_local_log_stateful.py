"""Random appends, merges, retention, deletions, lost answers and reads, compared with a list."""

import uuid
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from spark_log.errors import (
    LogEndOffsetMismatchError,
    OffsetOutOfRangeError,
    UnknownOutcomeError,
)
from spark_log.log import LogAppendInfo
from spark_log.log.clean import cleaner
from spark_log.log.clean.cleaner import PartitionCleaner
from spark_log.log.files.file_names import SegmentName
from spark_log.log.log_start import move_log_start
from spark_log.log.rewrite.merger import merge as merge_segments
from spark_log.record import NO_TIMESTAMP
from spark_log.storage.memory import MemoryStore
from spark_log.util.clock import ManualClock
from tests.log.support import (
    HookedStore,
    RetentionAt,
    done_but,
    failing,
    file_names,
    free,
    merge,
    move_start,
    open_log,
    records_of,
    values_of,
)
from tests.record.samples import record_batch, row
from tests.storage.emptying import delete_everything

LOST = UnknownOutcomeError("the answer was lost")

handles = st.integers(0, 2)
seconds = st.lists(st.integers(-30, 30), min_size=1, max_size=4)
appends = st.lists(seconds, min_size=1, max_size=3)


class LocalLogMachine(RuleBasedStateMachine):
    """Three clients of one log; the model is a list of rows, the start, and the segments' bases."""

    @initialize()
    def open(self):
        self.clock = ManualClock()
        self.inner = MemoryStore(uuid.uuid4().hex, self.clock)
        self.store = HookedStore(self.inner)
        self.logs = [
            open_log(
                self.store,
                clock=self.clock,
                index_interval_bytes=interval,
                merge_tail_segments=tail,
            )
            for interval, tail in ((0, 0), (700, 2), (4096, 3))
        ]
        self.rows = []
        self.start = 0
        self.edges = {0}
        self.appended = 0

    def teardown(self):
        if hasattr(self, "inner"):
            delete_everything(self.inner)

    def batches(self, append):
        """Batches of these timestamps; all values are distinct."""
        made: list[list[dict[str, Any]]] = []
        for batch in append:
            made.append([])
            for time_us in batch:
                self.appended += 1
                made[-1].append(row(b"%d" % self.appended, timestamp=time_us))
        return made

    def accept(self, batches, info):
        rows = [each for batch in batches for each in batch]
        assert info == LogAppendInfo(len(self.rows), len(self.rows) + len(rows) - 1)
        self.rows += rows
        self.edges.add(len(self.rows))

    # --- writing ---------------------------------------------------------------------------------

    @rule(handle=handles, append=appends)
    def append(self, handle, append):
        batches = self.batches(append)
        self.accept(batches, self.logs[handle].append(map(record_batch, batches)))

    @rule(handle=handles, append=appends, off_by=st.integers(-2, 2))
    def append_at(self, handle, append, off_by):
        batches, expected = self.batches(append), len(self.rows) + off_by
        records = [record_batch(batch) for batch in batches]
        if off_by == 0:
            self.accept(batches, self.logs[handle].append(records, expected_end_offset=expected))
            return
        with pytest.raises(LogEndOffsetMismatchError) as caught:
            self.logs[handle].append(records, expected_end_offset=expected)
        # An end that the log has passed is told without a listing: another handle may be further.
        known = caught.value.actual
        assert known == len(self.rows) or expected < known < len(self.rows)

    @rule(handle=handles, append=appends, took_effect=st.booleans())
    def append_and_lose_the_answer(self, handle, append, took_effect):
        batches = self.batches(append)
        self.logs[handle].observe()
        self.look_anew(handle)
        self.store.once("put_if_absent", done_but(LOST) if took_effect else failing(LOST))
        self.accept(batches, self.logs[handle].append(map(record_batch, batches)))

    def look_anew(self, handle):
        """Let a log list its end: an answer lost under a merged name would stay unknown."""
        with pytest.raises(LogEndOffsetMismatchError):
            self.logs[handle].append(record_batch([row()]), expected_end_offset=1 << 40)

    @rule(ms=st.sampled_from([1, 29_000, 31_000, 10_000_000]))
    def wait(self, ms):
        self.clock.advance_ms(ms)

    # --- other processes -------------------------------------------------------------------------

    @precondition(lambda self: self.start < len(self.rows))
    @rule(data=st.data(), generation=st.integers(1, 3))
    def merge(self, data, generation):
        edges = sorted({self.start, *(edge for edge in self.edges if edge > self.start)})
        first = data.draw(st.integers(0, len(edges) - 2))
        last = data.draw(st.integers(first + 1, len(edges) - 1))
        name = SegmentName(edges[first], edges[last] - 1, generation)
        if name.file_name not in file_names(self.inner):
            merge(self.inner, edges[first], edges[last], generation)

    @rule(data=st.data())
    def move_the_start(self, data):
        start = data.draw(st.integers(self.start, len(self.rows)))
        if start > self.start:
            below = max(edge for edge in self.edges if edge <= start)
            self.start = start
            move_start(self.inner, start, below)

    @rule()
    def free_what_is_spent(self):
        """Delete covered files after the delay: a client may still know their names."""
        self.clock.advance_ms(120_000)
        live = {segment.file.name for segment in self.logs[0].observe().live.segments}
        for file_name in file_names(self.inner):
            name = SegmentName.parse(file_name)
            if name and file_name not in live:
                free(self.inner, name)

    # --- rewriting -------------------------------------------------------------------------------

    @precondition(lambda self: self.start < len(self.rows))
    @rule(handle=handles, data=st.data(), is_parquet=st.booleans())
    def rewrite(self, handle, data, is_parquet):
        """Merge neighbouring segments of any kind into an Arrow or a Parquet file."""
        view = self.logs[handle].observe()
        count = len(view.live.segments)
        first = data.draw(st.integers(0, count - 1))
        last = data.draw(st.integers(first, count - 1))
        to_parquet = (lambda header, base_offset: False) if is_parquet else None
        merge_segments(self.logs[handle].files, view, first, last, to_parquet=to_parquet)

    @rule(handle=handles, data=st.data())
    def delete_records(self, handle, data):
        start = data.draw(st.integers(self.start, len(self.rows)))
        assert move_log_start(self.logs[handle], start) == start
        self.start = start

    @rule(
        fan_in=st.integers(2, 4),
        later_ms=st.sampled_from([0, 61_001]),
        table_format=st.sampled_from(["none", "delta"]),
    )
    def clean(self, fan_in, later_ms, table_format):
        self.clock.advance_ms(later_ms)
        log = open_log(self.store, clock=self.clock, retention_ms=-1, table_format=table_format)
        self.clean_with(log, fan_in, partial(PartitionCleaner, table_at_once=True))

    @precondition(lambda self: self.start < len(self.rows))
    @rule(fan_in=st.integers(2, 4), data=st.data(), later_us=st.integers(0, 1))
    def expire(self, fan_in, data, later_us):
        """Retention by time at a record's timestamp deletes the older segments."""
        times_us = [row["timestamp"] for row in self.rows[self.start :]]
        now_us = data.draw(st.sampled_from(times_us)) + later_us
        for base, end, _ in self.segments():
            latest_us = max(row["timestamp"] for row in self.rows[base:end])
            # Before NO_TIMESTAMP the time of the file counts, which is after all of these.
            if latest_us < NO_TIMESTAMP or latest_us >= now_us:
                break
            self.start = end
        log = open_log(self.store, clock=self.clock, retention_ms=0)
        self.clean_with(log, fan_in, partial(RetentionAt, at_us=now_us))

    @precondition(lambda self: self.start < len(self.rows))
    @rule(fan_in=st.integers(2, 4), data=st.data())
    def shrink(self, fan_in, data):
        """Retention by size: segments are deleted as long as enough bytes are left."""
        sizes = [size for _, _, size in self.segments()]
        edges = [sum(sizes[number:]) for number in range(len(sizes) + 1)]
        kept = max(0, data.draw(st.sampled_from(edges)) + data.draw(st.integers(-1, 1)))
        for number, (_, end, _) in enumerate(self.segments()):
            if sum(sizes[number + 1 :]) < kept:
                break
            self.start = end
        log = open_log(self.store, clock=self.clock, retention_ms=-1, retention_bytes=kept)
        self.clean_with(log, fan_in)

    def clean_with(self, log, fan_in, new_cleaner=PartitionCleaner):
        with patch.object(cleaner, "FAN_IN", fan_in):
            report = new_cleaner(log).clean()
        assert (report.log_start_offset, report.log_end_offset) == (self.start, len(self.rows))

    def segments(self):
        """First offset, end and size of each live file."""
        view = self.logs[0].observe()
        return [
            (
                segment.name.base_offset,
                segment.end_offset or view.log_end_offset,
                segment.file.size_bytes,
            )
            for segment in view.live.segments
        ]

    # --- reading ---------------------------------------------------------------------------------

    def live_rows(self):
        return list(enumerate(self.rows))[self.start :]

    @rule(handle=handles, data=st.data())
    def scan(self, handle, data):
        first = data.draw(st.integers(self.start, len(self.rows)))
        last = data.draw(st.none() | st.integers(first, len(self.rows) + 2))
        found = records_of(self.logs[handle].scan(first, last))
        assert found == list(enumerate(self.rows))[first:last]

    @rule(handle=handles, data=st.data(), max_bytes=st.integers(0, 2_000))
    def fetch(self, handle, data, max_bytes):
        first = data.draw(st.integers(self.start, len(self.rows)))
        batches = self.logs[handle].read(first, max_bytes)[0]
        found = records_of(batches)
        assert found == list(enumerate(self.rows))[first : first + len(found)]
        assert found or first == len(self.rows)
        assert sum(batch.stored_bytes for batch in batches[1:]) <= max_bytes

    @rule(handle=handles, by=st.integers(1, 3))
    def read_out_of_range(self, handle, by):
        for offset in (self.start - by, len(self.rows) + by):
            with pytest.raises(OffsetOutOfRangeError) as caught:
                list(self.logs[handle].scan(offset))
            assert caught.value.log_start_offset == self.start
            assert caught.value.log_end_offset == len(self.rows)

    @rule(handle=handles, asked=st.integers(-31, 31))
    def search_by_time(self, handle, asked):
        hits = [(at, row["timestamp"]) for at, row in self.live_rows() if row["timestamp"] >= asked]
        assert self.logs[handle].offset_for_time(asked) == next(iter(hits), None)

    @rule(handle=handles, append=appends, at=st.integers(1, 4))
    def scan_while_everything_is_merged(self, handle, append, at):
        scan = self.logs[handle].scan(self.start)
        batches = [batch for _, batch in zip(range(at), scan, strict=False)]
        expected = [(offset, row["value"]) for offset, row in self.live_rows()]
        if expected:
            name = SegmentName(self.start, len(self.rows) - 1, 9)
            if name.file_name not in file_names(self.inner):
                merge(self.inner, self.start, len(self.rows), 9)
            self.free_what_is_spent()
        assert values_of([*batches, *scan]) == expected

    @invariant()
    def the_log_is_the_list(self):
        if hasattr(self, "rows"):
            fresh = open_log(self.inner)
            assert fresh.observe().log_start_offset == self.start
            assert fresh.observe().log_end_offset == len(self.rows)
            assert records_of(fresh.scan(self.start)) == self.live_rows()


TestLocalLogStateful = LocalLogMachine.TestCase
TestLocalLogStateful.settings = settings(stateful_step_count=25)
