"""The state of a partition's idempotent producers (Kafka's ``ProducerStateManager``).

It is derived from batch headers alone, in offset order: two processes that replay the same headers
have the same state. Thus each writer decides before its put, without a broker, whether an append is
a duplicate, leaves a gap in the sequence, or comes from a fenced producer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final

from spark_log.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    SparkLogError,
)
from spark_log.log.producers.producer_entry import NOT_LISTED_US, ProducerEntry, SequenceRun
from spark_log.log.producers.transaction_index import TransactionIndex
from spark_log.record import (
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
    EndTransactionMarker,
    ProducerAppend,
)

_MIN_GROWTH: Final = 1_000
"""Minimum number of new producers before a state is rebuilt: about 600 KB."""


class ProducerState:
    """The state of a partition's producers after all records before `offset`.

    Attributes:
        transactions: the open transactions of the producers, and the aborted ones.
        compaction_generation: the newest compaction of the listing that the state is replayed on;
            None before that.
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
        self.compaction_generation: int | None = None
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
                are added for producers that have none in this state. Runs of earlier epochs are
                added, too.
        """
        self.transactions = replayed.transactions
        for producer_id, found in replayed._entries.items():
            entry = self._entries.setdefault(producer_id, found)
            if entry.epoch == found.epoch and not entry.earlier_runs and found.earlier_runs:
                self._entries[producer_id] = replace(entry, earlier_runs=found.earlier_runs)
        self._mark_open()

    def _mark_open(self) -> None:
        """Set the open transactions of the entries."""
        for each in self.transactions.open:
            entry = self._entries.get(each.producer_id)
            if entry is not None and entry.first_transaction_offset is None:
                entry = replace(entry, first_transaction_offset=each.first_offset)
                self._entries[each.producer_id] = entry

    @property
    def count(self) -> int:
        """Number of producers."""
        return len(self._entries)

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

    def replay_next(self, producer_id: int, epoch: int, base_sequence: int, count: int) -> bool:
        """Replay the batch behind the last record, if that is simple: a shorter way than `replay`.

        It is simple for records outside of a transaction, of a producer that is known in this epoch
        or of none. No listing has shown the batch.

        Args:
            producer_id: the producer's id; `NO_PRODUCER_ID` without one.
            epoch: the producer's epoch.
            base_sequence: sequence number of the first record.
            count: number of records.

        Returns:
            Whether it was replayed. If not, `replay` has to do it.
        """
        transactions = self.transactions
        if producer_id != NO_PRODUCER_ID:
            entry = self._entries.get(producer_id)
            if entry is None or entry.epoch != epoch or not entry.runs:
                return False
            if base_sequence == NO_SEQUENCE:
                return False
            run = SequenceRun(base_sequence, transactions.offset, count)
            self._entries[producer_id] = entry.with_run(run, NOT_LISTED_US)
        transactions.offset += count
        return True

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
        """Return the runs of earlier identities that the append's sequence follows."""
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
        sequence number, as in Kafka: its records may have been deleted. If the sequence
        follows that of earlier identities (protocol A18), those must have no entry either.

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

    def decide(
        self,
        append: ProducerAppend,
        record_count: int,
        check: Callable[[ProducerAppend], None],
    ) -> int | SparkLogError | None:
        """Return the offset of a repeat, the error that refuses an append, or None: append it.

        Args:
            append: the append.
            record_count: its number of records.
            check: function that calls `check` of this state with the caller's time and directory.
        """
        offset = self.find(append, record_count)
        if offset is not None:
            return offset
        try:
            check(append)
        except (OutOfOrderSequenceError, InvalidProducerEpochError, InvalidTxnStateError) as error:
            return error
        return None

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
