"""Any sequence of appends, merges, compactions, retention and deletions, against a dictionary."""

import uuid
from functools import partial
from typing import Any
from unittest.mock import patch

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from spark_log.log.clean import cleaner
from spark_log.log.clean.cleaner import PartitionCleaner
from spark_log.log.clean.compactor import compact
from spark_log.log.log_start import move_log_start
from spark_log.log.rewrite.file_deletion import delete_found, find_deletable
from spark_log.log.rewrite.merger import merge
from spark_log.log.verify.finding import LogFindingKind
from spark_log.log.verify.verifier import Verifier
from spark_log.record.producer_append import ProducerAppend
from spark_log.storage.memory import MemoryStore
from spark_log.util.clock import ManualClock
from tests.log.support import DIRECTORY, RetentionAt, file_names, open_log, records_of
from tests.record.samples import record_batch, row
from tests.storage.emptying import delete_everything

RETENTION_MS = 100_000
DELAY_MS = 61_000

handles = st.integers(0, 1)
policies = st.sampled_from(["compact,delete", "delete"])
updates = st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=4)


class CompactedLogMachine(RuleBasedStateMachine):
    """A log that is open twice; the model is a list of all records, the start, and the time."""

    @initialize()
    def open(self):
        self.clock = ManualClock()
        self.store = MemoryStore(uuid.uuid4().hex, self.clock)
        self.logs = [self.reopened(0), self.reopened(1)]
        self.rows = []
        self.appended_ms = []
        self.start = 0
        self.sequence = 0
        self.last: tuple[list[Any], ProducerAppend] | None = None

    def teardown(self):
        if hasattr(self, "store"):
            delete_everything(self.store)

    def reopened(self, handle=0, **settings):
        """Open the log again; the second one merges the tail, and writes Parquet files."""
        return open_log(
            self.store,
            clock=self.clock,
            **{
                "cleanup_policy": "compact,delete",
                "delete_retention_ms": RETENTION_MS,
                "index_interval_bytes": 0,
                "merge_tail_segments": 3 * handle,
                "retention_ms": -1,
                "table_format": "delta" if handle else "none",
                **settings,
            },
        )

    # --- writing ---------------------------------------------------------------------------------

    @rule(handle=handles, update=updates, is_split=st.booleans())
    def append(self, handle, update, is_split):
        rows = [
            row(None if is_gone else b"%d" % (len(self.rows) + at), key=b"%d" % key, timestamp=at)
            for at, (key, is_gone) in enumerate(update)
        ]
        parts = [rows[:1], rows[1:]] if is_split and len(rows) > 1 else [rows]
        records, producer = map(record_batch, parts), ProducerAppend(5, 0, self.sequence)
        self.last = list(records), producer
        info = self.logs[handle].append(self.last[0], producer=producer)
        assert info.base_offset == len(self.rows)
        self.sequence += len(rows)
        self.rows += rows
        self.appended_ms += [self.clock.monotonic_ms()] * len(rows)

    @precondition(lambda self: self.last is not None)
    @rule(handle=handles)
    def append_the_last_again(self, handle):
        assert self.last is not None
        records, producer = self.last
        info = self.logs[handle].append(records, producer=producer)
        assert info.last_offset == len(self.rows) - 1

    @rule(ms=st.sampled_from([1, 31_000, DELAY_MS, RETENTION_MS]))
    def wait(self, ms):
        self.clock.advance_ms(ms)

    @rule(handle=handles, loses_snapshots=st.booleans())
    def reopen(self, handle, loses_snapshots):
        if loses_snapshots and not self.start:
            for name in file_names(self.store):
                if name.endswith((".snapshot", ".index", ".timeindex")):
                    self.store.delete(f"{DIRECTORY}/{name}")
        self.logs[handle] = self.reopened(handle)

    # --- rewriting and deleting ------------------------------------------------------------------

    @rule(handle=handles, data=st.data())
    def merge(self, handle, data):
        view = self.logs[handle].observe()
        segments = view.live.segments
        low = [at for at, each in enumerate(segments) if not each.name.is_compacted]
        if low:
            first = data.draw(st.sampled_from(low))
            last = data.draw(st.integers(first, low[-1]))
            merge(self.logs[handle].files, view, first, last)

    @rule(handle=handles, memory_bytes=st.sampled_from([1, 2**20]))
    def compact(self, handle, memory_bytes):
        done = compact(self.logs[handle], now_us=self.clock.time_us(), memory_bytes=memory_bytes)
        assert done.is_complete

    @rule(handle=handles)
    def write_a_snapshot(self, handle):
        self.logs[handle].snapshots.write()

    @rule(handle=handles, data=st.data())
    def delete_records(self, handle, data):
        start = data.draw(st.integers(self.start, len(self.rows)))
        self.start = move_log_start(self.logs[handle], start)
        assert self.start == start

    @precondition(lambda self: self.start < len(self.rows))
    @rule(data=st.data(), later_us=st.integers(0, 1), policy=policies)
    def retain_by_time(self, data, later_us, policy):
        """Apply retention by time at the timestamp of a record."""
        now_us = data.draw(st.integers(0, 3)) + later_us
        for end, _, latest_us in self.segments():
            if latest_us >= now_us:
                break
            self.start = end
        # Only the time compared with timestamps is that late: the storage's clock continues.
        log = self.reopened(retention_ms=0, cleanup_policy=policy)
        self.clean(log, partial(RetentionAt, at_us=now_us))

    @precondition(lambda self: self.start < len(self.rows))
    @rule(data=st.data(), policy=policies)
    def retain_by_size(self, data, policy):
        """Apply retention by size."""
        segments = self.segments()
        sizes = [size for _, size, _ in segments]
        edges = [sum(sizes[number:]) for number in range(len(sizes) + 1)]
        kept = max(0, data.draw(st.sampled_from(edges)) + data.draw(st.integers(-1, 1)))
        for number, (end, _, _) in enumerate(segments):
            if sum(sizes[number + 1 :]) < kept:
                break
            self.start = end
        self.clean(self.reopened(retention_bytes=kept, cleanup_policy=policy))

    def clean(self, log, new_cleaner=PartitionCleaner):
        """Do the other steps of a cleaner: compact or merge, delete files."""
        with patch.object(cleaner, "FAN_IN", 2):
            report = new_cleaner(log).clean()
        assert (report.log_start_offset, report.log_end_offset) == (self.start, len(self.rows))

    def segments(self):
        """Summaries have the end, size and largest remaining timestamp of each live file."""
        view = self.logs[0].observe()
        found = records_of(self.reopened().scan(self.start))
        segments = []
        for segment in view.live.segments:
            end = segment.end_offset or view.log_end_offset
            # A header describes the whole batch, also its records before the log start.
            begin = segment.name.base_offset
            reader = self.logs[0].files.open(segment.name)
            times_us = [row["timestamp"] for _, row in records_of(reader.read(begin))]
            times_us += [row["timestamp"] for at, row in found if begin <= at < end]
            segments.append((end, segment.file.size_bytes, max(times_us, default=-1)))
        return segments

    @rule(handle=handles)
    def delete_files(self, handle):
        files = self.logs[handle].files
        delete_found(self.store, find_deletable(files, 60_000))

    # --- what must hold --------------------------------------------------------------------------

    def last_offsets(self):
        return {row["key"]: at for at, row in enumerate(self.rows)}

    @invariant()
    def what_is_read_makes_the_same_dictionary(self):
        if not hasattr(self, "rows"):
            return
        for log in (self.logs[0], self.reopened()):
            found = records_of(log.scan(self.start))
            assert [self.rows[at] for at, _ in found] == [row for _, row in found]
            offsets = [at for at, _ in found]
            assert offsets == sorted(set(offsets))
            assert log.observe().log_end_offset == len(self.rows)
            read = {row["key"]: (at, row["value"]) for at, row in found}
            for key, at in self.last_offsets().items():
                if at < self.start:
                    assert key not in read
                elif self.rows[at]["value"] is not None:
                    assert read[key] == (at, self.rows[at]["value"])
                elif self.clock.monotonic_ms() - self.appended_ms[at] < RETENTION_MS:
                    assert read[key] == (at, None)
                else:
                    assert read.get(key, (at, None)) == (at, None)

    @rule(handle=handles, data=st.data(), max_bytes=st.integers(0, 2000))
    def fetch_on_from_anywhere(self, handle, data, max_bytes):
        position = data.draw(st.integers(self.start, len(self.rows)))
        expected = [at for at, _ in records_of(self.reopened().scan(position))]
        seen = []
        while position < len(self.rows):
            batches, following = self.logs[handle].read(position, max_bytes)
            assert following > position
            seen += [at for at, _ in records_of(batches)]
            position = following
        assert set(expected) <= set(seen)

    @rule(handle=handles, asked=st.integers(-1, 4))
    def search_by_time(self, handle, asked):
        found = records_of(self.reopened().scan(self.start))
        hits = [(at, row["timestamp"]) for at, row in found if row["timestamp"] >= asked]
        assert self.reopened().offset_for_time(asked) == next(iter(hits), None)

    @rule()
    def verify(self):
        found = [each for each in Verifier(self.reopened()).findings() if each.is_problem]
        kinds = {LogFindingKind.SPENT_SEGMENT, LogFindingKind.SPENT_START}
        assert [each for each in found if each.kind not in kinds] == []


TestCompactedLogStateful = CompactedLogMachine.TestCase
TestCompactedLogStateful.settings = settings(max_examples=60, stateful_step_count=25)
