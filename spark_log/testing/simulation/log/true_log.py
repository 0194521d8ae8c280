"""What the log truly is, told by the effects on storage alone; and that nothing contradicts it.

None of the package's decisions enter here but `live_log`, and only to be checked: the next record
is whatever is put under the name of the current end, at the moment when it is. Everything that an
actor is told is held against that at once, so that a trace ends where something went wrong.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from spark_log.clock import Clock
from spark_log.log import SegmentReader
from spark_log.log.append.producer_state import MAX_RUNS, ProducerAppend, sequence_after
from spark_log.log.file_names import SegmentName, StartMarker
from spark_log.log.live_log import live_log
from spark_log.record.batch_header import NO_PRODUCER_ID, BatchHeader
from spark_log.storage import Store

TOPIC_ID = "BAmGwfbUQVSsLzdzBSFxhA"
DIRECTORY = f"flights.{TOPIC_ID}/flights-0"


class ViolationError(AssertionError):
    """Something that the log promises did not hold."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record as the simulation knows it: no two records have one value."""

    value: bytes
    timestamp_us: int


@dataclass(frozen=True, slots=True)
class Extent:
    """What the log held at some moment: offsets from ``start`` to before ``end``."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ProducerPosition:
    """How far a producer has come.

    Attributes:
        epoch: its newest.
        next_sequence: the sequence number that follows in it.
        recent: the sequence numbers with which its last appends in this epoch began.
        known_from: the offset from which on it has not expired.
        appended_us: when its last append took effect.
    """

    epoch: int
    next_sequence: int
    recent: tuple[int, ...] = field(default=(), compare=False)
    known_from: int = field(default=0, compare=False)
    appended_us: int = field(default=0, compare=False)


class TrueLog:
    """The one true sequence of records, and its past.

    Attributes:
        records: by offset, since the very beginning.
        extents: what was held, one after the other; the last one is now.
        producers: how far each producer has come.
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
            clock: the storage's.
            expiration_ms: ``producer.id.expiration.ms``.
            retention_ms: ``retention.ms``, -1 for ever, where nothing else moves the start; None
                where something does.
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
        """The present, as the index of its extent."""
        return len(self.extents) - 1

    # --- what happens on storage -----------------------------------------------------------------

    def file_appeared(self, path: str) -> None:
        """Take in that a file was made."""
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

    def file_vanished(self, path: str) -> None:
        """Take in that a file was deleted."""
        self._ends.pop(path, None)
        self._check_chain()

    def _check_expired(self, start: int) -> None:
        """Check that retention lets go what lies before the log's new start."""
        if self._retention_ms is None:
            return
        kept_us = self._clock.time_us() - self._retention_ms * 1000
        for record in self.records[self.start : start]:
            if self._retention_ms < 0 or record.timestamp_us >= kept_us:
                raise ViolationError(f"{record.value!r} was deleted before retention.ms had passed")

    def _extend(self, path: str, name: SegmentName) -> None:
        reader = SegmentReader(self._disk, DIRECTORY, name, topic_id=TOPIC_ID, partition=0)
        headers = [header for _, pair in reader.all_headers() for header in pair]
        known_from = 0
        if headers[0].producer_id != NO_PRODUCER_ID:
            known_from = self._check_sequence(headers)
        if reader.append_id in self._append_ids:
            raise ViolationError(f"what one append put at {len(self.records)} is in the log twice")
        self._append_ids.add(reader.append_id)
        for record in _records(reader):
            at = self._values.setdefault(record.value, len(self.records))
            if known_from <= at < len(self.records):
                raise ViolationError(
                    f"{record.value!r} at {len(self.records)} is in the log at {at}"
                )
            if record.value in self._refused:
                raise ViolationError(f"{record.value!r} was refused, and then appended")
            self.records.append(record)
        self.extents.append(Extent(self.start, len(self.records)))
        self._ends[path] = self.end

    def _check_sequence(self, headers: list[BatchHeader]) -> int:
        """Check that a producer's append may come next; return from where on it is remembered.

        Of one that has expired anything may, and what it appended before it may append again.
        """
        first, now_us = headers[0], self._clock.time_us()
        before = self.producers.get(first.producer_id)
        is_same_epoch = before is not None and before.epoch == first.producer_epoch
        known_from = 0 if before is None else before.known_from
        if before is not None and now_us - before.appended_us >= self._expiration_us:
            known_from, is_same_epoch = self.end, False
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
        if _records(reader) != self.records[name.base_offset : reader.end_offset]:
            raise ViolationError(f"{name.log} does not hold what a reader would have read")
        self._ends[path] = reader.end_offset

    def _check_chain(self) -> None:
        """Check that whoever lists the directory now finds the log."""
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

    # --- what actors are told --------------------------------------------------------------------

    def check_appended(
        self,
        records: list[Record],
        base_offset: int,
        last_offset: int,
        expected_leo: int | None = None,
    ) -> None:
        """Check an acknowledgement."""
        if expected_leo not in (None, base_offset):
            raise ViolationError(f"appended at {base_offset}, but only {expected_leo} was allowed")
        if self.records[base_offset : last_offset + 1] != records:
            raise ViolationError(
                f"{records[0].value!r} was acknowledged at {base_offset} to {last_offset}, "
                f"and is at {self._values.get(records[0].value)}"
            )

    def check_refused(self, records: list[Record], *, is_final: bool = True) -> None:
        """Check that what was refused is not in the log; for ever where nobody tries it again."""
        for record in records:
            if record.value in self._values:
                raise ViolationError(f"{record.value!r} was refused, and is in the log")
            if is_final:
                self._refused.add(record.value)

    def check_fenced(self, append: ProducerAppend) -> None:
        """Check that a producer that was told so is fenced."""
        newest = self._newest_epochs.get(append.producer_id)
        if newest is None or newest <= append.producer_epoch:
            raise ViolationError(f"{append} was fenced, but the newest epoch is {newest}")

    def check_out_of_order(
        self, append: ProducerAppend, records: list[Record], *, is_final: bool
    ) -> None:
        """Check that an append was rightly refused for its sequence number.

        Args:
            append: which.
            records: its records.
            is_final: whether nobody tries it again.
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
            pass  # it may have been refused for what was expected before it expired
        elif append.base_sequence in position.recent and append.producer_epoch == position.epoch:
            raise ViolationError(f"{append} was out of order, but is one of the last {MAX_RUNS}")

    def check_read(self, offset: int, records: list[Record], since: int) -> None:
        """Check what was read from an offset on; nothing only if nothing had to be there."""
        if self.records[offset : offset + len(records)] != records:
            raise ViolationError(
                f"a reader got {records[0].value!r} and others wrongly at {offset}"
            )
        if not records and self.extents[since].end > offset:
            raise ViolationError(
                f"a reader got nothing at {offset}, but the log ended at {self.extents[since].end}"
            )

    def check_extent(self, start: int, end: int, since: int) -> None:
        """Check what somebody observed against all that was true since they began to look."""
        first = self.extents[since]
        if not (first.start <= start <= self.start and first.end <= end <= self.end):
            raise ViolationError(
                f"observed {start} to {end}, but the log went from "
                f"{first.start} to {first.end} on to {self.start} to {self.end}"
            )

    def check_out_of_range(self, offset: int, since: int) -> None:
        """Check that an offset was out of range at some moment."""
        if not any(offset < extent.start or offset > extent.end for extent in self.extents[since:]):
            raise ViolationError(f"offset {offset} was called out of range, and never was")

    def check_time_lookup(
        self, timestamp_us: int, found: tuple[int, int] | None, since: int
    ) -> None:
        """Check a time lookup against a scan of everything that was there since it began."""
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


def _records(reader: SegmentReader) -> list[Record]:
    return [
        Record(value, timestamp_us)
        for batch in reader.read(reader.base_offset, check_crcs=False)  # readers check them
        for value, timestamp_us in zip(
            batch.records.column("value").to_pylist(),
            batch.records.column("timestamp").view("int64").to_pylist(),
            strict=True,
        )
    ]
