"""What a partition remembers of its idempotent producers (Kafka's ``ProducerStateManager``).

Derived from batch headers alone, in offset order: whoever replays the same headers has the same
state. So every writer decides for itself, before it puts, whether an append is a repeat, leaves a
gap, or comes from a fenced producer, and no one has to be asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from spark_log.errors import InvalidProducerEpochError, OutOfOrderSequenceError
from spark_log.record.batch_header import NO_PRODUCER_ID, NO_SEQUENCE, BatchHeader

MAX_RUNS: Final = 5
"""Runs remembered of one producer (``ProducerStateEntry.NUM_BATCHES_TO_RETAIN``)."""

_SEQUENCES: Final = 2**31
"""Sequence numbers go from 0 to 2**31 - 1, and on with 0."""

_MAX_RUN_RECORDS: Final = _SEQUENCES // 2
"""A run forgets what lies further back: a sequence number must mean one record."""


NOT_LISTED_US: Final = 2**63 - 1
"""Stands for the time of an append that no listing has shown yet: by this it never expires."""


def sequence_after(sequence: int, records: int) -> int:
    """Return the sequence number ``records`` later (``DefaultRecordBatch.incrementSequence``)."""
    return (sequence + records) % _SEQUENCES


@dataclass(frozen=True, slots=True)
class ProducerAppend:
    """Who appends, and which of its records: by this an append is known when it comes again.

    Attributes:
        producer_id: of the idempotent producer, from `metadata.producer_ids`.
        producer_epoch: its incarnation; a newer one fences all older ones.
        base_sequence: the first record's sequence number in this partition and epoch, from 0.
    """

    producer_id: int
    producer_epoch: int
    base_sequence: int

    def __post_init__(self) -> None:
        """Raise ValueError for what does not fit the batch header."""
        in_range = (
            0 <= self.producer_id < 2**63
            and 0 <= self.producer_epoch < 2**15
            and 0 <= self.base_sequence < _SEQUENCES
        )
        if not in_range:
            raise ValueError(
                f"producer id 0 to 2**63 - 1, epoch 0 to 2**15 - 1 and base sequence 0 to "
                f"2**31 - 1 are expected, got {self}"
            )


@dataclass(frozen=True, slots=True)
class SequenceRun:
    """Records of one producer that lie one behind the other in the log, in sequence.

    Kafka remembers a producer's last five batches; here it is the last five runs, since an append
    may be many batches, and a merge joins those that follow each other. A batch that stands alone
    is a run, so that never less is recognised than by Kafka.

    Attributes:
        base_sequence: of the first record.
        base_offset: of the first record.
        record_count: how many offsets, and so sequence numbers, the run takes.
    """

    base_sequence: int
    base_offset: int
    record_count: int

    @property
    def end_offset(self) -> int:
        """The offset after the last record's."""
        return self.base_offset + self.record_count

    @property
    def next_sequence(self) -> int:
        """The sequence number after the last record's."""
        return sequence_after(self.base_sequence, self.record_count)

    def offset_of(self, base_sequence: int, record_count: int) -> int | None:
        """Return where records of these sequence numbers begin, None if not all are in the run."""
        distance = (base_sequence - self.base_sequence) % _SEQUENCES
        if distance + record_count > self.record_count:
            return None
        return self.base_offset + distance

    def extended(self, run: SequenceRun) -> SequenceRun | None:
        """Return this run with another behind it, None if that does not follow.

        The other may begin with records of this one: a merge joins batches, so that one header may
        tell of records from before and behind the offset of a snapshot.
        """
        distance = run.base_offset - self.base_offset
        follows = run.base_sequence == sequence_after(self.base_sequence, distance)
        if run.base_offset > self.end_offset or not follows:
            return None
        base_offset = min(self.base_offset, run.base_offset)
        end_offset = max(self.end_offset, run.end_offset)
        base_offset = max(base_offset, end_offset - _MAX_RUN_RECORDS)
        return SequenceRun(
            sequence_after(self.base_sequence, base_offset - self.base_offset),
            base_offset,
            end_offset - base_offset,
        )


@dataclass(frozen=True, slots=True)
class ProducerEntry:
    """What is remembered of one producer.

    Attributes:
        epoch: its newest.
        runs: the last `MAX_RUNS` of that epoch, in order; none after a bare marker.
        appended_us: when its last batch came into the log, or later, by the storage's clock;
            `NOT_LISTED_US` until a listing has shown it. (Not by its records' timestamps, as in
            Kafka: they may tell of last year.)
    """

    epoch: int
    runs: tuple[SequenceRun, ...]
    appended_us: int

    def with_run(self, run: SequenceRun, appended_us: int) -> ProducerEntry:
        """Return the entry after one more run of this epoch."""
        runs = self.runs
        # More than one: what a compaction left of batches that a merge, beside it, has joined.
        while runs and (joined := runs[-1].extended(run)) is not None:
            runs, run = runs[:-1], joined
        runs = (*runs, run)[-MAX_RUNS:]
        return ProducerEntry(self.epoch, runs, max(appended_us, self.appended_us))

    def offset_by_end(self, base_sequence: int, record_count: int) -> int | None:
        """Return where an append begins that ends with the last run; None if it cannot be.

        All up to there is in the log. The rest is where it has to be, unless a run says otherwise.
        """
        if not self.runs or sequence_after(base_sequence, record_count) != self.next_sequence:
            return None
        base_offset = self.runs[-1].end_offset - record_count
        for run in self.runs[:-1]:
            shift = (run.base_sequence - base_sequence) % _SEQUENCES
            is_part = (run.base_offset - base_offset) % _SEQUENCES == shift
            if not is_part and (
                run.end_offset > base_offset
                or (base_sequence - run.next_sequence) % _SEQUENCES >= _MAX_RUN_RECORDS
            ):
                return None
        return base_offset if base_offset >= 0 else None

    @property
    def next_sequence(self) -> int:
        """The sequence number that comes next; 0 in an epoch of which nothing is known."""
        return self.runs[-1].next_sequence if self.runs else 0


class ProducerState:
    """The producers of a partition, after all records before `offset`.

    Attributes:
        offset: up to where the log was taken in.
    """

    def __init__(self, offset: int = 0, entries: Iterable[tuple[int, ProducerEntry]] = ()) -> None:
        self.offset = offset
        self._entries = dict(entries)

    def entries(self) -> Iterator[tuple[int, ProducerEntry]]:
        """Yield producer ids and what is remembered of each, by id."""
        yield from sorted(self._entries.items())

    def replay(
        self, segment_base_offset: int, headers: Iterable[BatchHeader], appended_us: int
    ) -> None:
        """Replay batch headers, in offset order; those before `offset` are passed over.

        Args:
            segment_base_offset: what the headers' deltas count from.
            headers: of a segment.
            appended_us: when the segment appeared, by the storage's clock; `NOT_LISTED_US` where no
                listing has shown that.
        """
        for header in headers:
            base_offset = segment_base_offset + header.base_offset_delta
            end_offset = segment_base_offset + header.last_offset_delta + 1
            if end_offset <= self.offset:
                continue
            self.offset = end_offset
            if header.producer_id != NO_PRODUCER_ID:
                self._replay_batch(header, base_offset, end_offset, appended_us)

    def find(self, append: ProducerAppend, record_count: int) -> int | None:
        """Return the offset at which this very append stands already, None if it does not.

        Of several batches a compaction may have left the last one alone: its end tells.
        """
        entry = self._entries.get(append.producer_id)
        if entry is None or entry.epoch != append.producer_epoch:
            return None
        for run in reversed(entry.runs):
            offset = run.offset_of(append.base_sequence, record_count)
            if offset is not None:
                return offset
        return entry.offset_by_end(append.base_sequence, record_count)

    def is_fenced(self, append: ProducerAppend) -> bool:
        """Return whether a newer epoch of the producer has written."""
        entry = self._entries.get(append.producer_id)
        return entry is not None and append.producer_epoch < entry.epoch

    def check(self, append: ProducerAppend, *, now_us: int, expiration_ms: int, where: str) -> None:
        """Check that an append which is not a repeat may come next (``ProducerAppendInfo``).

        Of a producer that is not known, or not any more, every sequence number is taken, as in
        Kafka: its records may have been deleted.

        Args:
            append: which.
            now_us: the storage's time, or earlier (DESIGN.md, "Whose clock").
            expiration_ms: ``producer.id.expiration.ms``.
            where: the partition's directory, for errors.

        Raises:
            InvalidProducerEpochError: a newer epoch of the producer has written.
            OutOfOrderSequenceError: it does not begin where the last one ended, or a new epoch
                does not begin with 0.
        """
        entry = self._entries.get(append.producer_id)
        if entry is None or now_us - entry.appended_us >= expiration_ms * 1000:
            return
        producer_id, epoch = append.producer_id, append.producer_epoch
        if self.is_fenced(append):
            raise InvalidProducerEpochError(
                f"{where}: producer {producer_id} writes in epoch {epoch}, but epoch "
                f"{entry.epoch} has written: a newer instance took its place; stop this one",
                producer_id=producer_id,
                producer_epoch=epoch,
                current_epoch=entry.epoch,
            )
        expected = entry.next_sequence if epoch == entry.epoch else 0
        if append.base_sequence != expected:
            raise OutOfOrderSequenceError(
                f"{where}: producer {producer_id}, epoch {epoch} appends from sequence number "
                f"{append.base_sequence}, but {expected} comes next: an earlier append is missing, "
                f"or this is a repeat of one too old to be recognised",
                producer_id=producer_id,
                base_sequence=append.base_sequence,
                expected_sequence=expected,
            )

    def without_expired(self, *, now_us: int, expiration_ms: int) -> ProducerState:
        """Return the state with only the producers that wrote lately (KIP-854).

        Args:
            now_us: the storage's time, or earlier: a time from the future would forget producers
                whose appends may still be repeated.
            expiration_ms: ``producer.id.expiration.ms``.
        """
        oldest_us = now_us - expiration_ms * 1000
        kept = (pair for pair in self._entries.items() if pair[1].appended_us > oldest_us)
        return ProducerState(self.offset, kept)

    def set_append_times(self, appeared_us: Callable[[int], int], newest_us: int) -> None:
        """Date what was taken in as just now, by a listing that began after that.

        Args:
            appeared_us: tells when what is at an offset appeared, or later.
            newest_us: the newest last-modified time of the listing: no append before it is newer.
        """
        for producer_id, entry in self._entries.items():
            if entry.appended_us == NOT_LISTED_US:
                shown_us = appeared_us(entry.runs[-1].end_offset - 1) if entry.runs else newest_us
                self._entries[producer_id] = replace(entry, appended_us=shown_us)

    def _replay_batch(
        self, header: BatchHeader, base_offset: int, end_offset: int, appended_us: int
    ) -> None:
        run = None
        if header.base_sequence != NO_SEQUENCE and not header.is_control:
            run = SequenceRun(header.base_sequence, base_offset, end_offset - base_offset)
        self._add(header.producer_id, header.producer_epoch, run, appended_us)

    def _add(self, producer_id: int, epoch: int, run: SequenceRun | None, appended_us: int) -> None:
        entry = self._entries.get(producer_id)
        if entry is None or entry.epoch != epoch:
            # An older epoch, too: it may write when the newer one's entry has expired.
            entry = ProducerEntry(epoch, (), appended_us)
        entry = (
            replace(entry, appended_us=max(appended_us, entry.appended_us))
            if run is None
            else entry.with_run(run, appended_us)
        )
        self._entries[producer_id] = entry
