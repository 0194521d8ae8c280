"""A model of a compacted log: all records that were appended, and those that must still exist.

The sequence of records is that of `TrueLog`. A record's key, and whether it is a tombstone, follow
from its identity (its value in `TrueLog`), which is stored in a header: so writers need not know
keys. At every change of the storage, the last record of each key must still exist; every result of
a reader is checked for missing records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from zlib import crc32

import pyarrow as pa

from spark_log.consumer.fetch import BatchSlice
from spark_log.log import LogBatch, SegmentReader
from spark_log.log.files.file_names import SegmentName, parse_generation_name
from spark_log.log.files.live_segments import live_log
from spark_log.record.batch_header import BatchHeader
from spark_log.record.schema import HEADERS_TYPE, RECORD_SCHEMA, TIMESTAMP_TYPE
from spark_log.storage import Store
from spark_log.util.clock import Clock
from tests.simulation.faults import DELETE_DELAY_MS
from tests.simulation.log.records import Record, columns_of
from tests.simulation.log.true_log import DIRECTORY, TOPIC_ID, TrueLog
from tests.simulation.scheduler import START_US
from tests.simulation.violation import ViolationError

_HELD_MS = 0.4 * DELETE_DELAY_MS
"""A reader may use a listing for half of the delay, by a clock that is up to 10 % slow."""

KEYS = 15
"""Maximum number of keys."""


def key_of(record: Record) -> bytes:
    """Return a record's key: a few keys are frequent, others occur once or twice."""
    number = crc32(record.value)
    return b"k%d" % (number % KEYS if number & 8 else number % 2)


def is_tombstone(record: Record) -> bool:
    """Return whether a record deletes its key."""
    return crc32(record.value + b"?") % 5 < 2


def keyed_batch(records: Sequence[Record]) -> pa.RecordBatch:
    """Return records with their keys as an Arrow record batch of `RECORD_SCHEMA`."""
    columns = [
        pa.array(map(key_of, records), pa.binary()),
        pa.array([None if is_tombstone(each) else each.value for each in records], pa.binary()),
        pa.array([[{"key": "is", "value": each.value}] for each in records], HEADERS_TYPE),
        pa.array([each.timestamp_us for each in records], pa.int64()).view(TIMESTAMP_TYPE),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)


def keyed_records(batches: Iterable[LogBatch | BatchSlice]) -> Iterator[tuple[int, Record]]:
    """Yield the offset and the record of each row that was read.

    Raises:
        ViolationError: a key or value is not that of the record.
    """
    for batch in batches:
        columns = columns_of(batch, "key", "value", "headers", "timestamp")
        for at, key, value, headers, time_us in zip(*columns, strict=True):
            record = Record(headers[0]["value"], time_us)
            expected = key_of(record), None if is_tombstone(record) else record.value
            if (key, value) != expected:
                raise ViolationError(f"{record.value!r} at {at} has become {key!r}: {value!r}")
            yield at, record


class CompactedTruth(TrueLog):
    """The model of a compacted log, with the records that compactions may remove.

    Attributes:
        delete_retention_ms: the topic's ``delete.retention.ms``.
    """

    def __init__(
        self, disk: Store, clock: Clock, expiration_ms: int, delete_retention_ms: int
    ) -> None:
        super().__init__(disk, clock, expiration_ms)
        self.delete_retention_ms = delete_retention_ms
        self._last: dict[bytes, int] = {}
        self._counted = 0
        self._held: dict[str, frozenset[int]] = {}
        self._met_us: dict[int, set[int]] = {}
        """The times at which compactions met each tombstone, by the tombstone's offset."""
        self._taken_us: dict[int, int] = {}

    # --- records of the log ----------------------------------------------------------------------

    def record_batch(self, records: Sequence[Record]) -> pa.RecordBatch:
        """Return records as writers append them, with their keys."""
        return keyed_batch(records)

    def records_in(self, reader: SegmentReader) -> list[Record]:
        """Return the records of a segment."""
        batches = reader.read(reader.base_offset, check_crcs=False)
        return [record for _, record in keyed_records(batches)]

    # --- changes of the storage ------------------------------------------------------------------

    def on_file_created(self, path: str) -> None:
        """Handle the creation of a file; remember when a generation was taken."""
        generation = parse_generation_name(path.rpartition("/")[2])
        if generation is not None:  # the first time only: a late copy may arrive after its deletion
            self._taken_us.setdefault(generation, self._clock.time_us())
        super().on_file_created(path)

    def on_file_deleted(self, path: str) -> None:
        """Handle the deletion of a file."""
        self._held.pop(path, None)
        super().on_file_deleted(path)

    def _check_sequence(self, headers: Sequence[BatchHeader], base_offset: int) -> int:
        known_from = super()._check_sequence(headers, base_offset)
        producer_id = headers[0].producer_id
        # In a compacted log, only the last batch of a producer is certain to exist.
        position = self.producers[producer_id]
        self.producers[producer_id] = replace(position, recent=position.recent[-1:])
        return known_from

    def _check_rewritten(self, path: str, name: SegmentName) -> None:
        if not name.is_compacted:
            super()._check_rewritten(path, name)
            return
        reader = SegmentReader(self._disk, DIRECTORY, name, topic_id=TOPIC_ID, partition=0)
        held = set()
        for at, record in keyed_records(reader.read(reader.base_offset)):
            if not name.base_offset <= at < reader.end_offset or self.records[at] != record:
                raise ViolationError(f"{name.file_name} holds {record.value!r} at {at}")
            held.add(at)
        self._held[path] = frozenset(held)
        self._ends[path] = reader.end_offset
        for header in (each for _, headers in reader.all_headers() for each in headers):
            if header.attributes & header.DELETE_HORIZON_BIT:
                met_us = header.base_timestamp_us - self.delete_retention_ms * 1000
                first = name.base_offset + header.base_offset_delta
                for at in range(first, name.base_offset + header.last_offset_delta + 1):
                    if at in held and is_tombstone(self.records[at]):
                        self._meet(at, met_us, name.generation)

    def _meet(self, at: int, met_us: int, generation: int) -> None:
        """Check the time at which a compaction says that a tombstone was met first."""
        known_us = self._met_us.setdefault(at, set())
        if met_us not in known_us and met_us < self._taken_us[generation]:
            raise ViolationError(
                f"the time of the tombstone at {at} began at {met_us - START_US} us, but the "
                f"compaction that met it took its generation at "
                f"{self._taken_us[generation] - START_US} us"
            )
        known_us.add(met_us)

    def _first_met_us(self, at: int) -> int | None:
        return min(self._met_us.get(at, ()), default=None)

    def _check_chain(self) -> None:
        super()._check_chain()
        self._count()
        live = self._live_offsets()
        for key, last in self._last.items():
            if last < self.start or last in live:
                continue
            if not self.may_be_gone(last):
                raise ViolationError(f"{self.records[last].value!r} at {last}, the last, is gone")
            older = [at for at in live if at < last and key_of(self.records[at]) == key]
            if older:
                raise ViolationError(
                    f"{key!r} was deleted at {last}, but its record at {older[0]} is there again"
                )

    def _live_offsets(self) -> set[int]:
        offsets: set[int] = set()
        for segment in live_log(self._disk.list(DIRECTORY)).segments:
            path = segment.file.path
            all_of = range(segment.start_offset, self._ends[path])
            held = self._held.get(path)
            offsets.update(all_of if held is None else held.intersection(all_of))
        return offsets

    def _count(self) -> None:
        for at in range(self._counted, len(self.records)):
            self._last[key_of(self.records[at])] = at
        self._counted = len(self.records)

    # --- records that may be missing --------------------------------------------------------------

    def last_of(self, key: bytes) -> int:
        """Return the offset of a key's last record."""
        self._count()
        return self._last[key]

    def may_be_gone(self, at: int) -> bool:
        """Return whether a compaction or retention may have removed a record."""
        self._count()
        record = self.records[at]
        if self._last[key_of(record)] != at:
            return True
        met_us = self._first_met_us(at)
        gone_us = self._clock.time_us() - self.delete_retention_ms * 1000
        return is_tombstone(record) and met_us is not None and met_us <= gone_us

    def check_given(self, begin: int, given: Sequence[tuple[int, Record]], end: int) -> None:
        """Check the records that a reader got between two offsets.

        Raises:
            ViolationError: a record is wrong, or a record that must exist is missing.
        """
        before = begin - 1
        for at, record in given:
            if not before < at < end or self.records[at] != record:
                raise ViolationError(f"a reader got {record.value!r} at {at}, behind {before}")
            before = at
        offsets = {at for at, _ in given}
        for at in range(begin, end):
            if at not in offsets and not self.may_be_gone(at):
                raise ViolationError(f"a reader did not get {self.records[at].value!r} at {at}")

    def check_end(self, end: int, since: int) -> None:
        """Check the end offset of a read to the log end that began at some moment."""
        if not self.extents[since].end <= end <= self.end:
            raise ViolationError(f"read to {end}, but the log ended at {self.extents[since].end}")

    def may_have_missed(self, at: int, read_ms: float, now_ms: float) -> bool:
        """Return whether a reader may have passed a tombstone without seeing it.

        Args:
            at: the tombstone's offset.
            read_ms: when the reader began to read the record that the tombstone deletes.
            now_ms: the current time.
        """
        read_us = START_US + read_ms * 1000
        is_late = now_ms > read_ms + self.delete_retention_ms
        return now_ms > read_ms + _HELD_MS and (is_late or read_us > (self._first_met_us(at) or 0))

    def check_time_lookup(
        self, timestamp_us: int, found: tuple[int, int] | None, since: int
    ) -> None:
        """Check a time lookup, whose result a compaction may have removed."""
        reaching = [
            at
            for at in range(self.start, self.extents[since].end)
            if self.records[at].timestamp_us >= timestamp_us
        ]
        if found is not None:
            at, time_us = found
            if time_us < timestamp_us or self.records[at].timestamp_us != time_us:
                raise ViolationError(f"at {timestamp_us} {found} was found")
            if at < self.extents[since].start:
                raise ViolationError(f"{found} was found, before the log's start")
            reaching = [each for each in reaching if each < at]
        if missed := [at for at in reaching if not self.may_be_gone(at)]:
            raise ViolationError(f"the first record at {timestamp_us} is {missed[0]}, not {found}")

    def check_latest(self, found: tuple[int, int] | None, since: int) -> None:
        """Check a lookup of the record with the largest timestamp."""
        if found is not None and self.records[found[0]].timestamp_us != found[1]:
            raise ViolationError(f"{found} was found as the latest")
        best = (found[1], -found[0]) if found else (float("-inf"), 0)
        for at in range(self.start, self.extents[since].end):
            if (self.records[at].timestamp_us, -at) > best and not self.may_be_gone(at):
                raise ViolationError(f"the record at {at} is later than {found}")


@dataclass(slots=True)
class _Entry:
    at: int
    record: Record
    read_ms: float


class ReadTable:
    """The table of key and last record that a reader builds, checked against the full log's."""

    def __init__(self, truth: CompactedTruth) -> None:
        self._truth = truth
        self._entries: dict[bytes, _Entry] = {}

    def clear(self) -> None:
        """Begin again: the reader has skipped records."""
        self._entries.clear()

    def read(
        self,
        begin: int,
        given: Sequence[tuple[int, Record]],
        end: int,
        *,
        began_ms: float,
        now_ms: float,
    ) -> None:
        """Add the records that were read between two offsets.

        Raises:
            ViolationError: they are not the log's records, or the table differs from the log's.
        """
        truth = self._truth
        truth.check_given(begin, given, end)
        for at, record in given:
            self._entries[key_of(record)] = _Entry(at, record, began_ms)
        offsets = {at for at, _ in given}
        for key, entry in list(self._entries.items()):
            last = truth.last_of(key)
            if last == entry.at or last >= end:
                continue
            # It has an older record of the key, and has passed the last one, a tombstone.
            is_new = begin <= last < end and last not in offsets
            if not is_new or not truth.may_have_missed(last, entry.read_ms, now_ms):
                raise ViolationError(
                    f"a reader has {entry.record.value!r} at {entry.at}, and did not see that it "
                    f"was deleted at {last}"
                )
            del self._entries[key]
