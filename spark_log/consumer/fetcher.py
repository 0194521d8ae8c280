"""The fetcher: one thread that reads ahead, in bounded memory, the partitions in turns.

It reads a partition until so much of it waits as ``max.partition.fetch.bytes`` allows, then it is
the next one's turn. A log's end is looked at when the operating system hints that something
appeared in its directory, and from time to time without a hint: no answer depends on hints.

A client that has a quota pauses after a turn that was too much. (A Kafka broker answers such a
fetch with nothing, and after the pause with what it read: on average it is the same.)
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from spark_log.config import ConsumerConfig
from spark_log.consumer.coordinator_metrics import Latency
from spark_log.consumer.fetch_cursor import FetchCursor
from spark_log.consumer.fetched_batch import FetchedBatch, FetchedRows
from spark_log.consumer.look_interval import look_interval_ms
from spark_log.errors import SparkLogError, StorageError
from spark_log.log import PartitionLog
from spark_log.log.tail_reader import ProbeInterval
from spark_log.metadata.quotas import ClientQuota
from spark_log.storage import Store
from spark_log.storage.directory_watch import DirectoryWatch, watch_directories
from spark_log.types import TopicPartition

_log = logging.getLogger(__name__)

_IDLE_MS: Final = 10_000.0
_MOST_BACKOFF_MS: Final = 1_000.0
_JOIN_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Taken:
    """What the fetcher hands over.

    Attributes:
        rows: in order of their offsets within a partition.
        positions: where reading goes on behind them; also of partitions where there was nothing
            to show.
        failure: a partition that cannot be read on, and why; only without rows.
    """

    rows: list[FetchedRows]
    positions: dict[TopicPartition, int]
    failure: tuple[TopicPartition, Exception] | None = None

    def __bool__(self) -> bool:
        return bool(self.rows or self.failure)


class Fetcher:
    """Reads ahead on a thread of its own, which begins with the first partition.

    One thread calls it; `wake` may be called by any.
    """

    def __init__(
        self,
        store: Store,
        config: ConsumerConfig,
        *,
        watch: DirectoryWatch | None = None,
        also_watched: str = "",
        now_ms: Callable[[], float],
    ) -> None:
        """Begin with nothing to read.

        Args:
            store: where the logs lie.
            config: the consumer's.
            watch: gives hints; None for what the store has.
            also_watched: one more directory: see `take_notice`.
            now_ms: monotonic time.
        """
        self._config = config
        self._watch = watch or watch_directories(store)
        self._probes = ProbeInterval.of(store)
        self._now_ms = now_ms
        self._cursors: dict[TopicPartition, FetchCursor] = {}
        self._by_directory: dict[str, FetchCursor] = {}
        self._queue: deque[FetchCursor] = deque()
        self._ready: deque[FetchCursor] = deque()
        self._waiting_bytes = 0
        self._waiting_since_ms = 0.0
        self._news_ms = now_ms()
        self._changed = threading.Condition()
        self._is_sleeping = False
        self._is_woken = False
        self._is_noticed = False
        self._is_closed = False
        self._fatal: BaseException | None = None
        self._thread: threading.Thread | None = None
        # A thread that waits for an object store cannot be called back: it ends with its request.
        self._join_s = None if store.is_mapped else _JOIN_S
        self._also_watched = also_watched
        self.fetches = 0
        self._quota = ClientQuota()
        self._throttle_times = Latency(now_ms)
        if also_watched:
            self._watch.add(also_watched)

    # --- what is read ----------------------------------------------------------------------------

    def add(self, partition: TopicPartition, log: PartitionLog, offset: int) -> None:
        """Read a partition from an offset on.

        Args:
            partition: which; not one that is being read.
            log: for this fetcher alone.
            offset: where to begin.
        """
        cursor = FetchCursor(partition, log, offset)
        with self._changed:
            self._cursors[partition] = cursor
            self._by_directory[log.directory] = cursor
            self._enqueue(cursor)

    def remove(self, partition: TopicPartition) -> None:
        """Stop reading a partition; what waits of it is let go. Harmless where it is not read."""
        with self._changed:
            cursor = self._cursors.pop(partition, None)
            if cursor is None:
                return
            self._forget(cursor, -1)
            if self._by_directory.get(cursor.log.directory) is cursor:
                del self._by_directory[cursor.log.directory]
                self._watch.remove(cursor.log.directory)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on reading a partition at another offset; what waits of it is let go."""
        with self._changed:
            cursor = self._cursors[partition]
            self._forget(cursor, offset)
            self._enqueue(cursor)

    def renew(self, partition: TopicPartition, log: PartitionLog) -> None:
        """Go on with a handle that knows the topic's settings as they are now."""
        with self._changed:
            cursor = self._cursors.get(partition)
            if cursor is not None:
                cursor.log = log
                cursor.version += 1  # what is just being read with the other one is read again
                self._enqueue(cursor)

    def pause(self, partition: TopicPartition) -> None:
        """Hand out and fetch nothing of a partition; what waits of it is kept."""
        with self._changed:
            cursor = self._cursors[partition]
            if not cursor.is_paused:
                cursor.is_paused = True
                self._waiting_bytes -= cursor.waiting_bytes  # else they would keep out all others
                self._wake_thread()

    def resume(self, partition: TopicPartition) -> None:
        """End a `pause`."""
        with self._changed:
            cursor = self._cursors[partition]
            if cursor.is_paused:
                cursor.is_paused = False
                self._waiting_bytes += cursor.waiting_bytes
                self._make_ready(cursor)
                self._enqueue(cursor)

    def keep_quota(self, bytes_per_second: int) -> None:
        """Fetch no more than so many bytes a second from now on, on average."""
        with self._changed:
            if bytes_per_second != self._quota.bytes_per_second:
                self._quota.change(bytes_per_second)
                self._wake_thread()

    def figures(self) -> dict[str, float]:
        """Return how often was fetched, and the pauses after it, under Kafka's names."""
        return {"fetch-total": self.fetches, **self._throttle_times.figures("fetch-throttle-time")}

    def end_offset(self, partition: TopicPartition) -> int | None:
        """Return the log's end as it was seen last, None where it was not."""
        with self._changed:
            cursor = self._cursors.get(partition)
            return None if cursor is None or cursor.end_offset < 0 else cursor.end_offset

    # --- handing out -----------------------------------------------------------------------------

    def take(self, max_records: int | None, timeout_ms: float) -> Taken:
        """Return rows that were fetched, waiting for them if there are none.

        A partition is handed out batch by batch in turns with the others. Records before an error
        come first.

        Args:
            max_records: at most so many; None: all that wait.
            timeout_ms: how long to wait. The answer is also empty after `wake`, and when there is
                something to notice.

        Raises:
            BaseException: the fetching thread has died of it.
        """
        deadline_ms = self._now_ms() + timeout_ms
        self._begin()
        with self._changed:
            while True:
                if self._fatal is not None:
                    raise self._fatal
                now_ms = self._now_ms()
                held_ms = self._held_ms(now_ms)
                if held_ms <= 0:
                    taken = self._take(max_records)
                    if taken or taken.positions:
                        return taken
                if self._is_closed or self._is_woken or self._is_noticed or now_ms >= deadline_ms:
                    self._is_woken = False
                    return Taken([], {})
                wait_ms = deadline_ms - now_ms
                self._changed.wait((min(wait_ms, held_ms) if held_ms > 0 else wait_ms) / 1000)

    def wake(self) -> None:
        """End a `take` that waits, or the next one that would."""
        with self._changed:
            self._is_woken = True
            self._changed.notify_all()

    def take_notice(self) -> bool:
        """Return whether something appeared in ``also_watched`` since the last call."""
        with self._changed:  # what is noticed between looking and clearing must not be lost
            noticed, self._is_noticed = self._is_noticed, False
        return noticed

    def close(self) -> None:
        """End the thread; everything that waits is let go. Harmless when done twice."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._watch.wake()
        if self._thread is None:
            self._watch.close()
        elif self._thread is not threading.current_thread():  # as a finalizer may be
            self._thread.join(self._join_s)

    def _held_ms(self, now_ms: float) -> float:
        """Return how long what waits is held back, since it is less than ``fetch.min.bytes``."""
        if self._waiting_bytes >= self._config.fetch_min_bytes or not self._ready:
            return 0.0
        if any(cursor.error is not None for cursor in self._ready):
            return 0.0
        return self._waiting_since_ms + self._config.fetch_max_wait_ms - now_ms

    def _take(self, max_records: int | None) -> Taken:
        rows: list[FetchedRows] = []
        positions: dict[TopicPartition, int] = {}
        left = max_records if max_records is not None else 2**62
        while self._ready and left > 0:
            cursor = self._ready[0]
            if not self._is_assigned(cursor) or cursor.is_paused:
                self._unready()
            elif cursor.waiting:
                batch = cursor.waiting[0]
                if batch.rows_left:
                    taken = batch.take(left)
                    rows.append(taken)
                    positions[cursor.partition] = taken.next_offset
                    left -= taken.count
                if not batch.rows_left:
                    positions[cursor.partition] = batch.next_offset
                    self._drop_first(cursor)
                    self._ready.rotate(-1)
            elif cursor.error is None:
                self._unready()
            elif rows:
                break  # what came before the error first
            else:
                self._ready.rotate(-1)  # it stays, until a seek
                return Taken([], positions, (cursor.partition, cursor.error))
        return Taken(rows, positions)

    def _make_ready(self, cursor: FetchCursor) -> None:
        if not cursor.is_ready and (cursor.waiting or cursor.error is not None):
            cursor.is_ready = True
            self._ready.append(cursor)

    def _unready(self) -> None:
        self._ready.popleft().is_ready = False

    def _drop_first(self, cursor: FetchCursor) -> None:
        """Drop the first batch of a partition, and let more be fetched in its place."""
        was_full = not self._has_room()
        batch = cursor.waiting.popleft()
        cursor.waiting_bytes -= batch.size_bytes
        self._waiting_bytes -= batch.size_bytes
        if was_full or not cursor.due_ms:  # else it is in the queue already, for later
            self._enqueue(cursor)

    def _forget(self, cursor: FetchCursor, offset: int) -> None:
        """Drop all that waits of a partition, and begin at another offset."""
        freed_bytes = cursor.seek(offset)
        if freed_bytes and not cursor.is_paused:
            self._waiting_bytes -= freed_bytes
            self._wake_thread()

    # --- fetching --------------------------------------------------------------------------------

    def _begin(self) -> None:
        if self._thread is None:
            name = f"spark-log-fetcher-{self._config.client_id}".rstrip("-")
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()

    def _enqueue(self, cursor: FetchCursor) -> None:
        """Give a partition its place in the queue, if it has none; under the lock."""
        if not cursor.is_queued:
            cursor.is_queued = True
            self._queue.append(cursor)
        self._wake_thread()

    def _wake_thread(self) -> None:
        if self._is_sleeping:
            self._is_sleeping = False
            self._watch.wake()

    def _run(self) -> None:
        try:
            while not self._is_closed:
                for cursor in self._due():
                    if self._is_throttled():  # by what was fetched just now of another one
                        with self._changed:
                            self._enqueue(cursor)
                        continue
                    self._fetch(cursor)
                    if self._is_closed:
                        return
        except BaseException as error:
            with self._changed:
                self._fatal = error
                self._changed.notify_all()
        finally:
            self._watch.close()

    def _due(self) -> list[FetchCursor]:
        """Return partitions to fetch from now; waits where there are none."""
        with self._changed:
            found, pause_ms = self._pick()
            self._is_sleeping = pause_ms > 0
        hints = self._watch.wait(pause_ms)
        if not pause_ms and not hints:
            return found
        with self._changed:
            self._is_sleeping = False
            if self._also_watched in hints:
                self._is_noticed = True
                self._changed.notify_all()
            for directory in hints:
                cursor = self._by_directory.get(directory)
                if cursor is not None:
                    cursor.due_ms = 0.0
                    if cursor in found or self._is_throttled():
                        continue
                    if self._may_fetch(cursor) and self._has_room():
                        found.insert(0, cursor)
        return found

    def _pick(self) -> tuple[list[FetchCursor], float]:
        """Return the first partition of the queue that is due, or how long to wait."""
        now_ms = self._now_ms()
        pause_ms = _IDLE_MS
        if not self._has_room():
            return [], pause_ms
        if self._quota.is_throttled(now_ms):
            return [], min(pause_ms, self._quota.throttled_until_ms - now_ms)
        for _ in range(len(self._queue)):
            cursor = self._queue.popleft()
            cursor.is_queued = False
            if not self._may_fetch(cursor):
                continue  # it is put back by what makes it fetchable again
            if cursor.due_ms <= now_ms:
                return [cursor], 0.0
            pause_ms = min(pause_ms, cursor.due_ms - now_ms)
            cursor.is_queued = True
            self._queue.append(cursor)
        return [], pause_ms

    def _may_fetch(self, cursor: FetchCursor) -> bool:
        """Whether a partition is to be read on, as far as it itself goes; under the lock."""
        return (
            self._is_assigned(cursor)
            and not cursor.is_paused
            and cursor.error is None
            and (
                not cursor.waiting or cursor.waiting_bytes < self._config.max_partition_fetch_bytes
            )
        )

    def _has_room(self) -> bool:
        """Whether memory is left for more; under the lock. One batch always has room."""
        return not self._waiting_bytes or self._waiting_bytes < self._config.fetch_max_bytes

    def _is_throttled(self) -> bool:
        return self._quota.is_throttled(self._now_ms())

    def _is_assigned(self, cursor: FetchCursor) -> bool:
        return self._cursors.get(cursor.partition) is cursor

    def _fetch(self, cursor: FetchCursor) -> None:
        """Read one partition's turn.

        What is read of it is handed over together, since to wake the other thread costs as much as
        to read a small batch; but at the log's end at once.
        """
        with self._changed:
            if not self._is_assigned(cursor):
                return
            version, offset, at_once = cursor.version, cursor.offset, cursor.is_at_end
            left_bytes = self._config.max_partition_fetch_bytes - cursor.waiting_bytes
            left_bytes = most_bytes = min(left_bytes, self._quota.most_bytes)
        self.fetches += 1
        fetched: list[FetchedBatch] = []
        try:
            if not cursor.gives_hints and self._watch.gives_hints:
                cursor.gives_hints = self._watch.add(cursor.log.directory)
            if cursor.stream is None or cursor.stream[0] != version:
                batches = cursor.log.read_on(offset, check_crcs=self._config.check_crcs)
                cursor.stream = version, batches
            for batch, next_offset in cursor.stream[1]:
                shown = None if batch is None or batch.is_control else batch
                fetched.append(FetchedBatch(cursor.partition, shown, next_offset))
                left_bytes -= fetched[-1].size_bytes
                if at_once or left_bytes <= 0:
                    goes_on = self._publish(cursor, version, fetched)
                    fetched, at_once = [], False
                    if left_bytes <= 0 or not goes_on:
                        break
            else:
                cursor.stream = None
                self._publish(cursor, version, fetched)
                self._at_end(cursor, version)
                return
            with self._changed:
                self._enqueue(cursor)
        except Exception as error:
            cursor.stream = None
            self._publish(cursor, version, fetched)
            self._failed(cursor, version, error)
        finally:
            self._count(most_bytes - left_bytes)

    def _count(self, fetched_bytes: int) -> None:
        """Keep the quota: pause, if this was too much."""
        if fetched_bytes:
            with self._changed:
                throttle_ms = self._quota.record(fetched_bytes, self._now_ms())
                self._throttle_times.note(throttle_ms)

    def _publish(self, cursor: FetchCursor, version: int, fetched: list[FetchedBatch]) -> bool:
        """Hand batches over; returns whether the partition's turn goes on."""
        if not fetched:
            return True
        with self._changed:
            if cursor.version != version or self._is_closed:
                return False
            cursor.failures = 0
            cursor.due_ms = 0.0
            cursor.is_at_end = False
            now_ms = self._now_ms()
            if not self._ready:
                self._waiting_since_ms = now_ms
            for each in fetched:
                if each.batch is None and each.next_offset == cursor.offset:
                    continue  # the end of a segment
                self._news_ms = now_ms
                cursor.offset = each.next_offset
                cursor.waiting.append(each)
                cursor.waiting_bytes += each.size_bytes
                if not cursor.is_paused:
                    self._waiting_bytes += each.size_bytes
            cursor.end_offset = max(cursor.end_offset, cursor.offset)
            self._make_ready(cursor)
            if self._ready:
                self._changed.notify_all()
            return self._may_fetch(cursor) and self._has_room()

    def _at_end(self, cursor: FetchCursor, version: int) -> None:
        with self._changed:
            if cursor.version == version:
                now_ms = self._now_ms()
                cursor.is_at_end = True
                cursor.end_offset = cursor.offset
                cursor.due_ms = now_ms + look_interval_ms(
                    self._probes,
                    waited_ms=now_ms - self._news_ms,
                    looks=len(self._cursors),
                    gives_hints=cursor.gives_hints,
                )
            self._enqueue(cursor)

    def _failed(self, cursor: FetchCursor, version: int, error: Exception) -> None:
        with self._changed:
            if cursor.version != version:
                self._enqueue(cursor)
            elif _may_pass(error):
                self.retry_later(cursor.partition, error)
            else:
                cursor.error = error
                self._make_ready(cursor)
                self._changed.notify_all()

    def retry_later(self, partition: TopicPartition, error: Exception) -> None:
        """Read a partition again from where it stands, after ``retry.backoff.ms`` or more."""
        with self._changed, suppress(KeyError):
            cursor = self._cursors[partition]
            backoff_ms = self._config.retry_backoff_ms * 2 ** min(cursor.failures, 16)
            cursor.failures += 1
            cursor.error = None
            cursor.due_ms = self._now_ms() + min(backoff_ms, _MOST_BACKOFF_MS)
            if cursor.failures == 1:
                _log.warning("%s cannot be read just now, trying again: %s", partition, error)
            self._enqueue(cursor)

    def partitions(self) -> Iterable[TopicPartition]:
        """Return what is being read."""
        return tuple(self._cursors)


def _may_pass(error: Exception) -> bool:
    """Whether a failed read is tried again in the background; a refusal is the user's to know."""
    if isinstance(error, StorageError):
        return not isinstance(error.__cause__, PermissionError)
    return isinstance(error, SparkLogError) and error.retriable
