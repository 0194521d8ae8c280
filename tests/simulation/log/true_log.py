"""A model of the log, derived only from the changes of the storage; checks results against it.

The next records of the log are those of the file that is created under the name of the current log
end. No other decision of the package is used, except `live_log`, which is checked itself. Each
result of an actor is checked at once, so that a trace ends at the step that went wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

import pyarrow as pa

from spark_log.log import SegmentReader
from spark_log.log.files.file_names import SegmentName, StartMarker
from spark_log.log.files.live_segments import live_log
from spark_log.log.producers.producer_entry import MAX_RUNS
from spark_log.record.batch_header import NO_PRODUCER_ID, BatchHeader
from spark_log.record.producer_append import ProducerAppend, sequence_after
from spark_log.storage import Store
from spark_log.util.clock import Clock
from tests.simulation.log.records import Record, record_batch, records_of
from tests.simulation.violation import ViolationError

TOPIC_ID = "BAmGwfbUQVSsLzdzBSFxhA"
DIRECTORY = f"flights.{TOPIC_ID}/flights-0"


@dataclass(frozen=True, slots=True)
class Extent:
    """The offsets of the log at some moment: from ``start`` inclusive to ``end`` exclusive."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ProducerPosition:
    """The state of a producer in the log.

    Attributes:
        epoch: its newest epoch.
        next_sequence: the next sequence number in this epoch.
        recent: the base sequences of its last appends in this epoch.
        known_from: the offset of its first append since it expired last; 0 if it never expired.
        appended_us: time at which its last append took effect.
    """

    epoch: int
    next_sequence: int
    recent: tuple[int, ...] = field(default=(), compare=False)
    known_from: int = field(default=0, compare=False)
    appended_us: int = field(default=0, compare=False)


class TrueLog:
    """The model of one partition log, with its history.

    Attributes:
        records: all records that were ever appended, by offset.
        extents: the extents of the log over time; the last one is the current one.
        producers: the state of each producer id.
    """

    def __init__(
        self,
        disk: Store,
        clock: Clock,
        expiration_ms: int,
        retention_ms: int | None = None,
    ) -> None:
        """Begin with an empty log.

        Args:
            disk: the files.
            clock: the storage's clock.
            expiration_ms: ``producer.id.expiration.ms``.
            retention_ms: ``retention.ms``, -1: unlimited; None: do not check it, because the log
                start moves for other reasons, too.
        """
        self._retention_ms = retention_ms
        self._disk = disk
        self._clock = clock
        self._expiration_us = expiration_ms * 1000
        self.records: list[Record] = []
        self.extents: list[Extent] = [Extent(0, 0)]
        self.producers: dict[int, ProducerPosition] = {}
        self._newest_epochs: dict[int, int] = {}
        self._values: dict[bytes, int] = {}
        self._refused: set[bytes] = set()
        self._append_ids: set[str] = set()
        self._ends: dict[str, int] = {}

    @property
    def start(self) -> int:
        """The log start offset."""
        return self.extents[-1].start

    @property
    def end(self) -> int:
        """The log end offset."""
        return self.extents[-1].end

    @property
    def now(self) -> int:
        """The index of the current extent."""
        return len(self.extents) - 1

    # --- records of the log ----------------------------------------------------------------------

    def record_batch(self, records: Sequence[Record]) -> pa.RecordBatch:
        """Return records as writers append them."""
        return record_batch(records)

    def records_in(self, reader: SegmentReader) -> list[Record]:
        """Return the records of a segment; their checksums are for readers to check."""
        return records_of(reader.read(reader.base_offset, check_crcs=False), reader.base_offset)

    # --- changes of the storage ------------------------------------------------------------------

    def on_file_created(self, path: str) -> None:
        """Handle the creation of a file: the log may grow, or its start may move."""
        file_name = path.rpartition("/")[2]
        name = SegmentName.parse(file_name)
        marker = StartMarker.parse(file_name)
        if name is not None:
            if name.last_offset is not None:
                self._check_rewritten(path, name)
            elif name.base_offset == self.end:
                self._extend(path, name)
            elif name.base_offset > self.end:
                raise ViolationError(f"{file_name} was put beyond the log's end at {self.end}")
        elif marker is not None:
            if marker.log_start_offset > self.end:
                raise ViolationError(f"{file_name} lies beyond the log's end at {self.end}")
            if marker.log_start_offset > self.start:
                self._check_expired(marker.log_start_offset)
                self.extents.append(Extent(marker.log_start_offset, self.end))
        else:
            return
        self._check_chain()

    def on_file_deleted(self, path: str) -> None:
        """Handle the deletion of a file, which must not change the log."""
        self._ends.pop(path, None)
        self._check_chain()

    def _check_expired(self, start: int) -> None:
        """Check that the records before a new log start are older than ``retention.ms``."""
        if self._retention_ms is None:
            return
        kept_us = self._clock.time_us() - self._retention_ms * 1000
        for record in self.records[self.start : start]:
            if self._retention_ms < 0 or record.timestamp_us >= kept_us:
                raise ViolationError(f"{record.value!r} was deleted before retention.ms had passed")

    def _extend(self, path: str, name: SegmentName) -> None:
        reader = SegmentReader(self._disk, DIRECTORY, name, topic_id=TOPIC_ID, partition=0)
        headers = [header for _, pair in reader.all_headers() for header in pair]
        if reader.append_id in self._append_ids:
            raise ViolationError(f"what one append put at {len(self.records)} is in the log twice")
        self._append_ids.add(reader.append_id)
        records = iter(self.records_in(reader))
        for append in self.appends_of(headers):
            known_from = 0
            if append[0].producer_id != NO_PRODUCER_ID:
                known_from = self._check_sequence(append, len(self.records))
            for record in islice(records, sum(header.record_count for header in append)):
                self._add(record, known_from)
        self.extents.append(Extent(self.start, len(self.records)))
        self._ends[path] = self.end

    def appends_of(self, headers: Sequence[BatchHeader]) -> Iterator[Sequence[BatchHeader]]:
        """Yield the headers of each append that a plain segment has: one append."""
        yield headers

    def _add(self, record: Record, known_from: int) -> None:
        at = self._values.setdefault(record.value, len(self.records))
        if known_from <= at < len(self.records):
            raise ViolationError(f"{record.value!r} at {len(self.records)} is in the log at {at}")
        if record.value in self._refused:
            raise ViolationError(f"{record.value!r} was refused, and then appended")
        self.records.append(record)

    def _check_sequence(self, headers: Sequence[BatchHeader], base_offset: int) -> int:
        """Check the epoch and sequence of an append; return the producer's ``known_from``.

        An expired producer may append anything, also records that it appended before.

        Args:
            headers: the headers of the append's batches.
            base_offset: the append's first offset.
        """
        first, now_us = headers[0], self._clock.time_us()
        before = self.producers.get(first.producer_id)
        is_same_epoch = before is not None and before.epoch == first.producer_epoch
        known_from = 0 if before is None else before.known_from
        if before is not None and now_us - before.appended_us >= self._expiration_us:
            known_from, is_same_epoch = base_offset, False
        elif before is not None:
            if first.producer_epoch < before.epoch:
                raise ViolationError(
                    f"producer {first.producer_id} appends in epoch {first.producer_epoch} "
                    f"after {before.epoch}"
                )
            expected = before.next_sequence if is_same_epoch else 0
            if first.base_sequence != expected:
                raise ViolationError(
                    f"producer {first.producer_id} appends {first.base_sequence}, not {expected}"
                )
        count = sum(header.record_count for header in headers)
        recent = before.recent if before is not None and is_same_epoch else ()
        newest = max(self._newest_epochs.get(first.producer_id, 0), first.producer_epoch)
        self._newest_epochs[first.producer_id] = newest
        self.producers[first.producer_id] = ProducerPosition(
            first.producer_epoch,
            sequence_after(first.base_sequence, count),
            (*recent, first.base_sequence)[-MAX_RUNS:],
            known_from,
            now_us,
        )
        return known_from

    def _check_rewritten(self, path: str, name: SegmentName) -> None:
        reader = SegmentReader(self._disk, DIRECTORY, name, topic_id=TOPIC_ID, partition=0)
        if self.records_in(reader) != self.records[name.base_offset : reader.end_offset]:
            raise ViolationError(f"{name.file_name} does not hold what a reader would have read")
        self._ends[path] = reader.end_offset

    def _check_chain(self) -> None:
        """Check that a listing of the directory shows exactly the log."""
        live = live_log(self._disk.list(DIRECTORY))
        if live.log_start_offset != self.start:
            raise ViolationError(f"the log start went from {self.start} to {live.log_start_offset}")
        position = live.log_start_offset
        for segment in live.segments:
            end = self._ends.get(segment.file.path)
            if end is None:
                raise ViolationError(f"{segment.file.name} is live, but only void files are there")
            if segment.start_offset != position or segment.end_offset not in (None, end):
                raise ViolationError(f"{segment.file.name} does not end where the next one begins")
            position = end
        if position != self.end or live.base_after_gap is not None:
            raise ViolationError(f"the log ends at {self.end}, but a listing shows {position}")

    # --- results of actors -----------------------------------------------------------------------

    def check_appended(
        self,
        records: list[Record],
        base_offset: int,
        last_offset: int,
        expected_end_offset: int | None = None,
    ) -> None:
        """Check that acknowledged records are at the offsets of the acknowledgement."""
        if expected_end_offset not in (None, base_offset):
            raise ViolationError(
                f"appended at {base_offset}, but only {expected_end_offset} was allowed"
            )
        if self.records[base_offset : last_offset + 1] != records:
            raise ViolationError(
                f"{records[0].value!r} was acknowledged at {base_offset} to {last_offset}, "
                f"and is at {self._values.get(records[0].value)}"
            )

    def check_refused(self, records: list[Record], *, is_final: bool = True) -> None:
        """Check that refused records are not in the log, nor later if the refusal is final."""
        for record in records:
            if record.value in self._values:
                raise ViolationError(f"{record.value!r} was refused, and is in the log")
            if is_final:
                self._refused.add(record.value)

    def check_fenced(self, append: ProducerAppend) -> None:
        """Check that a fenced producer has an older epoch than the newest."""
        newest = self._newest_epochs.get(append.producer_id)
        if newest is None or newest <= append.producer_epoch:
            raise ViolationError(f"{append} was fenced, but the newest epoch is {newest}")

    def check_out_of_order(
        self, append: ProducerAppend, records: list[Record], *, is_final: bool
    ) -> None:
        """Check that an append was refused for its sequence number for a good reason.

        Args:
            append: its producer id, epoch and base sequence.
            records: its records.
            is_final: whether no actor tries it again.
        """
        position = self.producers.get(append.producer_id)
        if position is None:
            raise ViolationError(f"{append} was out of order, but it is the first one")
        if records[0].value not in self._values:
            if is_final:
                self.check_refused(records)
            if not position.known_from and position == ProducerPosition(
                append.producer_epoch, append.base_sequence
            ):
                raise ViolationError(f"{append} was out of order, but it is the next one")
        elif position.known_from:
            pass  # it may have been refused for the sequence before the expiry
        elif append.base_sequence in position.recent and append.producer_epoch == position.epoch:
            raise ViolationError(f"{append} was out of order, but is one of the last {MAX_RUNS}")

    def check_read(self, offset: int, records: list[Record], since: int) -> None:
        """Check records that were read from an offset; none only if the log ended there."""
        if self.records[offset : offset + len(records)] != records:
            raise ViolationError(
                f"a reader got {records[0].value!r} and others wrongly at {offset}"
            )
        if not records and self.extents[since].end > offset:
            raise ViolationError(
                f"a reader got nothing at {offset}, but the log ended at {self.extents[since].end}"
            )

    def check_extent(self, start: int, end: int, since: int) -> None:
        """Check observed offsets against all extents since the observation began."""
        first = self.extents[since]
        if not (first.start <= start <= self.start and first.end <= end <= self.end):
            raise ViolationError(
                f"observed {start} to {end}, but the log went from "
                f"{first.start} to {first.end} on to {self.start} to {self.end}"
            )

    def check_out_of_range(self, offset: int, since: int) -> None:
        """Check that an offset was out of range at some moment since then."""
        if not any(offset < extent.start or offset > extent.end for extent in self.extents[since:]):
            raise ViolationError(f"offset {offset} was called out of range, and never was")

    def check_time_lookup(
        self, timestamp_us: int, found: tuple[int, int] | None, since: int
    ) -> None:
        """Check a time lookup against scans of all extents since the lookup began."""
        starts = sorted({extent.start for extent in self.extents[since:]})
        ends = sorted({extent.end for extent in self.extents[since:]})
        answers = {self._first_at(timestamp_us, start, end) for start in starts for end in ends}
        if found not in answers:
            raise ViolationError(f"the first record at {timestamp_us} is {answers}, not {found}")

    def _first_at(self, timestamp_us: int, start: int, end: int) -> tuple[int, int] | None:
        for offset in range(start, end):
            if self.records[offset].timestamp_us >= timestamp_us:
                return offset, self.records[offset].timestamp_us
        return None
