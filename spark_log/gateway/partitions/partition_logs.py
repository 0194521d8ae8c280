"""The logs of one partition, for the threads of a gateway: appends, reads and lookups."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

from spark_log.config import TopicConfig
from spark_log.gateway.partitions.log_cursor import LogCursor
from spark_log.gateway.partitions.produced_batch import ProducedBatch, batch_appends, codec_of
from spark_log.gateway.partitions.tail_cache import CachedBatch
from spark_log.gateway.record_batches import with_base_offset
from spark_log.log import IsolationLevel, LogAppendInfo, LogView, MergeExecutor, PartitionLog
from spark_log.threads import MergeThread

_Answer = TypeVar("_Answer")

MAX_CURSORS: Final = 8
"""Reads of one partition that are kept open between two fetches."""


@dataclass(frozen=True, slots=True)
class Appended:
    """The outcome of one append.

    Attributes:
        base_offset: the first offset that was put; -1 if nothing was put.
        end_offset: the offset after the last one that was put or found.
        is_transactional: whether a batch of a transaction was put.
        batches: the batches that were put, for readers; none if the log has other bytes.
    """

    base_offset: int
    end_offset: int
    is_transactional: bool
    batches: tuple[CachedBatch, ...]


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
        max_uncompressed_bytes: int,
    ) -> None:
        """Open nothing yet.

        Args:
            open_log: opens the partition's log; its argument ``merge_executor`` runs merges.
            config: the topic's settings.
            merges: the thread of the merges that appends make due.
            max_uncompressed_bytes: the largest size of the records of one append, without the
                clients' compression.
        """
        self._open_log = open_log
        self._merges = merges
        self._config = config
        self._max_uncompressed_bytes = max_uncompressed_bytes
        self._append_lock = threading.Lock()
        self._appends: PartitionLog | None = None
        self._tail_lock = threading.Lock()
        self._tail: PartitionLog | None = None
        self._cursors: OrderedDict[tuple[int, IsolationLevel], LogCursor] = OrderedDict()
        self._cursor_lock = threading.Lock()

    # --- appends ---------------------------------------------------------------------------------

    def append(self, produced: Sequence[ProducedBatch]) -> Appended:
        """Append batches by one put if they can share it, and set the result of each."""
        with self._append_lock:
            if self._appends is None:
                merges = MergeExecutor(self._merges.submit, self._merges.pause)
                self._appends = self._open_log(merge_executor=merges)
            max_bytes = self._config.max_message_bytes
            parsed = [each for each in produced if each.result is None and each.parse(max_bytes)]
            accepted, appends = batch_appends(parsed, self._max_uncompressed_bytes)
            if not accepted:
                return Appended(-1, 0, False, ())
            with self._merges.make_way():
                results = self._appends.append_batches(appends, compression=codec_of(accepted))
        put = []
        end_offset = 0
        for each, result in zip(accepted, results, strict=True):
            each.finish(result)
            if isinstance(result, LogAppendInfo):
                end_offset = max(end_offset, result.last_offset + 1)
                if not result.is_duplicate:
                    put.append((each, result))
        if not put:
            return Appended(-1, end_offset, False, ())
        base_offset = min(result.base_offset for _, result in put)
        with self._tail_lock:
            if self._tail is not None:
                self._tail.on_appended(base_offset, end_offset)
        return Appended(
            base_offset,
            end_offset,
            any(each.transactional_id is not None for each, _ in put),
            self._cached(put),
        )

    def _cached(
        self, put: Sequence[tuple[ProducedBatch, LogAppendInfo]]
    ) -> tuple[CachedBatch, ...]:
        if self._config.message_timestamp_type == "LogAppendTime":
            return ()
        batches = []
        for each, info in sorted(put, key=lambda pair: pair[1].base_offset):
            batch = each.batch
            if batch is None or batch.is_transactional:
                continue
            data = with_base_offset(batch.data, info.base_offset, info.leader_epoch)
            batches.append(
                CachedBatch(info.base_offset, info.last_offset + 1, data, batch.compression_type)
            )
        return tuple(batches)

    # --- the log's end ---------------------------------------------------------------------------

    def observe(self) -> LogView:
        """List the log."""
        with self._watched() as tail:
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

    @contextmanager
    def _watched(self) -> Iterator[PartitionLog]:
        with self._tail_lock:
            if self._tail is None:
                self._tail = self._open_log()
            yield self._tail

    def call(self, look_up: Callable[[PartitionLog], _Answer]) -> _Answer:
        """Return what a function finds in the log."""
        with self._watched() as tail:
            return look_up(tail)

    # --- reads -----------------------------------------------------------------------------------

    def read(
        self, offset: int, max_bytes: int, isolation_level: IsolationLevel, known_end: int
    ) -> tuple[list[bytes | bytearray], int]:
        """Return Kafka's batches from an offset on, and the offset after them.

        Args:
            offset: the first offset.
            max_bytes: the largest size of all batches; there is at least one record, of any size.
            isolation_level: ``read_committed`` ends at the last stable offset.
            known_end: the known end of the log. If the read gets past it, the end is watched from
                there on.

        Raises:
            OffsetOutOfRangeError: the offset is not in the log.
            CorruptRecordError: a segment is damaged.
            StorageError: the log cannot be read.
        """
        with self._cursor_lock:
            cursor = self._cursors.pop((offset, isolation_level), None)
        if cursor is None:
            cursor = LogCursor(self._open_log(), offset, isolation_level)
        parts = cursor.read(max_bytes)  # after an error the cursor is dropped
        if cursor.next_offset > known_end:
            with self._tail_lock:
                if self._tail is not None:
                    self._tail.on_appended(known_end, cursor.next_offset)
        with self._cursor_lock:
            self._cursors[cursor.next_offset, isolation_level] = cursor
            while len(self._cursors) > MAX_CURSORS:
                self._cursors.popitem(last=False)
        return parts, cursor.next_offset
