"""The state of one idempotent producer in a partition (Kafka's ``ProducerStateEntry``)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from spark_log.record import NO_SEQUENCE, SEQUENCES, BatchHeader, sequence_after

MAX_RUNS: Final = 5
"""Number of runs kept for one producer (``ProducerStateEntry.NUM_BATCHES_TO_RETAIN``)."""

_MAX_RUN_RECORDS: Final = SEQUENCES // 2
"""Maximum records of one run. Older ones are dropped, so that a sequence number is unique in it."""

NOT_LISTED_US: Final = 2**63 - 1
"""The time of an append that no listing has shown yet. A producer with this time never expires."""


@dataclass(frozen=True, slots=True)
class SequenceRun:
    """Records of one producer with consecutive offsets and consecutive sequence numbers.

    Kafka keeps the last five batches of a producer. spark-log keeps the last five runs, since an
    append may have many batches, and a merge joins consecutive batches (docs/adr/0006). A single
    batch is a run too, so every duplicate that Kafka recognises is recognised.

    Attributes:
        base_sequence: sequence number of the first record.
        base_offset: offset of the first record.
        record_count: number of offsets, and of sequence numbers, in the run.
    """

    base_sequence: int
    base_offset: int
    record_count: int

    @property
    def end_offset(self) -> int:
        """The offset after the last record's offset."""
        return self.base_offset + self.record_count

    @property
    def next_sequence(self) -> int:
        """The sequence number after the last record's sequence number."""
        return sequence_after(self.base_sequence, self.record_count)

    def offset_of(self, base_sequence: int, record_count: int) -> int | None:
        """Return the offset of the record with a sequence number.

        Returns:
            None if not all ``record_count`` records from this one on are in the run.
        """
        distance = (base_sequence - self.base_sequence) % SEQUENCES
        if distance + record_count > self.record_count:
            return None
        return self.base_offset + distance

    def extended(self, run: SequenceRun) -> SequenceRun | None:
        """Return this run joined with a later one; None if the later run does not continue it.

        The later run may begin with records of this run: since a merge joins batches, one header
        may cover records both before and after the offset of a snapshot.
        """
        distance = run.base_offset - self.base_offset
        if distance > self.record_count:
            return None
        if run.base_sequence != sequence_after(self.base_sequence, distance):
            return None
        base_offset = min(self.base_offset, run.base_offset)
        end_offset = max(self.end_offset, run.end_offset)
        base_offset = max(base_offset, end_offset - _MAX_RUN_RECORDS)
        return SequenceRun(
            sequence_after(self.base_sequence, base_offset - self.base_offset),
            base_offset,
            end_offset - base_offset,
        )


EpochRun = tuple[int, SequenceRun]
"""A run, and its epoch before it."""


@dataclass(frozen=True, slots=True)
class ProducerEntry:
    """The state of one producer (``ProducerStateEntry``).

    Attributes:
        epoch: the producer's newest epoch.
        runs: the last `MAX_RUNS` runs of this epoch, in order; empty after a control batch alone.
        appended_us: when the producer's last batch was appended, or a later time, by the storage's
            clock; `NOT_LISTED_US` until a listing shows it. Kafka takes the records' timestamps
            instead, which may be of last year.
        first_transaction_offset: first offset of its open transaction (``currentTxnFirstOffset``);
            None if no transaction is open. An entry with an open transaction never expires.
        earlier_runs: runs of earlier epochs, in order, each with its epoch: the sequence numbers
            of a client that keeps its epoch after a transaction follow them (protocol A18).
            Dropped when a sequence begins with 0; at most `MAX_RUNS`.
    """

    epoch: int
    runs: tuple[SequenceRun, ...]
    appended_us: int
    first_transaction_offset: int | None = None
    earlier_runs: tuple[EpochRun, ...] = ()

    def with_run(self, run: SequenceRun, appended_us: int) -> ProducerEntry:
        """Return the entry with one more run of this epoch."""
        runs = self.runs
        # The run may continue several runs: those that a compaction left of batches which a
        # concurrent merge has joined.
        while runs and (joined := runs[-1].extended(run)) is not None:
            runs, run = runs[:-1], joined
        return ProducerEntry(
            self.epoch,
            (*runs, run)[-MAX_RUNS:],
            max(appended_us, self.appended_us),
            self.first_transaction_offset,
            self.earlier_runs,
        )

    @property
    def all_runs(self) -> tuple[EpochRun, ...]:
        """The runs of earlier epochs and of this one, in order, each with its epoch."""
        return (*self.earlier_runs, *((self.epoch, run) for run in self.runs))

    def in_epoch(self, header: BatchHeader, appended_us: int) -> ProducerEntry:
        """Return the entry in the epoch of the producer's next batch.

        The epoch may also be an older one: it may write when the entry of the newer one has
        expired, and a replay from an earlier offset sees it again.
        """
        epoch = header.producer_epoch
        if epoch == self.epoch and self.runs:
            return self
        known = [pair for pair in self.all_runs if pair[0] <= epoch]
        runs = tuple(run for of_epoch, run in known if of_epoch == epoch)
        earlier = tuple(pair for pair in known if pair[0] < epoch)[-MAX_RUNS:]
        if not header.is_control and header.base_sequence in (0, NO_SEQUENCE):
            earlier = ()
        if epoch == self.epoch:
            return replace(self, earlier_runs=earlier)
        return ProducerEntry(epoch, runs, appended_us, self.first_transaction_offset, earlier)

    def offset_by_end(self, base_sequence: int, record_count: int) -> int | None:
        """Return the offset of an append that ends where the last run ends; else None.

        The log has all records of the producer up to that end, so the append's earlier records are
        directly before it, unless another run contradicts this.
        """
        if not self.runs or sequence_after(base_sequence, record_count) != self.next_sequence:
            return None
        base_offset = self.runs[-1].end_offset - record_count
        for run in self.runs[:-1]:
            shift = (run.base_sequence - base_sequence) % SEQUENCES
            is_part = (run.base_offset - base_offset) % SEQUENCES == shift
            if not is_part and (
                run.end_offset > base_offset
                or (base_sequence - run.next_sequence) % SEQUENCES >= _MAX_RUN_RECORDS
            ):
                return None
        return base_offset if base_offset >= 0 else None

    def before(self, offset: int) -> ProducerEntry | None:
        """Return the entry that a replay from an earlier offset needs; None if it needs none."""
        cut = [
            (epoch, replace(run, record_count=min(run.end_offset, offset) - run.base_offset))
            for epoch, run in self.all_runs
            if run.base_offset < offset
        ]
        is_whole = not self.all_runs or self.all_runs[-1][1].end_offset <= offset
        if not cut and self.runs:
            return None
        epoch = self.epoch if is_whole or not cut else cut[-1][0]
        runs = tuple(run for of_epoch, run in cut if of_epoch == epoch)
        earlier = tuple(pair for pair in cut if pair[0] != epoch)
        return ProducerEntry(epoch, runs, self.appended_us, earlier_runs=earlier)

    def is_expired(self, now_us: int, expiration_ms: int) -> bool:
        """Return whether the producer may be forgotten (KIP-854).

        Args:
            now_us: the storage's time, or earlier.
            expiration_ms: ``producer.id.expiration.ms``.
        """
        is_old = now_us - self.appended_us >= expiration_ms * 1000
        return is_old and self.first_transaction_offset is None

    @property
    def appended_ms(self) -> int:
        """`appended_us` in milliseconds; -1 if no listing has shown the append yet."""
        return -1 if self.appended_us == NOT_LISTED_US else self.appended_us // 1000

    @property
    def next_sequence(self) -> int:
        """The next sequence number; 0 in an epoch without a run."""
        return self.runs[-1].next_sequence if self.runs else 0
