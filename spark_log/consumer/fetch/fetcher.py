"""The fetcher: reads the assigned partitions ahead, on a thread of its own and in bounded memory.

It starts the thread and joins it. What the thread does is in `FetchLoop`. On an object store other
threads read the partitions that have more than the thread found when it probed them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from random import Random
from typing import Final

from spark_log.config import ConsumerConfig
from spark_log.consumer.fetch.completed_fetch import Fetch
from spark_log.consumer.fetch.fetch_cursor import FetchCursor
from spark_log.consumer.fetch.fetch_loop import FetchLoop
from spark_log.consumer.fetch.transaction_resolver import Resolve
from spark_log.consumer.latency import Latency
from spark_log.log import PartitionLog
from spark_log.storage import DirectoryWatch, Store, watch_directories
from spark_log.threads import in_new_thread
from spark_log.types import TopicPartition

_JOIN_S: Final = 0.1


class Fetcher:
    """The consumer's side of the fetching thread: partitions in, rows out.

    The thread starts with the first `collect_fetch`. One thread at a time calls the methods; `wake`
    may be called by any thread.
    """

    def __init__(
        self,
        store: Store,
        config: ConsumerConfig,
        *,
        watch: DirectoryWatch | None = None,
        also_watched: str = "",
        now_ms: Callable[[], float],
        resolve: Resolve | None = None,
    ) -> None:
        """Start with no partitions and no thread.

        Args:
            store: the storage of the logs.
            config: the consumer's config.
            watch: the watch that reports changed directories; None for the store's watch.
            also_watched: one more directory to watch, for `consume_metadata_hint`.
            now_ms: the function that returns monotonic time in milliseconds.
            resolve: the function that ends transactions that block partitions; called by one
                fetching thread at a time.
        """
        self._config = config
        self._now_ms = now_ms
        self._watch = watch or watch_directories(store)
        self._changed = threading.Condition()
        self._cursors: dict[TopicPartition, FetchCursor] = {}
        self._loop = FetchLoop(
            store,
            config,
            self._changed,
            self._watch,
            also_watched=also_watched,
            on_hint=self._on_metadata_hint,
            now_ms=now_ms,
            random=Random(),
            resolve=resolve,
            read_beside=None if store.is_local else self._read_beside,
        )
        self._buffer = self._loop.buffer
        self._thread_name = f"spark-log-fetcher-{config.client_id}".rstrip("-")
        self._is_woken = False
        self._has_hint = False
        self._is_closed = False
        self._fatal: BaseException | None = None
        self._thread: threading.Thread | None = None
        # A request to an object store cannot be interrupted: the thread ends after its request.
        self._join_s = None if store.is_local else _JOIN_S

    # --- partitions ------------------------------------------------------------------------------

    def add(self, partition: TopicPartition, log: PartitionLog, offset: int) -> None:
        """Read a partition, starting at an offset.

        Args:
            partition: a partition that is not read yet.
            log: a handle that only this fetcher uses.
            offset: the first offset to read.
        """
        cursor = FetchCursor(partition, log, offset)
        with self._changed:
            self._cursors[partition] = cursor
            self._loop.add(cursor)

    def remove(self, partition: TopicPartition) -> None:
        """Stop reading a partition and drop its batches. Does nothing if it is not read."""
        with self._changed:
            cursor = self._cursors.pop(partition, None)
            if cursor is not None:
                self._discard(cursor, -1)
                self._loop.remove(cursor)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue a partition at another offset and drop its batches."""
        with self._changed:
            cursor = self._cursors[partition]
            self._discard(cursor, offset)
            self._loop.enqueue(cursor)

    def update_log(self, partition: TopicPartition, log: PartitionLog) -> None:
        """Continue a partition with a handle that has the topic's current settings."""
        with self._changed:
            cursor = self._cursors.get(partition)
            if cursor is not None:
                self._loop.use_log(cursor, log)

    def pause(self, partition: TopicPartition) -> None:
        """Neither fetch nor hand out a partition; its batches are kept."""
        with self._changed:
            cursor = self._cursors[partition]
            if not cursor.is_paused:
                self._buffer.pause(cursor)
                self._loop.wake()

    def resume(self, partition: TopicPartition) -> None:
        """Fetch and hand out a paused partition again."""
        with self._changed:
            cursor = self._cursors[partition]
            if cursor.is_paused:
                self._buffer.resume(cursor)
                self._loop.enqueue(cursor)

    def retry_later(self, partition: TopicPartition, error: Exception) -> None:
        """Read a partition again from its offset, after a pause that grows with each failure."""
        with self._changed, suppress(KeyError):
            self._loop.retry_later(self._cursors[partition], error)

    def set_quota(self, bytes_per_second: int) -> None:
        """Fetch at most this many bytes per second on average."""
        with self._changed:
            self._loop.set_quota(bytes_per_second)

    def end_offset(self, partition: TopicPartition) -> int | None:
        """Return the offset up to which a partition can be read, as it was last known.

        This is the log end offset, or with ``read_committed`` the last stable offset; None if the
        partition was not read yet.
        """
        with self._changed:
            cursor = self._cursors.get(partition)
            return None if cursor is None or cursor.end_offset < 0 else cursor.end_offset

    def high_watermark(self, partition: TopicPartition) -> int | None:
        """Return the last known log end offset, None if the partition was not read yet."""
        with self._changed:
            cursor = self._cursors.get(partition)
            if cursor is None or cursor.end_offset < 0:
                return None
            return max(cursor.end_offset, cursor.log.reached_offset)

    @property
    def throttle_times(self) -> Latency:
        """The pauses by the client's quota."""
        return self._loop.throttle_times

    def metrics(self) -> dict[str, float]:
        """Return the number of fetches and the throttle times, by Kafka's names."""
        return self._loop.metrics()

    # --- handing out -----------------------------------------------------------------------------

    def collect_fetch(self, max_records: int | None, timeout_ms: float) -> Fetch:
        """Return fetched rows; wait for them if there are none.

        Partitions are handed out in turn, batch by batch. The method does not wait if a position
        has moved past batches without visible rows. Rows before an error are returned before the
        error.

        Args:
            max_records: the maximum number of rows; None for all rows that are buffered.
            timeout_ms: the maximum time to wait. The result is also empty after `wake` and after a
                metadata hint.

        Raises:
            BaseException: the error that ended the fetching thread.
        """
        deadline_ms = self._now_ms() + timeout_ms
        self._begin()
        with self._changed:
            while True:
                if self._fatal is not None:
                    raise self._fatal
                now_ms = self._now_ms()
                hold_ms = self._buffer.hold_ms(now_ms)
                if hold_ms <= 0:
                    fetch = self._buffer.take(max_records)
                    if fetch:
                        return fetch
                if self._is_closed or self._is_woken or self._has_hint or now_ms >= deadline_ms:
                    self._is_woken = False
                    return Fetch([], {})
                wait_ms = deadline_ms - now_ms
                self._changed.wait((min(wait_ms, hold_ms) if hold_ms > 0 else wait_ms) / 1000)

    def wake(self) -> None:
        """End the current wait of `collect_fetch`, or its next one. Any thread may call this."""
        with self._changed:
            self._is_woken = True
            self._changed.notify_all()

    def consume_metadata_hint(self) -> bool:
        """Return whether ``also_watched`` changed since the last call."""
        with self._changed:  # a hint between the read and the reset must not be lost
            has_hint, self._has_hint = self._has_hint, False
        return has_hint

    def close(self) -> None:
        """End the thread and drop all batches. Does nothing if already closed."""
        with self._changed:
            self._is_closed = True
            self._loop.close()
            self._changed.notify_all()
        self._watch.wake()
        if self._thread is None:
            self._watch.close()
        elif self._thread is not threading.current_thread():  # a finalizer may run on any thread
            self._thread.join(self._join_s)

    def _discard(self, cursor: FetchCursor, offset: int) -> None:
        if self._buffer.discard(cursor, offset):
            self._loop.wake()

    def _on_metadata_hint(self) -> None:
        self._has_hint = True
        self._changed.notify_all()

    def _begin(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._thread_name, daemon=True)
            self._thread.start()

    def _run(self) -> None:
        with self._reported():
            try:
                self._loop.run()
            finally:
                self._watch.close()

    def _read_beside(self, turn: Callable[[], None]) -> None:
        """Run a turn on a thread of its own, which ends with its request, as the thread does."""

        def read() -> None:
            with self._reported():
                turn()

        in_new_thread(read, f"{self._thread_name}-beside")

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Let `collect_fetch` raise an error that ends a thread."""
        try:
            yield
        except BaseException as error:
            with self._changed:
                self._fatal = error
                self._changed.notify_all()
