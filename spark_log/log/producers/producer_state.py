"""The state of a partition's idempotent producers (Kafka's ``ProducerStateManager``).

It is derived from batch headers alone, in offset order: two processes that replay the same headers
have the same state. Thus each writer decides before its put, without a broker, whether an append is
a duplicate, leaves a gap in the sequence, or comes from a fenced producer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from spark_log.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
)
from spark_log.log.producers.transaction_index import TransactionIndex
from spark_log.record import (
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    SEQUENCES,
    BatchHeader,
    EndTransactionMarker,
    ProducerAppend,
    sequence_after,
)

MAX_RUNS: Final = 5
"""Number of runs kept for one producer (``ProducerStateEntry.NUM_BATCHES_TO_RETAIN``)."""

_MAX_RUN_RECORDS: Final = SEQUENCES // 2
"""Maximum records of one run. Older ones are dropped, so that a sequence number is unique in it."""

_MIN_GROWTH: Final = 1_000
"""Minimum number of new producers before a state is rebuilt: about 600 KB."""

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
            of a client that keeps its epoch after a transaction go on from them (protocol A18).
            Dropped when a sequence begins with 0; at most `MAX_RUNS`.
    """

    epoch: int
    runs: tuple[SequenceRun, ...]
    appended_us: int
    first_transaction_offset: int | None = None
    earlier_runs: tuple[tuple[int, SequenceRun], ...] = ()

    def with_run(self, run: SequenceRun, appended_us: int) -> ProducerEntry:
        """Return the entry with one more run of this epoch."""
        runs = self.runs
        # The run may continue several runs: those that a compaction left of batches which a
        # concurrent merge has joined.
        while runs and (joined := runs[-1].extended(run)) is not None:
            runs, run = runs[:-1], joined
        runs = (*runs, run)[-MAX_RUNS:]
        return replace(self, runs=runs, appended_us=max(appended_us, self.appended_us))

    @property
    def all_runs(self) -> tuple[tuple[int, SequenceRun], ...]:
        """The runs of earlier epochs and of this one, in order, each with its epoch."""
        return (*self.earlier_runs, *((self.epoch, run) for run in self.runs))

    def in_epoch(self, header: BatchHeader, appended_us: int) -> ProducerEntry:
        """Return the entry in the epoch of the producer's next batch."""
        earlier = self.earlier_runs
        if header.producer_epoch > self.epoch:
            earlier = self.all_runs[-MAX_RUNS:]
        elif header.producer_epoch == self.epoch and self.runs:
            return self
        elif header.producer_epoch < self.epoch:
            # It may write when the entry of the newer epoch has expired.
            earlier = ()
        if not header.is_control and header.base_sequence in (0, NO_SEQUENCE):
            earlier = ()
        if header.producer_epoch == self.epoch:
            return replace(self, earlier_runs=earlier)
        return ProducerEntry(
            header.producer_epoch, (), appended_us, self.first_transaction_offset, earlier
        )

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


class ProducerState:
    """The state of a partition's producers after all records before `offset`.

    Attributes:
        transactions: the open transactions of the producers, and the aborted ones.
    """

    def __init__(
        self,
        offset: int = 0,
        entries: Iterable[tuple[int, ProducerEntry]] = (),
        transactions: TransactionIndex | None = None,
    ) -> None:
        """Start with the state at an offset.

        Args:
            offset: the offset after the last replayed record.
            entries: each producer's id and state.
            transactions: the transactions at this offset; None for none.
        """
        self.transactions = TransactionIndex(offset) if transactions is None else transactions
        self._entries = dict(entries)
        self._most_entries = 0
        self.accept_size()
        self._mark_open()

    @property
    def is_overgrown(self) -> bool:
        """Whether the state has far more producers than at first, most of which may have expired.

        Then it is rebuilt from the newest snapshot, which has no expired producers.
        """
        return len(self._entries) > self._most_entries

    def accept_size(self) -> None:
        """Allow the state twice its present number of producers before it counts as overgrown."""
        self._most_entries = 2 * len(self._entries) + _MIN_GROWTH

    @property
    def offset(self) -> int:
        """The offset after the last replayed record."""
        return self.transactions.offset

    @offset.setter
    def offset(self, offset: int) -> None:
        self.transactions.offset = offset

    def complete(self, replayed: ProducerState) -> None:
        """Complete this state by a state at the same offset that has all transactions.

        Args:
            replayed: the state whose transactions replace the ones of this state, and whose entries
                are added for producers that have none in this state.
        """
        self.transactions = replayed.transactions
        self._entries = {**replayed._entries, **self._entries}
        self._mark_open()

    def _mark_open(self) -> None:
        """Set the open transactions of the entries."""
        for each in self.transactions.open:
            entry = self._entries.get(each.producer_id)
            if entry is not None and entry.first_transaction_offset is None:
                entry = replace(entry, first_transaction_offset=each.first_offset)
                self._entries[each.producer_id] = entry

    def entries(self) -> Iterator[tuple[int, ProducerEntry]]:
        """Yield each producer id and its state, in the order of ids."""
        yield from sorted(self._entries.items())

    def replay(
        self, segment_base_offset: int, headers: Iterable[BatchHeader], appended_us: int
    ) -> None:
        """Replay batch headers in offset order. Headers before `offset` are skipped.

        Args:
            segment_base_offset: base of the headers' offset deltas.
            headers: the segment's batch headers.
            appended_us: last-modified time of the segment, by the storage's clock; `NOT_LISTED_US`
                if no listing has shown it.
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
        """Return the offset of this append in the log; None if it is not in the log.

        A compaction may have removed all batches of an append except the last one. Then the append
        is recognised by its end.
        """
        entry = self._entries.get(append.producer_id)
        is_current = entry is not None and entry.epoch == append.producer_epoch
        runs = entry.runs if entry is not None and is_current else ()
        for run in (*reversed(runs), *reversed(self._continued_runs(append))):
            offset = run.offset_of(append.base_sequence, record_count)
            if offset is not None:
                return offset
        if entry is None or not is_current:
            return None
        return entry.offset_by_end(append.base_sequence, record_count)

    def _continued_runs(self, append: ProducerAppend) -> list[SequenceRun]:
        """Return the runs of earlier identities from which the append's sequence goes on."""
        return [
            run
            for origin in append.continues
            if (entry := self._entries.get(origin.producer_id)) is not None
            for epoch, run in entry.all_runs
            if origin.producer_epoch <= epoch
            and (origin.producer_id != append.producer_id or epoch < append.producer_epoch)
        ]

    def _continues_without_run(self, append: ProducerAppend) -> bool:
        """Return whether an earlier identity of the append had a transaction here, but no run.

        Either it wrote nothing here, or what it wrote was deleted.
        """
        return any(
            entry.epoch > origin.producer_epoch
            for origin in append.continues
            if (entry := self._entries.get(origin.producer_id)) is not None
        )

    def is_fenced(self, append: ProducerAppend) -> bool:
        """Return whether a newer epoch of the producer has written."""
        entry = self._entries.get(append.producer_id)
        return entry is not None and append.producer_epoch < entry.epoch

    def has_marker(self, marker: EndTransactionMarker) -> bool:
        """Return whether a marker, or a later epoch of its producer, is in the log.

        The records of the marker's transaction have an older epoch than the marker, and the next
        transaction begins in the marker's epoch, after the marker.
        """
        entry = self._entries.get(marker.producer_id)
        return entry is not None and entry.epoch >= marker.producer_epoch

    def check(self, append: ProducerAppend, *, now_us: int, expiration_ms: int, where: str) -> None:
        """Check that an append that is not a duplicate may be next (``ProducerAppendInfo``).

        A producer without an entry, or with an expired one (protocol A11), may begin with any
        sequence number, as in Kafka: its records may have been deleted. If the sequence goes on
        from earlier identities (protocol A18), those must have no entry either.

        Args:
            append: the append to check.
            now_us: the storage's time, or earlier (protocol C2).
            expiration_ms: ``producer.id.expiration.ms``.
            where: the partition's directory, for error messages.

        Raises:
            InvalidProducerEpochError: a newer epoch of the producer has written.
            InvalidTxnStateError: the producer's transaction is open, and the append does not belong
                to it.
            OutOfOrderSequenceError: the append does not continue the producer's last one, or a new
                epoch does not begin with sequence number 0.
        """
        entry = self._entries.get(append.producer_id)
        if entry is None or entry.is_expired(now_us, expiration_ms):
            self._check_sequence(append, None, where)
            return
        producer_id, epoch = append.producer_id, append.producer_epoch
        if self.is_fenced(append):
            raise InvalidProducerEpochError(
                f"{where}: producer {producer_id} writes in epoch {epoch}, but epoch "
                f"{entry.epoch} has written: a newer instance replaced this one. Stop this one",
                producer_id=producer_id,
                producer_epoch=epoch,
                current_epoch=entry.epoch,
            )
        is_open = entry.first_transaction_offset is not None
        if is_open and not (append.is_transactional and epoch == entry.epoch):
            kind = "transactional" if append.is_transactional else "not transactional"
            raise InvalidTxnStateError(
                f"{where}: producer {producer_id}, epoch {epoch} appends a batch that is {kind}, "
                f"but its transaction of epoch {entry.epoch} is open since offset "
                f"{entry.first_transaction_offset}. Put the marker of this transaction first"
            )
        self._check_sequence(append, entry, where)

    def _check_sequence(
        self, append: ProducerAppend, entry: ProducerEntry | None, where: str
    ) -> None:
        producer_id, epoch = append.producer_id, append.producer_epoch
        expected = self._expected_sequence(append, entry)
        if expected is not None and append.base_sequence != expected:
            raise OutOfOrderSequenceError(
                f"{where}: producer {producer_id}, epoch {epoch} appends from sequence number "
                f"{append.base_sequence}, but {expected} comes next: an earlier append is missing, "
                f"or this one repeats an append that is too old to be recognised",
                producer_id=producer_id,
                base_sequence=append.base_sequence,
                expected_sequence=expected,
            )

    def _expected_sequence(self, append: ProducerAppend, entry: ProducerEntry | None) -> int | None:
        """Return the sequence number that comes next; None if any may.

        Args:
            append: the append.
            entry: the state of its producer id; None without one, or if it has expired.
        """
        if entry is not None and entry.epoch == append.producer_epoch and entry.runs:
            return entry.next_sequence
        runs = self._continued_runs(append)
        if runs:
            return runs[-1].next_sequence
        return None if entry is None or self._continues_without_run(append) else 0

    def without_expired(self, *, now_us: int, expiration_ms: int) -> ProducerState:
        """Return the state without expired producers (KIP-854).

        Args:
            now_us: the storage's time, or earlier. A time in the future would drop producers whose
                appends may still be retried.
            expiration_ms: ``producer.id.expiration.ms``.
        """
        kept = (
            pair for pair in self._entries.items() if not pair[1].is_expired(now_us, expiration_ms)
        )
        return ProducerState(self.offset, kept, self.transactions.copy())

    def before(self, offset: int) -> ProducerState:
        """Return the part of the state at an earlier offset that a replay from there needs.

        A replay of the log from this offset on leads to the present state again. Whatever the
        replay shows by itself is left out, for example producers with five runs after the offset.
        """
        entries = {}
        for producer_id, entry in self._entries.items():
            before = entry.before(offset)
            if before is not None:
                entries[producer_id] = before
        open_ones = (each for each in self.transactions.open if each.first_offset < offset)
        index = TransactionIndex(
            offset, open_transactions=open_ones, is_complete=self.transactions.is_complete
        )
        return ProducerState(offset, entries.items(), index)

    def set_append_times(self, appeared_us: Callable[[int], int], newest_us: int) -> None:
        """Replace `NOT_LISTED_US` times of appends, by a listing that began after these appends.

        Args:
            appeared_us: returns the time when the record at an offset was appended, or a later one.
            newest_us: the newest last-modified time of the listing. No append is newer.
        """
        for producer_id, entry in self._entries.items():
            if entry.appended_us == NOT_LISTED_US:
                shown_us = appeared_us(entry.runs[-1].end_offset - 1) if entry.runs else newest_us
                self._entries[producer_id] = replace(entry, appended_us=shown_us)

    def _replay_batch(
        self, header: BatchHeader, base_offset: int, end_offset: int, appended_us: int
    ) -> None:
        producer_id, epoch = header.producer_id, header.producer_epoch
        entry = self._entries.get(producer_id) or ProducerEntry(epoch, (), appended_us)
        entry = entry.in_epoch(header, appended_us)
        if header.base_sequence != NO_SEQUENCE and not header.is_control:
            run = SequenceRun(header.base_sequence, base_offset, end_offset - base_offset)
            entry = entry.with_run(run, appended_us)
        else:
            entry = replace(entry, appended_us=max(appended_us, entry.appended_us))
        if header.is_transactional:
            self.transactions.on_batch(header, base_offset)
            opened = self.transactions.open_of(producer_id)
            first_offset = None if opened is None else opened.first_offset
            entry = replace(entry, first_transaction_offset=first_offset)
        self._entries[producer_id] = entry
