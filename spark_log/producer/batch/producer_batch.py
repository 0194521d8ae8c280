"""A batch of records of one partition, which are acknowledged or fail together."""

from __future__ import annotations

import logging
import threading
from bisect import bisect_left
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa

from spark_log.types import RecordMetadata

_log = logging.getLogger(__name__)

Record = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None, int]
"""Key, value, headers and timestamp (nanoseconds) of a waiting record."""

RECORD_FIELDS: Final = 4
"""Number of items per record in a batch's flat list. Unlike a list of tuples, a flat list costs the
garbage collector nothing, and its columns are slices."""

NO_OFFSET = -1


class ProducerBatch:
    """Records of one partition, in order (Kafka's ``ProducerBatch``).

    A record is added under the accumulator's lock, by extending one list once: an asynchronous
    exception such as Ctrl-C never leaves half a record. A batch is done once, as a whole. Records
    that the topic refuses are dropped before that, each with its own error.

    Attributes:
        topic: the topic's name.
        partition: the partition's number.
        records: the records of `Producer.send`, as a flat list of `RECORD_FIELDS` items each.
        table: the rows of `Producer.send_table`, in a batch without ``records``.
        room_bytes: bytes that still fit into the batch.
        reserved_bytes: bytes of ``buffer.memory`` that are allocated for the batch.
        is_claimed: whether a thread is finishing the batch.
        is_given_up: whether the batch fails without having been appended: no append takes it any
            more.
        created_ms: monotonic time from which ``linger.ms`` and ``delivery.timeout.ms`` count.
    """

    __slots__ = (
        "_base_offset",
        "_callbacks",
        "_error",
        "_is_done",
        "_latch",
        "_mutex",
        "_refused",
        "_refused_rows",
        "_row_count",
        "_times_us",
        "created_ms",
        "is_claimed",
        "is_given_up",
        "partition",
        "records",
        "reserved_bytes",
        "room_bytes",
        "table",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        *,
        created_ms: float,
        room_bytes: int = 0,
        reserved_bytes: int = 0,
        table: pa.RecordBatch | None = None,
    ) -> None:
        """Create a batch without records, or with the rows of a table."""
        self.topic = topic
        self.partition = partition
        self.records: list[Any] = []
        self.table = table
        self.room_bytes = room_bytes
        self.reserved_bytes = reserved_bytes
        self.created_ms = created_ms
        self.is_claimed = False
        self.is_given_up = False
        self._base_offset = NO_OFFSET
        self._row_count = -1
        self._times_us: np.ndarray | None = None
        self._error: Exception | None = None
        self._refused: dict[int, Exception] = {}
        self._refused_rows: list[int] = []
        self._is_done = False
        self._callbacks: list[Callable[[], object]] = []
        self._mutex = threading.Lock()
        # Held until the batch is done; then each waiting thread takes and releases it.
        self._latch = threading.Lock()
        self._latch.acquire()

    @property
    def is_over(self) -> bool:
        """Whether no append may take the batch any more."""
        return self._is_done or self.is_given_up

    @property
    def record_count(self) -> int:
        """Number of records that were added, including refused ones."""
        if self._row_count >= 0:
            return self._row_count
        if self.table is not None:
            return int(self.table.num_rows)
        return len(self.records) // RECORD_FIELDS

    @property
    def refused_count(self) -> int:
        """Number of records that the topic refused."""
        return len(self._refused)

    @property
    def is_done(self) -> bool:
        """Whether the batch is acknowledged or has failed."""
        return self._is_done

    @property
    def base_offset(self) -> int:
        """Offset of the first appended record; -1 if unknown (``acks=0``, or the batch failed)."""
        return self._base_offset

    @property
    def error(self) -> Exception | None:
        """The error of the whole batch; None if it has not failed."""
        return self._error

    # --- for futures -----------------------------------------------------------------------------

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until the batch is done; return False after the timeout. None: no timeout."""
        if self._is_done:
            return True
        if not self._latch.acquire(timeout=-1 if timeout_s is None else max(0.0, timeout_s)):
            return self._is_done
        self._latch.release()
        return True

    def error_of(self, row: int) -> Exception | None:
        """Return the error of a record of a done batch; None if it was acknowledged."""
        return self._refused.get(row, self._error)

    def refused(self) -> list[tuple[int, Exception]]:
        """Return the rows that the topic refused, each with its error."""
        return [(row, self._refused[row]) for row in self._refused_rows]

    def metadata_of(self, row: int) -> RecordMetadata:
        """Return the metadata of an acknowledged record."""
        index = row - bisect_left(self._refused_rows, row)
        offset = self._base_offset + index if self._base_offset != NO_OFFSET else NO_OFFSET
        assert self._times_us is not None
        timestamp_ms = int(self._times_us[index]) // 1000
        return RecordMetadata(self.topic, self.partition, offset, timestamp_ms)

    def call_when_done(self, function: Callable[[], object]) -> None:
        """Call a function when the batch is done, at once if it is done already."""
        with self._mutex:
            if not self._is_done:
                self._callbacks.append(function)
                return
        _call(function)

    # --- for the sender --------------------------------------------------------------------------

    def refuse(self, errors: dict[int, Exception]) -> None:
        """Drop records, given as ``{row: error}``, from the append."""
        self._refused.update(errors)
        self._refused_rows = sorted(self._refused)

    def acknowledge(self, base_offset: int, times_us: np.ndarray | None = None) -> bool:
        """Acknowledge all records except refused ones; return False if the batch was done before.

        Args:
            base_offset: offset of the first record; -1: unknown (``acks=0``).
            times_us: the records' timestamps in the log, int64; None: the timestamps of `records`.
        """
        if times_us is None and self.table is None:
            times_us = np.array(self.records[3::RECORD_FIELDS], np.int64) // 1000
        return self._end(base_offset, times_us, None)

    def fail(self, error: Exception) -> bool:
        """Fail all records except refused ones; return False if the batch was done before."""
        return self._end(NO_OFFSET, None, error)

    def _end(self, base_offset: int, times_us: np.ndarray | None, error: Exception | None) -> bool:
        with self._mutex:
            if self._is_done:
                return False
            self._base_offset, self._times_us, self._error = base_offset, times_us, error
            self._is_done = True
            callbacks, self._callbacks = self._callbacks, []
        self._latch.release()
        for function in callbacks:
            _call(function)
        return True

    def fail_in_child(self, error: Exception) -> None:
        """Fail in a forked child, where the threads that may hold the locks do not exist."""
        self._mutex = threading.Lock()
        self._callbacks = []
        self._error, self._is_done = error, True
        self._latch = threading.Lock()

    def release_records(self) -> None:
        """Free the records, so that a kept future does not keep them in memory."""
        self._row_count = self.record_count
        self.records, self.table = [], None


def _call(function: Callable[[], object]) -> None:
    try:
        function()
    except Exception:
        _log.exception("a callback of a record's future failed")
