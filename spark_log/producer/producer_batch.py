"""Records of one partition that are acknowledged, or fail, together: what futures point to."""

from __future__ import annotations

import logging
import threading
from bisect import bisect_left
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from spark_log.types import RecordMetadata

if TYPE_CHECKING:
    from spark_log.producer.record_future import RecordFuture

_logger = logging.getLogger(__name__)

Record = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None, int]
"""Key, value, headers and timestamp (nanoseconds) of a record that waits."""

RECORD_FIELDS: Final = 4
"""Records that wait lie in one flat list, so many items each. Unlike a list of tuples it costs the
garbage collector nothing, and columns are slices of it."""

NO_OFFSET = -1


class ProducerBatch:
    """Records of one partition, in order (Kafka's class of this name).

    Records are added under the accumulator's lock, each by one extension of one list: an exception
    that comes from outside (Ctrl-C) finds a record taken or not taken, never half of one. It ends
    once, as a whole; records that the topic refuses are left out before that, each with an error of
    its own.

    Attributes:
        topic: the topic's name.
        partition: the partition's number.
        records: those that were sent one by one, `RECORD_FIELDS` items each.
        table: instead of them, the rows of a table.
        room_bytes: how much more goes in.
        reserved_bytes: what it takes of ``buffer.memory``.
        is_claimed: somebody sees to its end.
        created_ms: monotonic; from when ``linger.ms`` and ``delivery.timeout.ms`` count.
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
        self.topic = topic
        self.partition = partition
        self.records: list[Any] = []
        self.table = table
        self.room_bytes = room_bytes
        self.reserved_bytes = reserved_bytes
        self.created_ms = created_ms
        self.is_claimed = False
        self._base_offset = NO_OFFSET
        self._row_count = -1
        self._times_us: np.ndarray | None = None
        self._error: Exception | None = None
        self._refused: dict[int, Exception] = {}
        self._refused_rows: list[int] = []
        self._is_done = False
        self._callbacks: list[tuple[RecordFuture, Callable[..., Any]]] = []
        self._mutex = threading.Lock()
        # The batch's one lock to wait for: held until the batch is done, then handed on.
        self._latch = threading.Lock()
        self._latch.acquire()

    @property
    def record_count(self) -> int:
        """How many records it was given."""
        if self._row_count >= 0:
            return self._row_count
        if self.table is not None:
            return int(self.table.num_rows)
        return len(self.records) // RECORD_FIELDS

    @property
    def refused_count(self) -> int:
        """How many of them the topic does not take."""
        return len(self._refused)

    @property
    def is_done(self) -> bool:
        """Whether it is acknowledged or has failed."""
        return self._is_done

    @property
    def base_offset(self) -> int:
        """Offset of the first record that was appended; -1 when that is not known."""
        return self._base_offset

    @property
    def error(self) -> Exception | None:
        """Why all of it failed."""
        return self._error

    # --- the futures' side -----------------------------------------------------------------------

    def wait(self, timeout_s: float | None) -> bool:
        """Return whether the batch was done within the time; None waits for as long as it takes."""
        if self._is_done:
            return True
        if not self._latch.acquire(timeout=-1 if timeout_s is None else max(0.0, timeout_s)):
            return self._is_done
        self._latch.release()
        return True

    def error_of(self, row: int) -> Exception | None:
        """Return why a record failed, None if it did not; the batch is done."""
        return self._refused.get(row, self._error)

    def refused(self) -> list[tuple[int, Exception]]:
        """Return the rows that the topic does not take, each with the reason."""
        return [(row, self._refused[row]) for row in self._refused_rows]

    def metadata_of(self, row: int) -> RecordMetadata:
        """Return where a record is; the batch is done, and the record did not fail."""
        place = row - bisect_left(self._refused_rows, row)
        offset = self._base_offset + place if self._base_offset != NO_OFFSET else NO_OFFSET
        assert self._times_us is not None
        timestamp_ms = int(self._times_us[place]) // 1000
        return RecordMetadata(self.topic, self.partition, offset, timestamp_ms)

    def call_when_done(self, future: RecordFuture, function: Callable[..., Any]) -> None:
        """Call ``function(future)`` when the batch is done: at once if it is."""
        with self._mutex:
            if not self._is_done:
                self._callbacks.append((future, function))
                return
        _call(function, future)

    # --- the sender's side -----------------------------------------------------------------------

    def refuse(self, errors: dict[int, Exception]) -> None:
        """Note that records, by their rows, are not appended, and why."""
        self._refused.update(errors)
        self._refused_rows = sorted(self._refused)

    def acknowledge(self, base_offset: int, times_us: np.ndarray | None = None) -> bool:
        """Note that all but the refused records are in the log; False if it was done before.

        Args:
            base_offset: of the first of them; -1: not known (``acks=0``).
            times_us: the timestamps that they have in the log, int64; None: their own.
        """
        if times_us is None and self.table is None:
            times_us = np.array(self.records[3::RECORD_FIELDS], np.int64) // 1000
        return self._end(base_offset, times_us, None)

    def fail(self, error: Exception) -> bool:
        """Note that all but the refused records failed alike; False if it was done before."""
        return self._end(NO_OFFSET, None, error)

    def _end(self, base_offset: int, times_us: np.ndarray | None, error: Exception | None) -> bool:
        with self._mutex:
            if self._is_done:
                return False
            self._base_offset, self._times_us, self._error = base_offset, times_us, error
            self._is_done = True
            callbacks, self._callbacks = self._callbacks, []
        self._latch.release()
        for future, function in callbacks:
            _call(function, future)
        return True

    def fail_in_child(self, error: Exception) -> None:
        """Fail in a forked child, where whoever held the locks is not any more."""
        self._mutex = threading.Lock()
        self._callbacks = []
        self._error, self._is_done = error, True
        self._latch = threading.Lock()

    def release_records(self) -> None:
        """Hold the records no longer: whoever keeps a future does not keep what it was of."""
        self._row_count = self.record_count
        self.records, self.table = [], None


def _call(function: Callable[..., Any], future: RecordFuture) -> None:
    try:
        function(future)
    except Exception:
        _logger.exception("a callback of a record's future failed")
