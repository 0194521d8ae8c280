"""Fetched batches that wait to be handed out, in bounded memory (Kafka's FetchBuffer)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from spark_log.config import ConsumerConfig
from spark_log.consumer.fetch.completed_fetch import CompletedFetch, Fetch
from spark_log.consumer.fetch.fetch_cursor import FetchCursor

_NO_LIMIT = 2**62


class FetchBuffer:
    """Hands out batches of the partitions in turn, one batch each, partitions with few rows first.

    The batches are in the partitions' `FetchCursor`; the buffer keeps the order of the partitions
    and counts bytes. Batches of paused partitions are kept but not counted, because otherwise they
    would stop the fetching of all others. The caller holds the fetcher's lock.

    Attributes:
        waiting_bytes: the size of the buffered batches of partitions that are not paused.
        held_bytes: the approximate memory that these batches hold.
    """

    def __init__(self, config: ConsumerConfig, enqueue: Callable[[FetchCursor], None]) -> None:
        """Start empty.

        Args:
            config: the consumer's config.
            enqueue: the function that is called with a partition that can be fetched again because
                one of its batches was handed out.
        """
        self._config = config
        self._enqueue = enqueue
        self._ready: deque[FetchCursor] = deque()
        self._waiting_since_ms = 0.0
        self.waiting_bytes = self.held_bytes = 0

    def has_room(self) -> bool:
        """Return whether more may be fetched; an empty buffer takes a batch of any size."""
        return not self.held_bytes or self.held_bytes < self._config.fetch_max_bytes

    def is_empty(self) -> bool:
        """Return whether no partition has a batch or an error to hand out."""
        return not self._ready

    def hold_ms(self, now_ms: float) -> float:
        """Return the milliseconds that `take` has to wait for ``fetch.min.bytes``; 0 or less: none.

        Positions pass markers and aborted records without waiting.
        """
        if self.waiting_bytes >= self._config.fetch_min_bytes or not self.waiting_bytes:
            return 0.0
        if any(cursor.error is not None for cursor in self._ready):
            return 0.0
        return self._waiting_since_ms + self._config.fetch_max_wait_ms - now_ms

    def add(self, cursor: FetchCursor, fetched: Iterable[CompletedFetch], now_ms: float) -> bool:
        """Buffer batches that continue at the cursor's offset, and advance the cursor.

        Returns:
            Whether anything was added: an empty read at the end of a segment is skipped.
        """
        if not self.waiting_bytes:
            self._waiting_since_ms = now_ms
        size_bytes, held_bytes = cursor.completed_bytes, cursor.held_bytes
        is_added = cursor.extend(fetched)
        if not cursor.is_paused:
            self._count(cursor.completed_bytes - size_bytes, cursor.held_bytes - held_bytes)
        self.make_ready(cursor)
        return is_added

    def make_ready(self, cursor: FetchCursor) -> None:
        """Queue a partition for `take` if it has a batch or an error and is not queued yet."""
        if not cursor.is_ready and (cursor.completed or cursor.error is not None):
            cursor.is_ready = True
            self._ready.append(cursor)

    def pause(self, cursor: FetchCursor) -> None:
        """Stop handing out a partition; its batches are kept."""
        cursor.pause()
        self._count(-cursor.completed_bytes, -cursor.held_bytes)

    def resume(self, cursor: FetchCursor) -> None:
        """Hand out a paused partition again."""
        cursor.resume()
        self._count(cursor.completed_bytes, cursor.held_bytes)
        self.make_ready(cursor)

    def discard(self, cursor: FetchCursor, offset: int) -> bool:
        """Drop all batches of a partition and continue at ``offset``.

        Returns:
            Whether there is more room than before.
        """
        size_bytes, held_bytes = cursor.completed_bytes, cursor.held_bytes
        cursor.seek(offset)
        if not held_bytes or cursor.is_paused:
            return False
        self._count(-size_bytes, -held_bytes)
        return True

    def _count(self, size_bytes: int, held_bytes: int) -> None:
        self.waiting_bytes += size_bytes
        self.held_bytes += held_bytes

    def take(self, max_records: int | None) -> Fetch:
        """Return buffered rows, and positions that pass offsets without visible rows.

        Such offsets are control batches, aborted batches and gaps. Rows before an error are
        returned before the error.

        With a limit, each of n partitions has a share of one n-th of the rows. A partition that has
        no more than its share is handed out first, with all of its rows. The rest goes to the
        others, one batch of each in turn, and a partition of which a part of a batch was taken
        waits for all others. So with n partitions each one is handed out in n calls at most.

        Args:
            max_records: the maximum number of rows; None for all rows that are buffered.
        """
        fetch = Fetch([], {})
        left = max_records if max_records is not None else _NO_LIMIT
        if max_records is not None and not self._begins_with_error():
            left -= self._take_few(max_records, fetch)
        while self._ready and left > 0:
            cursor = self._ready[0]
            if not cursor.is_assigned or cursor.is_paused:
                self._unready()
            elif cursor.completed:
                left -= self._take_rows(cursor, left, fetch)
                self._ready.rotate(-1)
            elif cursor.error is None:
                self._unready()
            elif fetch.positions:
                break  # they are returned first, the error by the next call
            else:
                self._ready.rotate(-1)  # the error stays until a seek
                return Fetch([], {}, (cursor.partition, cursor.error))
        for cursor in self._ready:
            # A position does not stop before a marker because max_records was reached there.
            while cursor.partition in fetch.positions and cursor.completed:
                if cursor.completed[0].rows_left:
                    break
                self._take_rows(cursor, 0, fetch)
        return fetch

    def _begins_with_error(self) -> bool:
        """Whether the next partition has an error and no rows: it is not overtaken forever."""
        cursor = self._ready[0] if self._ready else None
        return cursor is not None and cursor.error is not None and not cursor.completed

    def _take_few(self, max_records: int, fetch: Fetch) -> int:
        """Take all rows of each partition that has few of them; return their number."""
        taken = 0
        share = max_records // len(self._ready) if self._ready else 0
        for cursor in self._ready if share else ():
            if cursor.is_assigned and not cursor.is_paused and cursor.rows_left <= share:
                while cursor.completed:
                    taken += self._take_rows(cursor, share, fetch)
        return taken

    def _take_rows(self, cursor: FetchCursor, max_rows: int, fetch: Fetch) -> int:
        """Take rows of a partition's first batch, and drop it after its last row.

        Returns:
            The number of rows; 0 if the batch has none.
        """
        batch, count = cursor.completed[0], 0
        if batch.rows_left:
            taken = cursor.take(max_rows)
            fetch.rows.append(taken)
            fetch.positions[cursor.partition] = taken.next_offset
            count = taken.count
        if not batch.rows_left:
            fetch.positions[cursor.partition] = batch.next_offset
            self._drop_first(cursor)
        return count

    def _unready(self) -> None:
        self._ready.popleft().is_ready = False

    def _drop_first(self, cursor: FetchCursor) -> None:
        """Drop the first batch of a partition, and let the fetching thread read more."""
        was_full = not self.has_room()
        batch = cursor.drop_first()
        self._count(-batch.size_bytes, -batch.memory_bytes)
        if was_full or not cursor.due_ms:  # otherwise it is in the thread's queue, for later
            self._enqueue(cursor)
