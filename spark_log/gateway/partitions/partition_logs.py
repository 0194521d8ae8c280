"""The logs of one partition, for the threads of a gateway: appends, reads and lookups."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from spark_log.config import TopicConfig
from spark_log.consumer import Resolve
from spark_log.errors import SparkLogError
from spark_log.gateway.partitions.log_cursor import LogCursor, skipping_batch
from spark_log.gateway.partitions.log_cursors import LogCursors
from spark_log.gateway.partitions.produced_batch import ProducedBatch, append_produced
from spark_log.gateway.partitions.tail_cache import CachedBatch
from spark_log.gateway.record_batches import CompressionType, with_base_offset
from spark_log.log import (
    BatchAppend,
    IsolationLevel,
    LogAppendInfo,
    LogView,
    MergeExecutor,
    PartitionLog,
)
from spark_log.record import EndTransactionMarker
from spark_log.threads import MergeThread

if TYPE_CHECKING:
    from spark_log.log.stripe import StripeReader

_Answer = TypeVar("_Answer")

_ALL: Final = -1
"""``acks``: an append has ended when all in-sync replicas have it."""


@dataclass(frozen=True, slots=True)
class Appended:
    """The outcome of one append.

    Attributes:
        base_offset: the first offset that was put; -1 if nothing was put.
        end_offset: the offset after the last one that was put; if nothing was put, after the last
            one that was found, which may lie inside of a segment.
        is_transactional: whether a batch of a transaction was put.
        batches: the batches that were put, for readers; none if the log has other bytes.
        is_replicated: whether readers see them: all in-sync replicas have them.
        leader_epochs: the leader epochs of the batches that were put.
        stable: the last stable offset, and the log's end that it belongs to; None if not known.
    """

    base_offset: int
    end_offset: int
    is_transactional: bool
    batches: tuple[CachedBatch, ...]
    is_replicated: bool = True
    leader_epochs: frozenset[int] = frozenset()
    stable: tuple[int, int] | None = None


def appended_of(
    results: Sequence[tuple[ProducedBatch, LogAppendInfo | SparkLogError]],
    config: TopicConfig,
    *,
    is_replicated: bool = True,
    stable: tuple[int, int] | None = None,
) -> Appended:
    """Return the outcome of an append to one partition.

    Args:
        results: the batches of the partition, and their results.
        config: the topic's settings.
        is_replicated: whether all in-sync replicas have the batches.
        stable: the last stable offset, and the log's end that it belongs to; None if not known.
    """
    put = []
    end_offset = 0
    for each, result in results:
        if isinstance(result, LogAppendInfo):
            end_offset = max(end_offset, result.last_offset + 1)
            if not result.is_duplicate:
                put.append((each, result))
    if not put:
        return Appended(-1, end_offset, False, ())
    return Appended(
        min(result.base_offset for _, result in put),
        max(result.last_offset for _, result in put) + 1,
        any(each.transactional_id is not None for each, _ in put),
        _cached(put, config),
        is_replicated,
        frozenset(result.leader_epoch for _, result in put),
        stable,
    )


def _cached(
    put: Sequence[tuple[ProducedBatch, LogAppendInfo]], config: TopicConfig
) -> tuple[CachedBatch, ...]:
    """Return the batches as readers get them; none if the log has other bytes."""
    if config.message_timestamp_type == "LogAppendTime":
        return ()
    batches = []
    for each, info in sorted(put, key=lambda pair: pair[1].base_offset):
        if each.batch is None:
            continue
        data = with_base_offset(each.batch.data, info.base_offset, info.leader_epoch)
        end_offset, codec = info.last_offset + 1, each.batch.compression_type
        batches.append(CachedBatch(info.base_offset, end_offset, data, codec, each.transaction))
    return tuple(batches)


class LogRead(NamedTuple):
    """Batches that were read from a log.

    Attributes:
        parts: Kafka's batches, one after the other.
        next_offset: the offset after them.
        is_at_end: whether the log ends there.
        is_late: whether there may be more, which was not read because the time was over.
    """

    parts: list[bytes | bytearray]
    next_offset: int
    is_at_end: bool
    is_late: bool


class PartitionLogs:
    """Opens the logs of one partition as they are needed. Any thread may call it.

    Appends have a log of their own, and so has the end of the log, which is watched, and each read.
    """

    def __init__(
        self,
        open_log: Callable[..., PartitionLog],
        config: TopicConfig,
        *,
        merges: MergeThread,
        cursors: LogCursors,
        max_uncompressed_bytes: int,
        resolve: Resolve,
        partition: int = 0,
        stripe: StripeReader | None = None,
    ) -> None:
        """Open nothing yet.

        Args:
            open_log: opens the partition's log; its argument ``merge_executor`` runs merges.
            config: the topic's settings.
            merges: the thread of the merges that appends make due.
            cursors: the reads of all partitions that are kept open between two fetches.
            max_uncompressed_bytes: the largest size of the records of one append, without the
                clients' compression.
            resolve: ends a transaction that blocks readers, if its producer is gone.
            partition: the partition's number.
            stripe: what the process has read of the partition's stripe, which others poll; None if
                the partition has a log of its own.
        """
        self._partition = partition
        self._stripe = stripe
        self._resolve = resolve
        self._open_log = open_log
        self._merges = merges
        self._config = config
        self._max_uncompressed_bytes = max_uncompressed_bytes
        self._append_lock = threading.Lock()
        self._appends: PartitionLog | None = None
        self._due_snapshots: list[Callable[[], None]] = []
        self._tail_lock = threading.Lock()
        self._tail: PartitionLog | None = None
        self._cursors = cursors
        self._is_closed = False

    @property
    def is_compacted(self) -> bool:
        """Whether cleaners remove records of the topic that have a newer one with their key."""
        return "compact" in self._config.cleanup_policy

    def close(self) -> None:
        """Drop the reads that are kept open. A read that is under way ends as others do."""
        self._is_closed = True
        self._cursors.drop(self)

    # --- appends ---------------------------------------------------------------------------------

    def append(self, produced: Sequence[ProducedBatch]) -> Appended:
        """Append batches by one put if they can share it, and set the result of each.

        If none of them waits for all replicas, they may be on the leader alone when this returns.
        Then `catch_up` has to be called.
        """
        is_replicated = True
        stable: tuple[int, int] | None = None

        def put(
            accepted: Sequence[ProducedBatch], appends: Sequence[BatchAppend], codec: str
        ) -> Sequence[LogAppendInfo | SparkLogError]:
            nonlocal is_replicated, stable
            with self._appending() as log:
                if not any(each.waits_for_all for each in accepted):
                    is_replicated = not log.states.current().is_replicated
                acks = _ALL if is_replicated else 1
                with self._merges.make_way():
                    found = log.append_batches(appends, compression=codec, acks=acks)
                stable = log.appended_stable_offset
            return found

        results = append_produced(
            produced,
            put,
            max_bytes=self._config.max_message_bytes,
            max_uncompressed_bytes=self._max_uncompressed_bytes,
        )
        appended = appended_of(results, self._config, is_replicated=is_replicated, stable=stable)
        if is_replicated and appended.base_offset >= 0:
            self._on_visible(appended)
        return appended

    @property
    def has_due_snapshot(self) -> bool:
        """Whether an append has made a snapshot due, which it has left to `write_snapshot`."""
        return bool(self._due_snapshots)

    def write_snapshot(self) -> None:
        """Write the snapshot that is due. It lists the log, and takes as long as many appends."""
        with self._append_lock:
            while self._due_snapshots:
                self._due_snapshots.pop()()

    @contextmanager
    def _appending(self) -> Iterator[PartitionLog]:
        """Lend the log that appends have, opened when the first one needs it."""
        with self._append_lock:
            if self._appends is None:
                merges = MergeExecutor(
                    self._merges.submit, self._merges.pause, self._due_snapshots.append
                )
                self._appends = self._open_log(merge_executor=merges)
            yield self._appends

    @property
    def has_appended(self) -> bool:
        """Whether the log that appends have is open, and may know its end."""
        return self._appends is not None

    @property
    def is_quick(self) -> bool:
        """Whether an append waits for nothing but the processor (`PartitionLog.is_quick`)."""
        return self._appends is not None and self._appends.is_quick

    @property
    def directory(self) -> str:
        """The partition's directory, relative to a root, for messages."""
        return "" if self._appends is None else self._appends.directory

    def append_markers(
        self, markers: Sequence[EndTransactionMarker]
    ) -> tuple[LogAppendInfo | None, Appended]:
        """Append the markers of transactions that the log does not have, by one put.

        Raises:
            SparkLogError: See `PartitionLog.append_markers`.
        """
        with self._appending() as log:
            with self._merges.make_way():
                info = log.append_markers(markers)
            if info is None:
                return None, Appended(-1, 0, False, ())
            end_offset = info.last_offset + 1
            data = skipping_batch(info.base_offset, end_offset)
            cached = CachedBatch(info.base_offset, end_offset, data, CompressionType.NONE)
            appended = Appended(
                info.base_offset, end_offset, True, (cached,), stable=log.appended_stable_offset
            )
        self._on_visible(appended)
        return info, appended

    def catch_up(self, appended: Appended) -> bool:
        """Bring the other replicas up to an append that was put on the leader alone.

        Returns:
            Whether all in-sync replicas have the append now. False if there is another leader
            epoch, so that the append may be lost: only the log tells.

        Raises:
            SparkLogError: not all of them have it; the next append, or a reader, does it.
        """
        with self._append_lock:
            assert self._appends is not None
            self._appends.catch_up()
            is_kept = appended.leader_epochs == {self._appends.states.current().leader_epoch}
        if is_kept:
            self._on_visible(appended)
        return is_kept

    def _on_visible(self, appended: Appended) -> None:
        with self._tail_lock:
            if self._tail is not None:
                self._tail.on_appended(appended.base_offset, appended.end_offset)

    # --- the log's end ---------------------------------------------------------------------------

    def observe(self) -> LogView:
        """List the log; of a stripe, with the end that the last poll has shown."""
        with self._watched() as tail:
            if self._stripe is not None:
                return tail.observe_polled()
            return tail.observe(keeps_for_next_read=True)

    def ends_at(self, offset: int) -> bool:
        """Return whether the log still ends at an offset; False also if only a listing can tell."""
        with self._watched() as tail:
            return tail.tail_ends_at(offset)

    def last_stable_offset(self) -> tuple[LogView, int]:
        """List the log, and return its view and last stable offset."""
        with self._watched() as tail:
            view = tail.observe(keeps_for_next_read=True)
            return view, tail.end_offset(view, isolation_level="read_committed")

    def resolve_blocking(self) -> bool:
        """End the transaction that blocks readers, if its producer is gone; return whether it has.

        It is aborted when its timeout has passed since the first of these calls.
        """
        with self._watched() as tail:
            if self._stripe is not None:
                _, blocking = self._stripe.known_end(self._partition)
            else:
                open_ones = tail.transactions().open
                blocking = min(open_ones, key=lambda each: each.first_offset, default=None)
            return blocking is not None and self._resolve(blocking, tail)

    @contextmanager
    def _watched(self) -> Iterator[PartitionLog]:
        with self._tail_lock:
            if self._tail is None:
                self._tail = self._open_to_read()
            try:
                yield self._tail
            finally:
                self._tail.forget_last()  # records are read by other logs

    def _open_to_read(self) -> PartitionLog:
        log = self._open_log()
        log.leave_polls()
        return log

    def call(self, look_up: Callable[[PartitionLog], _Answer]) -> _Answer:
        """Return what a function finds in the log."""
        with self._watched() as tail:
            return look_up(tail)

    # --- reads -----------------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        max_bytes: int,
        isolation_level: IsolationLevel,
        known_end: int,
        has_time: Callable[[], bool],
    ) -> LogRead:
        """Return Kafka's batches from an offset on.

        Args:
            offset: the first offset.
            max_bytes: the largest size of all batches; there is at least one record, of any size.
            isolation_level: ``read_committed`` ends at the last stable offset.
            known_end: the known end of the log. If the read comes to a later one, that is watched
                from now on.
            has_time: returns whether to look for more than what was found so far.

        Raises:
            OffsetOutOfRangeError: the offset is not in the log.
            CorruptRecordError: a segment is damaged.
            StorageError: the log cannot be read.
        """
        cursor = self._cursors.take(self, offset, isolation_level)
        if cursor is None:
            cursor = LogCursor(self._open_to_read(), offset, isolation_level)
        if self._stripe is not None:  # this gateway may have appended since the last poll
            self._stripe.reach(self._partition, known_end)
        parts = cursor.read(max_bytes, has_time)  # after an error the cursor is dropped
        if cursor.is_at_end and cursor.next_offset > known_end:
            with self._tail_lock:
                if self._tail is not None:
                    self._tail.on_appended(known_end, cursor.next_offset)
        if not self._is_closed:
            self._cursors.keep(self, cursor)
        return LogRead(parts, cursor.next_offset, cursor.is_at_end, cursor.is_late)
