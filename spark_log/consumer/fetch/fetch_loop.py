"""The loop of the fetching thread: it reads partitions in turn into the `FetchBuffer`.

`Fetcher` starts the thread and joins it, and hands out what is in the buffer.

A turn of a partition ends when ``max.partition.fetch.bytes`` of it are buffered. On an object store
these may be a hundred requests. There the thread itself only probes the ends of logs: its turn ends
after two segments. A partition that has more to read is read by another thread, some partitions at
once. So a partition with few records never waits for others with many. At the log's end
the thread waits for a hint of the operating system that the partition's directory changed. It also
reads from time to time without a hint: no result depends on hints.

Partitions of a stripe have one end together (`StripeEnd`). The thread probes it for all of them,
and reads those that have got entries. The one whose next record is in the oldest object comes
first, and its turn is over a few objects later. So each object is opened and decoded once for all
partitions (`StripeTurns`).

With ``isolation.level=read_committed`` the end is the last stable offset. The transaction that
begins at that offset is mostly ended by its producer. If the producer is gone, the thread ends it
(`Resolve`).

If the client has a quota, the thread pauses after a turn that exceeded the quota. (A Kafka broker
answers such a fetch with no records, and with the records after the pause; the average rate is the
same.)
"""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

from spark_log.config import ConsumerConfig
from spark_log.consumer.fetch.completed_fetch import CompletedFetch
from spark_log.consumer.fetch.fetch_buffer import FetchBuffer
from spark_log.consumer.fetch.fetch_cursor import Batches, FetchCursor
from spark_log.consumer.fetch.stripe_end import StripeEnd, next_due_ms
from spark_log.consumer.fetch.stripe_turns import StripeTurns
from spark_log.consumer.fetch.transaction_resolver import Resolve
from spark_log.consumer.latency import Latency
from spark_log.errors import (
    AuthorizationError,
    SparkLogError,
    StorageError,
    StripesChangedError,
)
from spark_log.log import OpenTransaction, PartitionLog, ProbeInterval
from spark_log.metadata import ClientQuota
from spark_log.storage import DirectoryWatch, Store
from spark_log.util import retry_pause_ms

_log = logging.getLogger(__name__)

_IDLE_MS: Final = 10_000.0
_HINTED_MIN_MS: Final = 100.0
_HINTED_PER_PARTITION_MS: Final = 15.0
"""Time between two probes of a partition, for each probed partition, if the store gives hints. One
probe takes about 0.08 ms: all probes together use half a percent of a core."""

_BRIEF_SEGMENTS: Final = 2
"""Segments that end a turn of the fetching thread if others read the partitions that have more. The
second one shows that the log grows faster than it is probed."""

_OVERDUE_MS: Final = 50.0
"""Time by which a probe of a stripe may wait for turns of partitions: those that the last probe has
found something for are read before the next one, which takes as long as many of them."""

_READ_BESIDE: Final = 4
"""Maximum number of partitions that other threads read at once."""

_BESIDE_MS: Final = 100.0
"""Time after which a turn of another thread ends if more partitions wait for such a thread."""

_PUBLISH_MS: Final = 10.0
"""Time after which a turn of another thread publishes what it has read, without waiting for its
end."""

_ANNOUNCE_MS: Final = 5.0
"""Minimum time between two notifications of the consumer's thread while partitions of a stripe are
read: to wake another thread for each record takes longer than to make the record."""

_MAX_BATCHES: Final = 1000
"""Maximum number of batches that are published together: batches without visible rows have no size.
"""


ReadBeside = Callable[[Callable[[], None]], None]
"""Calls a function on another thread, once."""


class FetchLoop:
    """The fetching thread's queues of partitions, its quota, and its loop.

    `run` is for the fetching thread. The other methods are called while the fetcher's lock is held,
    by any thread.

    Attributes:
        buffer: receives the fetched batches.
        throttle_times: the pauses by the client's quota.
    """

    def __init__(
        self,
        store: Store,
        config: ConsumerConfig,
        changed: threading.Condition,
        watch: DirectoryWatch,
        *,
        also_watched: str,
        on_hint: Callable[[], None],
        now_ms: Callable[[], float],
        random: Random,
        resolve: Resolve | None = None,
        read_beside: ReadBeside | None = None,
    ) -> None:
        """Start with no partitions.

        Args:
            store: the storage of the logs.
            config: the consumer's config.
            changed: the fetcher's lock; notified when there is something to hand out.
            watch: the watch that reports changed directories.
            also_watched: one more directory; ``on_hint`` is called when it changes.
            on_hint: the function that is called, with the lock held, when ``also_watched`` changes.
            now_ms: the function that returns monotonic time in milliseconds.
            random: the random numbers that vary the pauses between retries.
            resolve: the function that is called at each read that a transaction blocks; None to
                only wait.
            read_beside: the function that runs a turn on another thread, for a store whose requests
                take long; None to read all partitions on the fetching thread.
        """
        self._config = config
        self._changed = changed
        self._watch = watch
        self._also_watched = also_watched
        self._on_hint = on_hint
        self._now_ms = now_ms
        self._random = random
        self._resolve = resolve
        self._resolving = threading.Lock()
        self._read_beside = read_beside
        self._probes = ProbeInterval.of(store, config.fetch_idle_interval_ms)
        self._by_directory: dict[str, FetchCursor] = {}
        self._ends: dict[str, StripeEnd] = {}  # by directory
        self._queue: deque[FetchCursor] = deque()
        self._in_stripes = StripeTurns()
        self._was_in_stripe = False
        self._behind: deque[FetchCursor] = deque()
        self._beside = 0
        self._last_records_ms = now_ms()
        self._announced_ms = -math.inf
        self._is_unannounced = False
        self._next_rested_ms = 0.0
        self._is_sleeping = False
        self._is_closed = False
        self._fetches = 0
        self._quota = ClientQuota()
        self.throttle_times = Latency(now_ms)
        self.buffer = FetchBuffer(config, self.enqueue)
        if also_watched:
            watch.add(also_watched)

    def add(self, cursor: FetchCursor) -> None:
        """Read a partition from now on."""
        cursor.assign(self._now_ms())
        self._by_directory[cursor.log.directory] = cursor
        self._join_stripe(cursor)
        self.enqueue(cursor)

    def use_log(self, cursor: FetchCursor, log: PartitionLog) -> None:
        """Continue a partition with another handle."""
        waits = cursor.waits_for_stripe()
        self._leave_stripe(cursor)
        cursor.use_log(log)
        self._join_stripe(cursor)
        if waits or cursor.stripe is not None:
            cursor.make_due()
        self.enqueue(cursor)

    def remove(self, cursor: FetchCursor) -> None:
        """Stop reading a partition."""
        cursor.unassign()
        if self._by_directory.get(cursor.log.directory) is cursor:
            del self._by_directory[cursor.log.directory]
            self._watch.remove(cursor.log.directory)
        self._leave_stripe(cursor)

    def _join_stripe(self, cursor: FetchCursor) -> None:
        if cursor.stripe is None:
            return
        path = cursor.stripe.directory.path
        end = self._ends.get(path)
        if end is None or end.reader is not cursor.stripe:
            known = () if end is None else end.cursors
            end = self._ends[path] = StripeEnd(cursor.stripe, self._now_ms())
            end.cursors.update(dict.fromkeys(known))
        end.cursors[cursor] = None

    def _leave_stripe(self, cursor: FetchCursor) -> None:
        end = self._end_of(cursor)
        if end is not None:
            end.cursors.pop(cursor, None)
            if not end.cursors:
                del self._ends[end.path]
                self._watch.remove(end.path)

    def _end_of(self, cursor: FetchCursor) -> StripeEnd | None:
        return None if cursor.stripe is None else self._ends.get(cursor.stripe.directory.path)

    def enqueue(self, cursor: FetchCursor) -> None:
        """Queue a partition for reading if it is not queued yet, and wake the thread.

        A partition that is read at the moment is queued when its turn ends. One that waits for its
        stripe is queued when the stripe has more.
        """
        if cursor.waits_for_stripe():
            self.wake()  # it may have been resumed, so that the stripe is probed for it
            return
        if not cursor.is_queued and not cursor.is_read:
            cursor.is_queued = True
            end = self._end_of(cursor)
            if end is not None and not cursor.due_ms and self._in_stripes.add(end, cursor):
                self.wake()
                return
            is_behind = self._read_beside is not None and not cursor.is_at_end
            (self._behind if is_behind else self._queue).append(cursor)
        self.wake()

    def retry_later(self, cursor: FetchCursor, error: Exception) -> None:
        """Read a partition again from its offset, after a pause that grows with each failure."""
        pause_ms = retry_pause_ms(
            cursor.failures + 1,
            initial_ms=self._config.retry_backoff_ms,
            max_ms=self._config.retry_backoff_max_ms,
            random=self._random,
        )
        cursor.on_transient_failure(self._now_ms() + pause_ms)
        if isinstance(error, StripesChangedError):
            self._on_hint()  # the log is opened again, by the topic's present settings
        if cursor.failures == 1:
            _log.warning("%s cannot be read, retrying: %s", cursor.partition, error)
        self.enqueue(cursor)

    def set_quota(self, bytes_per_second: int) -> None:
        """Fetch at most this many bytes per second on average."""
        if bytes_per_second != self._quota.bytes_per_second:
            self._quota.change(bytes_per_second)
            self.wake()

    def metrics(self) -> dict[str, float]:
        """Return the number of fetches and the throttle times, by Kafka's names."""
        return {"fetch-total": self._fetches, **self.throttle_times.metrics("fetch-throttle-time")}

    def wake(self) -> None:
        """End the thread's sleep: there may be something to read."""
        if self._is_sleeping:
            self._is_sleeping = False
            self._watch.wake()

    def close(self) -> None:
        """Let `run` return soon."""
        self._is_closed = True

    # --- the thread ------------------------------------------------------------------------------

    def run(self) -> None:
        """Read until `close`. The lock is not held by the caller."""
        while not self._is_closed:
            self.run_once()

    def run_once(self) -> None:
        """Read one turn of each partition that is due; if none is due, wait once for a hint.

        The wait ends at a hint, at `wake`, or when the next partition is due.
        """
        for cursor in self._due():
            if isinstance(cursor, StripeEnd):
                self._probe(cursor)
            elif cursor.is_beside:
                assert self._read_beside is not None
                self._read_beside(partial(self._turn, cursor))
            elif self._is_throttled():  # the turn of another partition just exceeded the quota
                with self._changed:
                    self.enqueue(cursor)
            else:
                self._turn(cursor)
            if self._is_closed:
                return

    def _due(self) -> list[FetchCursor | StripeEnd]:
        """Return partitions to read, and stripes to probe, now; wait if there are none."""
        with self._changed:
            found, pause_ms = self._pick()
            self._is_sleeping = pause_ms > 0
            if self._is_unannounced and (self._is_sleeping or not self._in_stripes.any()):
                self._announce(self._now_ms())
        hints = self._watch.wait(pause_ms)
        if not pause_ms and not hints:
            return found
        with self._changed:
            self._is_sleeping = False
            if self._also_watched in hints:
                self._on_hint()
            for directory in hints:
                end = self._ends.get(directory)
                if end is not None:
                    end.due_ms = 0.0
                cursor = self._by_directory.get(directory)
                if cursor is not None:
                    cursor.make_due()
                    if cursor in found or self._is_throttled():
                        continue
                    if self._may_fetch(cursor) and self.buffer.has_room():
                        found.insert(0, cursor)
        return found

    def _pick(self) -> tuple[list[FetchCursor | StripeEnd], float]:
        """Return the first queued partition that is due, or the milliseconds to wait.

        A partition to be read beside the thread is first, since its turn takes none of its time.
        Partitions at rest come last, in the order in which they were read, and one at a time.
        """
        now_ms = self._now_ms()
        pause_ms = _IDLE_MS
        if not self.buffer.has_room():
            return [], pause_ms
        if self._quota.is_throttled(now_ms):
            return [], min(pause_ms, self._quota.throttled_until_ms - now_ms)
        while self._behind and self._beside < _READ_BESIDE:
            cursor = self._behind.popleft()
            cursor.is_queued = False
            if cursor.due_ms > now_ms:  # a failed read is retried later
                cursor.is_queued = True
                self._queue.append(cursor)
            elif self._may_fetch(cursor):
                cursor.is_read = cursor.is_beside = True
                self._beside += 1
                return [cursor], 0.0
        # What is known of a stripe is read before more of it is looked for.
        turns, may_fetch = self._in_stripes, self._may_fetch
        ends = [end for end in self._ends.values() if not turns.has(end, may_fetch)]
        due_ms, end = next_due_ms(ends, self._may_fetch)
        if end is not None and due_ms <= now_ms - _OVERDUE_MS:
            return [end], 0.0
        self._was_in_stripe = not self._was_in_stripe  # both have their turns
        picked = self._in_stripes.pop(self._may_fetch) if self._was_in_stripe else None
        if picked is None:
            picked, pause_ms = self._pick_queued(now_ms, min(pause_ms, due_ms - now_ms))
        picked = picked or self._in_stripes.pop(self._may_fetch)
        if picked is not None:
            return [picked], 0.0
        return ([], pause_ms) if end is None or due_ms > now_ms else ([end], 0.0)

    def _pick_queued(self, now_ms: float, pause_ms: float) -> tuple[FetchCursor | None, float]:
        """Return the first queued partition that is due, or at most the milliseconds to wait."""
        rested: FetchCursor | None = None
        for _ in range(len(self._queue)):
            cursor = self._queue.popleft()
            cursor.is_queued = False
            if not self._may_fetch(cursor):
                continue  # it is queued again by the change that makes it fetchable
            due_ms = cursor.due_ms
            if cursor.is_at_rest:
                due_ms = max(due_ms, self._next_rested_ms)
                if due_ms <= now_ms and (rested is None or cursor.due_ms < rested.due_ms):
                    rested = cursor
            elif due_ms <= now_ms:
                return cursor, 0.0
            pause_ms = min(pause_ms, due_ms - now_ms)
            cursor.is_queued = True
            self._queue.append(cursor)
        if rested is None:
            return None, pause_ms
        self._queue.remove(rested)
        rested.is_queued = False
        self._next_rested_ms = now_ms + self._probes.between_rests_ms
        return rested, 0.0

    def _may_fetch(self, cursor: FetchCursor) -> bool:
        return cursor.is_fetchable(self._config.max_partition_fetch_bytes)

    def _is_throttled(self) -> bool:
        return self._quota.is_throttled(self._now_ms())

    def _probe(self, end: StripeEnd) -> None:
        """Look for new entries in a stripe, and queue the partitions that have got some."""
        error: Exception | None = None
        try:
            if not end.gives_hints and self._watch.gives_hints:
                end.gives_hints = self._watch.add(end.path)
            end.reader.poll()
        except Exception as caught:
            error = caught
        with self._changed:
            if error is not None:
                self._probe_failed(end, error)
                return
            end.failures = 0
            now_ms = self._now_ms()
            for cursor in end.take_grown():
                end.records_ms = now_ms
                cursor.make_due()
                self.enqueue(cursor)
            if end.gives_hints:
                pause_ms = _HINTED_MIN_MS
            else:
                pause_ms = end.pause_ms(self._probes, now_ms, len(self._ends))
            end.due_ms = now_ms + pause_ms

    def _probe_failed(self, end: StripeEnd, error: Exception) -> None:
        """Probe again later; after a lasting error no partition of the stripe can be read."""
        if not _is_transient(error):
            for cursor in [each for each in end.cursors if each.is_at_end]:
                cursor.make_due()
                cursor.on_failure(error)
                self.buffer.make_ready(cursor)
            self._changed.notify_all()
        if isinstance(error, StripesChangedError):
            self._on_hint()
        end.failures += 1
        if end.failures == 1:
            _log.warning("%s cannot be read, retrying: %s", end.path, error)
        end.due_ms = self._now_ms() + retry_pause_ms(
            end.failures,
            initial_ms=self._config.retry_backoff_ms,
            max_ms=self._config.retry_backoff_max_ms,
            random=self._random,
        )

    def _turn(self, cursor: FetchCursor) -> None:
        """Read one turn of a partition, and queue it for the next one."""
        cursor.is_read = True
        try:
            self._fetch(cursor)
        finally:
            with self._changed:
                self._beside -= cursor.is_beside
                cursor.is_read = cursor.is_beside = False
                cursor.until_number = None
                self.enqueue(cursor)

    def _fetch(self, cursor: FetchCursor) -> None:
        """Read one turn of a partition.

        The batches of a turn are published together, because waking the other thread costs as much
        as reading a small batch. At the log's end the first batch is published at once. A turn
        beside the fetching thread waits for requests, and publishes every `_PUBLISH_MS`.
        """
        with self._changed:
            if not cursor.is_assigned:
                return
            version, offset, at_once = cursor.version, cursor.offset, cursor.is_at_end
            left_bytes = self._config.max_partition_fetch_bytes - cursor.held_bytes
            left_bytes = min(left_bytes, self._quota.most_bytes)
            self._fetches += 1
            is_beside = cursor.is_beside
            end = self._end_of(cursor)
            seen_end = 0 if end is None else end.known_end(cursor)
        left_ends = self._segments_of_turn(cursor, end)
        began_ms = published_ms = self._now_ms()
        fetched: list[CompletedFetch] = []
        last: CompletedFetch | None = None
        fetched_bytes = 0
        try:
            if end is None and not cursor.gives_hints and self._watch.gives_hints:
                cursor.gives_hints = self._watch.add(cursor.log.directory)
            for batch, next_offset in cursor.stream(version) or self._open(cursor, version, offset):
                visible = None if batch is None or batch.is_control else batch
                last = CompletedFetch(cursor.partition, visible, next_offset, last)
                fetched.append(last)
                fetched_bytes += last.size_bytes
                left_bytes -= last.memory_bytes
                if batch is None:  # the end of a segment, or an aborted batch
                    left_ends = 0 if cursor.is_turn_over(next_offset) else left_ends - 1
                    at_once |= is_beside and self._now_ms() - published_ms >= _PUBLISH_MS
                    if is_beside and self._behind and self._now_ms() - began_ms >= _BESIDE_MS:
                        left_ends = 0
                is_over = left_bytes <= 0 or left_ends <= 0
                # What is known of a stripe is read to its end without a request.
                is_followed = end is not None and batch is not None and next_offset >= seen_end
                if (at_once and not is_followed) or is_over or len(fetched) >= _MAX_BATCHES:
                    goes_on = self._publish(cursor, version, fetched)
                    fetched, at_once, published_ms = [], False, self._now_ms()
                    if is_over or not goes_on:
                        break
            else:
                cursor.close_stream()
                self._publish(cursor, version, fetched)
                fetched = []
                if not self._unblock(cursor):
                    self._at_end(cursor, version, began_ms, seen_end)
                    return
        except Exception as error:
            cursor.close_stream()
            self._publish(cursor, version, fetched)
            self._failed(cursor, version, error)
        finally:
            self._record_bytes(fetched_bytes)
            if last is not None and last.next_offset != offset:
                _log.debug(
                    "%s: fetched from offset %d to before %d: %d bytes in %.1f ms",
                    cursor.partition,
                    offset,
                    last.next_offset,
                    fetched_bytes,
                    self._now_ms() - began_ms,
                )

    def _segments_of_turn(self, cursor: FetchCursor, end: StripeEnd | None) -> float:
        """Return the number of segments that end a turn."""
        if cursor.until_number is not None:
            return math.inf
        most = math.inf if cursor.is_beside or self._read_beside is None else _BRIEF_SEGMENTS
        return most if end is None else min(most, end.reader.objects_in_turn)

    def _open(self, cursor: FetchCursor, version: int, offset: int) -> Batches:
        """Open a stream of the batches from an offset on."""
        batches = cursor.log.stream(
            offset,
            check_crcs=self._config.check_crcs,
            isolation_level=self._config.isolation_level,
        )
        return cursor.open_stream(version, batches)

    def _record_bytes(self, fetched_bytes: int) -> None:
        """Count a turn against the quota, which may throttle the next ones."""
        if fetched_bytes:
            with self._changed:
                throttle_ms = self._quota.record(fetched_bytes, self._now_ms())
                self.throttle_times.record(throttle_ms)

    def _publish(self, cursor: FetchCursor, version: int, fetched: list[CompletedFetch]) -> bool:
        """Put batches into the buffer; return whether the partition's turn continues."""
        if not fetched:
            return True
        with self._changed:
            if cursor.version != version or self._is_closed:
                return False
            now_ms = self._now_ms()
            is_added = self.buffer.add(cursor, fetched, now_ms)
            if is_added:
                self._last_records_ms = now_ms
            cursor.on_read(now_ms, has_records=is_added)
            if not self.buffer.is_empty():
                self._is_unannounced = True
                if now_ms - self._announced_ms >= _ANNOUNCE_MS or not self._in_stripes.any():
                    self._announce(now_ms)
            return self._may_fetch(cursor) and self.buffer.has_room()

    def _announce(self, now_ms: float) -> None:
        """Wake the threads that wait for records."""
        self._is_unannounced = False
        self._announced_ms = now_ms
        self._changed.notify_all()

    def _unblock(self, cursor: FetchCursor) -> bool:
        """End the transaction that blocks a partition, if possible; return whether it has ended."""
        blocking = self._blocking(cursor)
        if blocking is None or self._resolve is None:
            return False
        with self._resolving:
            if not self._resolve(blocking, cursor.log):
                return False
        with self._changed:
            cursor.make_due()
        return True

    def _blocking(self, cursor: FetchCursor) -> OpenTransaction | None:
        """Return the transaction that blocks a partition; None if its end was read."""
        if self._config.isolation_level != "read_committed":
            return None
        return cursor.log.blocking_transaction

    def _at_end(self, cursor: FetchCursor, version: int, began_ms: float, seen_end: int) -> None:
        """Let a partition wait for more records.

        Args:
            cursor: the partition.
            version: the version for which it was read.
            began_ms: the monotonic time at which its turn began.
            seen_end: its end in its stripe that was known then.
        """
        with self._changed:
            end = self._end_of(cursor)
            if cursor.version == version and end and self._blocking(cursor) is None:
                cursor.seen_end = max(seen_end, cursor.offset)
                has_more = end.known_end(cursor) > cursor.seen_end
                cursor.on_end(0.0 if has_more else math.inf, is_at_rest=False)
            elif cursor.version == version:
                cursor.seen_end = max(seen_end, cursor.offset)
                now_ms = self._now_ms()
                is_at_rest = self._probes.is_at_rest(now_ms - cursor.records_ms)
                if is_at_rest:
                    due_ms = began_ms + self._probes.rest_ms
                else:
                    due_ms = now_ms + self._tail_interval_ms(cursor, now_ms)
                cursor.on_end(due_ms, is_at_rest=is_at_rest)

    def _tail_interval_ms(self, cursor: FetchCursor, now_ms: float) -> float:
        return tail_probe_interval_ms(
            self._probes,
            waited_ms=now_ms - max(self._last_records_ms, cursor.records_ms),
            partitions=self._count_probed(),
            gives_hints=cursor.gives_hints,
        )

    def _count_probed(self) -> int:
        """Return the number of partitions that are not at rest."""
        if self._probes.rest_ms == math.inf:
            return len(self._by_directory)
        return len(self._ends) + sum(
            not cursor.is_at_rest and cursor.due_ms < math.inf
            for cursor in self._by_directory.values()
        )

    def _failed(self, cursor: FetchCursor, version: int, error: Exception) -> None:
        with self._changed:
            if cursor.version != version:
                return
            if not _is_transient(error):
                cursor.on_failure(error)
                self.buffer.make_ready(cursor)
                self._changed.notify_all()
            elif cursor.is_assigned:
                self.retry_later(cursor, error)


def tail_probe_interval_ms(
    probes: ProbeInterval, *, waited_ms: float, partitions: int, gives_hints: bool
) -> float:
    """Return the time between two reads of one partition at its log's end.

    Args:
        probes: the probe interval of the store, used if it gives no hints.
        waited_ms: the time since any partition had new records.
        partitions: the number of partitions that are probed.
        gives_hints: whether the operating system reports changes, so that probes only find changes
            whose report was lost.
    """
    if gives_hints:
        return max(_HINTED_MIN_MS, partitions * _HINTED_PER_PARTITION_MS)
    return probes.pause_ms(waited_ms, partitions)


def _is_transient(error: Exception) -> bool:
    """Return whether to retry a failed read; a denied permission is reported to the user."""
    if isinstance(error, StorageError):
        return not isinstance(error, AuthorizationError)
    return isinstance(error, SparkLogError) and error.retriable
