"""`GatewayPartition`: one partition as a gateway knows it: its queue, its end, its readers."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from spark_log.errors import OffsetOutOfRangeError, SparkLogError
from spark_log.gateway.partitions.append_queue import AppendQueue, RunBlocking
from spark_log.gateway.partitions.partition_logs import Appended, LogRead, PartitionLogs
from spark_log.gateway.partitions.produced_batch import ProducedBatch, ProduceResult
from spark_log.gateway.partitions.stripe import GatewayStripe
from spark_log.gateway.partitions.tail_cache import CacheBudget, TailCache
from spark_log.gateway.partitions.waiting_fetch import WaitingFetch
from spark_log.log import IsolationLevel, LogAppendInfo, LogView
from spark_log.record import EndTransactionMarker, ProducerIdAndEpoch

_log = logging.getLogger(__name__)

_COMPACTED_AGE_MS: Final = 5_000.0
"""Age up to which readers of a compacted topic get batches from memory, which has the records that
a compaction by another process has removed from the log."""

_SHORT_BYTES: Final = 65_536
"""Maximum size of the batches of an append that others wait for. Larger ones are decompressed and
written by several threads at the same time."""

_RESOLVE_AFTER_MS: Final = 500.0
"""Time for which a transaction blocks readers before its state is looked up. Most producers have
ended theirs by then."""

_RESOLVE_EVERY_MS: Final = 1_000.0
"""Time between two of these lookups."""


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    """The batches that a fetch found in one partition.

    Attributes:
        parts: Kafka's batches, one after the other.
        next_offset: the offset after them.
        log_start_offset: the log start offset.
        high_watermark: the offset before which records are durable.
        last_stable_offset: the offset before which transactions are decided; the high watermark for
            a reader that does not ask.
        is_late: whether there may be more, which was not read because the time was over.
    """

    parts: Sequence[bytes | bytearray]
    next_offset: int
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    is_late: bool = False

    @property
    def size_bytes(self) -> int:
        """The size of the batches."""
        return sum(map(len, self.parts))


class GatewayPartition:
    """One partition. For one event loop; what blocks runs on the gateway's threads.

    Everything it knows may be lost, and may be older than the log: other processes append, too.

    Attributes:
        topic: the topic's name.
        topic_id: the topic's id.
        partition: the partition's number.
        logs: the partition's logs.
        stripe: the partition's stripe, which has its appends and its end; None if it has a log of
            its own.
        is_appending: whether an append of this gateway is under way.
        log_start_offset: the last known log start offset.
        end_offset: the offset that readers can read up to, as far as it is known; -1 before the
            first listing.
        changed_ms: monotonic time at which the end was last found to have been moved by others, who
            may append again. An append of this gateway finds theirs itself.
        checked_ms: monotonic time at which the end was last compared with the log.
    """

    def __init__(
        self,
        topic: str,
        topic_id: str,
        partition: int,
        logs: PartitionLogs,
        *,
        run_blocking: RunBlocking,
        budget: CacheBudget,
        clock_ms: Callable[[], float],
        run_short: RunBlocking | None = None,
        stripe: GatewayStripe | None = None,
    ) -> None:
        """Return a partition of which nothing is known yet.

        Args:
            topic: the topic's name.
            topic_id: the topic's id.
            partition: the partition's number.
            logs: the partition's logs.
            run_blocking: runs a call on a thread.
            budget: the memory of all tail caches.
            clock_ms: returns monotonic time.
            run_short: runs a call that waits for nothing but the processor; by default as others.
            stripe: the partition's stripe; None if it has a log of its own.
        """
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.logs = logs
        self.log_start_offset = 0
        self.end_offset = -1
        self.changed_ms = clock_ms()
        self.checked_ms = -math.inf
        self._run_blocking = run_blocking
        self._run_short = run_short or run_blocking
        self._clock_ms = clock_ms
        self._cache = TailCache(budget)
        self._queue_of_log = AppendQueue(self._append, self._settle, name=f"{topic}-{partition}")
        self._queue = self._queue_of_log
        self.use_stripe(stripe)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._unreplicated: Appended | None = None
        self._waiting: set[WaitingFetch] = set()
        # The last stable offset, and the log's end that it belongs to.
        self._stable: tuple[int, int] | None = None
        # The last stable offset at which readers wait, and the earliest time of a lookup.
        self._blocked: tuple[int, float] | None = None
        self._observing: asyncio.Future[None] | None = None
        self._may_have_grown = False
        self.is_appending = False
        # The appends of markers whose ends this object does not know yet; threads add theirs.
        self._marker_calls: set[object] = set()

    def __repr__(self) -> str:
        return f"<GatewayPartition {self.topic}-{self.partition} end_offset={self.end_offset}>"

    def close(self) -> None:
        """Free the memory of a partition whose topic was deleted; fetches that wait answer so."""
        self._cache.clear()
        self.logs.close()
        self._wake()

    def use_stripe(self, stripe: GatewayStripe | None) -> None:
        """Append to a stripe, or to a log, from now on; batches that wait stay in their queue.

        Args:
            stripe: the partition's stripe; None if it has a log of its own.
        """
        self.stripe = stripe
        self._queue = self._queue_of_log if stripe is None else stripe.queue
        if stripe is not None:
            stripe.add(self)

    # --- appends ---------------------------------------------------------------------------------

    def append(self, produced: ProducedBatch) -> asyncio.Future[ProduceResult]:
        """Add a batch to the queue; return the future of its result."""
        return self._queue.put(produced)

    def withdraw(self, future: asyncio.Future[ProduceResult]) -> bool:
        """Take a batch out of the queue; return false if its append has begun.

        Args:
            future: the future of its result, which is never set then.
        """
        return self._queue.withdraw(future)

    def wake_appends(self) -> None:
        """Append the batches that have become ready."""
        self._queue.wake()

    async def _append(self, produced: Sequence[ProducedBatch]) -> None:
        began_ms = self._clock_ms()
        self._loop = asyncio.get_running_loop()
        self.is_appending = True
        try:
            run = self._run_short if self._is_short(produced) else self._run_blocking
            appended = await run(self.logs.append, produced)
        finally:
            self.is_appending = False
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug(
                "%s-%d: %d batches in one append, end offset %d, %.1f ms",
                self.topic,
                self.partition,
                len(produced),
                appended.end_offset,
                self._clock_ms() - began_ms,
            )
        if appended.is_replicated:
            self.on_appended(appended)
        else:
            self._unreplicated = appended

    def _is_short(self, produced: Sequence[ProducedBatch]) -> bool:
        """Return whether an append of these batches waits for nothing, and is over soon."""
        size_bytes = 0
        for each in produced:
            if each.transactional_id is not None:  # the state of its transaction may be read
                return False
            size_bytes += len(each.data)
        return size_bytes <= _SHORT_BYTES and self.is_quick

    # --- markers, on any thread ------------------------------------------------------------------

    @property
    def is_quick(self) -> bool:
        """Whether an append waits for nothing but the processor (`PartitionLog.is_quick`)."""
        return self.logs.is_quick

    @property
    def directory(self) -> str:
        """The partition's directory, relative to a root, for messages."""
        return self.logs.directory

    def append_markers(self, markers: Sequence[EndTransactionMarker]) -> LogAppendInfo | None:
        """Append the markers of transactions that the log does not have; readers learn of them.

        Args:
            markers: the markers, each of another producer.

        Returns:
            The offsets of the appended markers; None if the log has all of them.

        Raises:
            SparkLogError: See `PartitionLog.append_markers`.
        """
        assert self._loop is not None, "the partition has appended before"
        call = object()
        self.begin_markers(call)
        appended: Appended | None = None
        try:
            info, appended = self.logs.append_markers(markers)
            return info
        finally:
            with suppress(RuntimeError):  # the gateway has ended, and has no readers
                self._loop.call_soon_threadsafe(self._on_markers, call, markers, appended)

    def _on_markers(
        self, call: object, markers: Sequence[EndTransactionMarker], appended: Appended | None
    ) -> None:
        self.end_markers(call, () if appended is None else markers)
        if appended is not None:
            self.on_appended(appended)

    def begin_markers(self, call: object) -> None:
        """Record that markers are appended. On any thread.

        Args:
            call: the object that tells this append from others.
        """
        self._marker_calls.add(call)

    def end_markers(self, call: object, markers: Sequence[EndTransactionMarker]) -> None:
        """Record that an append of markers has ended. On the event loop.

        Args:
            call: the object that was given to `begin_markers`.
            markers: the markers that the log has now.
        """
        self._marker_calls.discard(call)
        for each in markers:
            if each.is_committed:
                self._cache.commit(ProducerIdAndEpoch(each.producer_id, each.producer_epoch - 1))

    # --- the end of an append --------------------------------------------------------------------

    async def _settle(self) -> None:
        """Do what an append has left, whose batches were answered."""
        await self._catch_up()
        if self.logs.has_due_snapshot:
            await self._run_blocking(self.logs.write_snapshot)

    async def _catch_up(self) -> None:
        """Bring the replicas up to an append that the leader alone has; then readers see it."""
        appended, self._unreplicated = self._unreplicated, None
        if appended is None:
            return
        self.is_appending = True
        try:
            is_kept = await self._run_blocking(self.logs.catch_up, appended)
        except SparkLogError as error:
            _log.info(
                "%s-%d: not all replicas have what the leader acknowledged: %s",
                self.topic,
                self.partition,
                error,
            )
        else:
            if is_kept:
                self.on_appended(appended)
        finally:
            self.is_appending = False

    def on_appended(self, appended: Appended) -> None:
        """Take in an append of this gateway, which readers may see now."""
        end_before = self.end_offset
        was_stable = self._stable == (end_before, end_before) == (appended.base_offset,) * 2
        for batch in appended.batches:
            self._cache.add(batch, self._clock_ms())
        is_known = appended.base_offset == end_before  # nobody else has appended meanwhile
        if is_known:
            self._may_have_grown = False
        self._move_end(appended.end_offset, is_own=is_known)
        if appended.base_offset >= 0:
            self.on_checked()  # the put was at the log's end
        if appended.stable is not None and appended.stable[1] == self.end_offset:
            self._stable = appended.stable
        elif was_stable and not appended.is_transactional:
            self._stable = self.end_offset, self.end_offset

    # --- the log's end ---------------------------------------------------------------------------

    def _move_end(self, end_offset: int, *, is_own: bool = False) -> None:
        if end_offset > self.end_offset:
            self.end_offset = end_offset
            if not is_own:
                self.changed_ms = self._clock_ms()
            self._wake()

    def on_changed(self) -> None:
        """Wake the fetches that wait for this partition: its end has moved."""
        self.changed_ms = self._clock_ms()
        self._wake()

    def _wake(self) -> None:
        for fetch in self._waiting:
            fetch.set()

    def add_waiting(self, fetch: WaitingFetch) -> None:
        """Wake a fetch at each change, until `remove_waiting`."""
        self._waiting.add(fetch)

    def remove_waiting(self, fetch: WaitingFetch) -> None:
        """Stop waking a fetch."""
        self._waiting.discard(fetch)

    @property
    def is_waited_for(self) -> bool:
        """Whether a fetch waits for this partition."""
        return bool(self._waiting)

    async def observe(self) -> None:
        """List the log, to know its start and its end; calls at the same time share one listing."""
        if self._observing is None or self._observing.done():
            self._observing = asyncio.ensure_future(self._observe())
            self._observing.add_done_callback(self._on_observed)
        await asyncio.shield(self._observing)

    async def _observe(self) -> None:
        self._on_view(await self._run_blocking(self.logs.observe))

    def _on_observed(self, future: asyncio.Future[None]) -> None:
        if self._observing is future:
            self._observing = None
        if not future.cancelled():
            future.exception()  # those who wait raise it

    def _on_view(self, view: LogView) -> None:
        self._may_have_grown = False
        self.on_checked()
        self.log_start_offset = max(self.log_start_offset, view.log_start_offset)
        self._cache.drop_before(self.log_start_offset)
        self._move_end(view.log_end_offset)

    def on_deleted(self, log_start_offset: int) -> None:
        """Record that the records before an offset were deleted."""
        self.log_start_offset = max(self.log_start_offset, log_start_offset)
        self._cache.drop_before(self.log_start_offset)

    async def refresh_end(self) -> int:
        """Learn of the appends of others up to now, and return the end offset.

        It costs one request if there are none. The partitions of a stripe share it, and none of
        them is listed.
        """
        if self.stripe is not None:
            await self.stripe.poll()
            end_offset, _ = self.stripe.known_end(self.partition)
            if self.end_offset >= 0:
                self._move_end(end_offset)
            return max(end_offset, self.end_offset)
        if self.end_offset < 0 or not await self._run_blocking(self.logs.ends_at, self.end_offset):
            # A listing that is under way may have begun before the newest append.
            if self._observing is not None:
                await asyncio.wait([self._observing])
            await self.observe()
        self.on_checked()
        return self.end_offset

    def on_checked(self) -> None:
        """Record that the log was found to end at `end_offset` just now."""
        self.checked_ms = self._clock_ms()

    def on_grown(self) -> None:
        """Wake the fetches that wait: the log may not end at `end_offset` any more.

        An append of this gateway that is under way is most likely what was seen. Its end wakes
        them, and they then get its batches from the cache, and not from the log. The next probe
        finds what others appended meanwhile.
        """
        if not self.is_appending and not self._marker_calls:
            self._may_have_grown = True
            self._wake()

    def on_stripe_end(self, end_offset: int, stable_offset: int) -> bool:
        """Take in the end that a poll of the stripe has shown; return whether others have appended.

        While an append of this gateway is under way, it is most likely what was seen, as in
        `on_grown`.

        Args:
            end_offset: the log end offset.
            stable_offset: the last stable offset.
        """
        if self.is_appending or self._marker_calls or not 0 <= self.end_offset <= end_offset:
            return False
        has_grown = end_offset > self.end_offset
        self._move_end(end_offset)
        self._stable = stable_offset, end_offset
        return has_grown

    async def _look_again(self) -> None:
        """Learn the log's end by a listing, or by a poll of the stripe."""
        await (self.observe() if self.stripe is None else self.stripe.poll())

    @property
    def _known_stable_offset(self) -> int | None:
        """The last stable offset, if it is known for the present end."""
        stable = self._stable
        return stable[0] if stable is not None and stable[1] == self.end_offset else None

    async def last_stable_offset(self) -> int:
        """Return the offset before which all transactions are decided, after `refresh_end`."""
        known = self._known_stable_offset
        if known is not None:
            return known
        if self.stripe is not None:
            return self.stripe.known_end(self.partition)[1]
        view, last_stable_offset = await self._run_blocking(self.logs.last_stable_offset)
        self._on_view(view)
        if view.log_end_offset == self.end_offset:
            self._stable = last_stable_offset, self.end_offset
        return int(last_stable_offset)

    # --- fetches ---------------------------------------------------------------------------------

    async def fetch(
        self,
        offset: int,
        max_bytes: int,
        isolation_level: IsolationLevel,
        *,
        takes_zstd: bool = True,
        probes: bool = False,
        max_read_ms: float = math.inf,
    ) -> FetchedPartition:
        """Return what can be read from an offset on.

        Args:
            offset: the first offset.
            max_bytes: the most bytes, but for the first batch.
            isolation_level: ``read_committed`` ends at the last stable offset.
            takes_zstd: whether the client can decompress zstd.
            probes: whether to look for the appends of others at the end, because the client does
                not wait for them.
            max_read_ms: the time after which a read of the log returns what it has found. It has
                found at least one batch.

        Raises:
            OffsetOutOfRangeError: the offset is not in the log.
            SparkLogError: the log cannot be read.
        """
        if self.end_offset < 0:
            await self.observe()
        is_committed = isolation_level == "read_committed"
        if offset > self.end_offset or (probes and offset >= self._limit(is_committed)):
            await self.refresh_end()
        self._check(offset)
        limit = self._known_stable_offset if is_committed else self.end_offset
        if limit is not None and not self._may_have_grown:
            if offset >= limit:
                if not (self._resolve_is_due(limit) and await self._resolve_blocking()):
                    return self._fetched((), offset, limit)
                await self._look_again()
                return await self._fetch_from_log(offset, max_bytes, isolation_level, max_read_ms)
            if self.logs.is_compacted:
                self._cache.drop_added_before(self._clock_ms() - _COMPACTED_AGE_MS)
            cached = self._cache.find(
                offset, limit, max_bytes, takes_zstd=takes_zstd, is_committed=is_committed
            )
            if cached:
                end_offset = cached[-1].end_offset
                return self._fetched([batch.data for batch in cached], end_offset, limit)
        return await self._fetch_from_log(offset, max_bytes, isolation_level, max_read_ms)

    def fetch_at_end(self, offset: int, isolation_level: IsolationLevel) -> FetchedPartition | None:
        """Return the answer without records if the log is known to end at an offset.

        Most fetches of idle consumers get this answer, which needs neither the log nor memory.

        Args:
            offset: the first offset that is needed.
            isolation_level: ``read_committed`` ends at the last stable offset.
        """
        limit = (
            self._known_stable_offset if isolation_level == "read_committed" else self.end_offset
        )
        if limit is None or self._may_have_grown:
            return None
        if not max(limit, self.log_start_offset) <= offset <= self.end_offset:
            return None
        if self._resolve_is_due(limit):
            return None
        return self._fetched((), offset, limit)

    async def at_offset(self, offset: int) -> FetchedPartition:
        """Return the answer without records to a client that is to read from another gateway.

        Raises:
            OffsetOutOfRangeError: the offset is not in the log.
            SparkLogError: the log cannot be read.
        """
        if self.end_offset < 0:
            await self.observe()
        if offset > self.end_offset:
            await self.refresh_end()
        self._check(offset)
        return self._fetched((), offset, self.end_offset)

    def _check(self, offset: int) -> None:
        if not self.log_start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRangeError(
                f"{self.topic}-{self.partition} has offsets {self.log_start_offset} to "
                f"{self.end_offset}, not {offset}; read from one of them",
                offset=offset,
                log_start_offset=self.log_start_offset,
                log_end_offset=self.end_offset,
            )

    def _resolve_is_due(self, last_stable_offset: int) -> bool:
        """Return whether to look up the transaction that keeps readers at an offset."""
        if last_stable_offset == self.end_offset:
            return False
        now_ms = self._clock_ms()
        if self._blocked is None or self._blocked[0] != last_stable_offset:
            self._blocked = last_stable_offset, now_ms + _RESOLVE_AFTER_MS
        return now_ms >= self._blocked[1]

    async def _resolve_blocking(self) -> bool:
        """Return whether a transaction that keeps readers waiting was ended just now."""
        assert self._blocked is not None
        self._blocked = self._blocked[0], self._clock_ms() + _RESOLVE_EVERY_MS
        return bool(await self._run_blocking(self.logs.resolve_blocking))

    def _limit(self, is_committed: bool) -> int:
        """Return the offset at which a fetch ends, as far as it is known."""
        known = self._known_stable_offset if is_committed else None
        return self.end_offset if known is None else known

    async def _fetch_from_log(
        self, offset: int, max_bytes: int, isolation_level: IsolationLevel, max_read_ms: float
    ) -> FetchedPartition:
        """Read the log, which shows the appends of others, and the last stable offset, too."""
        end_before, is_committed = self.end_offset, isolation_level == "read_committed"

        def read() -> LogRead:
            until_ms = self._clock_ms() + max_read_ms  # the time in which it waited does not count
            return self.logs.read(
                offset, max_bytes, isolation_level, end_before, lambda: self._clock_ms() < until_ms
            )

        try:
            parts, next_offset, is_at_end, is_late = await self._run_blocking(read)
        except OffsetOutOfRangeError as error:
            self.log_start_offset = max(self.log_start_offset, error.log_start_offset)
            raise
        if self.stripe is not None:
            self.on_stripe_end(*self.stripe.known_end(self.partition))
        elif next_offset > end_before:
            self._may_have_grown = not is_at_end
        elif self._may_have_grown and not parts:
            await self.observe()  # an open transaction hides the new end, or the listing is old
        self._move_end(next_offset)
        if not is_committed:
            return self._fetched(parts, next_offset, self.end_offset, is_late=is_late)
        if self.end_offset == max(end_before, next_offset) and (
            not parts or next_offset == self.end_offset
        ):
            self._stable = next_offset, self.end_offset
        return self._fetched(parts, next_offset, next_offset, is_late=is_late)

    def _fetched(
        self,
        parts: Sequence[bytes | bytearray],
        next_offset: int,
        limit: int,
        *,
        is_late: bool = False,
    ) -> FetchedPartition:
        return FetchedPartition(
            parts,
            next_offset,
            self.log_start_offset,
            self.end_offset,
            max(limit, next_offset),
            is_late,
        )
