"""`GatewayStripe`: a stripe in a gateway: one queue and one end for all of its partitions."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from spark_log.errors import SparkLogError
from spark_log.gateway.partitions.append_queue import AppendQueue, RunBlocking
from spark_log.gateway.partitions.log_cursor import skipping_batch
from spark_log.gateway.partitions.partition_logs import Appended, appended_of
from spark_log.gateway.partitions.produced_batch import ProducedBatch, append_produced
from spark_log.gateway.partitions.tail_cache import CachedBatch
from spark_log.gateway.record_batches import CompressionType
from spark_log.log import BatchAppend, LogAppendInfo, MergeExecutor
from spark_log.record import EndTransactionMarker
from spark_log.threads import MergeThread

if TYPE_CHECKING:
    from spark_log.log.stripe import AppendResult, Stripe, StripeDirectory

_log = logging.getLogger(__name__)

_Result = tuple[ProducedBatch, LogAppendInfo | SparkLogError]


class StripedPartition(Protocol):
    """A partition of a stripe, which is told what is appended to it (`GatewayPartition`)."""

    partition: int
    is_appending: bool

    @property
    def is_waited_for(self) -> bool:
        """Whether a fetch waits for this partition."""

    def on_appended(self, appended: Appended) -> None:
        """Take in an append of this gateway; see `GatewayPartition.on_appended`."""

    def begin_markers(self, call: object) -> None:
        """Record that markers are appended; see `GatewayPartition.begin_markers`."""

    def end_markers(self, call: object, markers: Sequence[EndTransactionMarker]) -> None:
        """Record that an append of markers has ended; see `GatewayPartition.end_markers`."""

    def on_stripe_end(self, end_offset: int, stable_offset: int) -> bool:
        """Take in the end that a poll has shown; see `GatewayPartition.on_stripe_end`."""


class GatewayStripe:
    """One stripe. For one event loop; what blocks runs on the gateway's threads.

    The batches that wait for any of its partitions are one put, and so are the markers of a
    transaction. One request shows the ends of all of them.

    Attributes:
        topic: the topic's name.
        stripe: the stripe, as all of the process uses it.
        queue: the batches that wait for one of its partitions.
        changed_ms: monotonic time at which others were last found to have appended, who may append
            again.
        checked_ms: monotonic time at which the ends were last compared with the stripe.
    """

    def __init__(
        self,
        topic: str,
        stripe: Stripe,
        *,
        run_blocking: RunBlocking,
        merges: MergeThread,
        max_uncompressed_bytes: int,
        clock_ms: Callable[[], float],
    ) -> None:
        """Return a stripe of which nothing is known yet.

        Args:
            topic: the topic's name.
            stripe: the stripe, as all of the process uses it.
            run_blocking: runs a call on a thread.
            merges: the thread that takes the stripe home when appends make that due.
            max_uncompressed_bytes: the largest size of the records of one append, without the
                clients' compression.
            clock_ms: returns monotonic time.
        """
        self.topic = topic
        self.stripe = stripe
        self.queue = AppendQueue(self._append, self._settle, name=stripe.directory.path)
        self.changed_ms = clock_ms()
        self.checked_ms = -math.inf
        self._run_blocking = run_blocking
        self._merges = merges
        self._max_uncompressed_bytes = max_uncompressed_bytes
        self._clock_ms = clock_ms
        self._partitions: dict[int, StripedPartition] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._polling: asyncio.Future[None] | None = None
        self._is_polling = False  # whether it has begun

    def __repr__(self) -> str:
        return f"<GatewayStripe {self.stripe.directory.path}>"

    @property
    def directory(self) -> StripeDirectory:
        """The stripe's directory."""
        return self.stripe.directory

    def add(self, partition: StripedPartition) -> None:
        """Add a partition that a client has asked for."""
        self._partitions[partition.partition] = partition

    @property
    def has_appended(self) -> bool:
        """Whether this gateway has appended to the stripe, and may know its end."""
        return self._loop is not None

    # --- appends ---------------------------------------------------------------------------------

    async def _append(self, produced: Sequence[ProducedBatch]) -> None:
        began_ms = self._clock_ms()
        self._loop = asyncio.get_running_loop()
        partitions = [self._partitions[number] for number in {each.partition for each in produced}]
        for partition in partitions:
            partition.is_appending = True
        try:
            appended = await self._run_blocking(self._put, produced)
        finally:
            for partition in partitions:
                partition.is_appending = False
        _log.debug(
            "%s: %d batches of %d partitions in one append, %.1f ms",
            self.stripe.directory.path,
            len(produced),
            len(partitions),
            self._clock_ms() - began_ms,
        )
        self._on_appended(appended)

    async def _settle(self) -> None:
        """Do nothing: an object has no other replica."""

    def _on_appended(self, appended: Sequence[tuple[int, Appended]]) -> None:
        for number, each in appended:
            if number in self._partitions:
                self._partitions[number].on_appended(each)

    def _put(self, produced: Sequence[ProducedBatch]) -> list[tuple[int, Appended]]:
        """Append batches, set the result of each; return what was put, by partition."""
        from spark_log.log.stripe import StripeEntry  # late: few topics have stripes

        stripe = self.stripe
        config = stripe.directory.config
        ends: dict[int, tuple[int, int]] = {}

        def put(
            accepted: Sequence[ProducedBatch], appends: Sequence[BatchAppend], codec: str
        ) -> Sequence[LogAppendInfo | SparkLogError]:
            entries = [
                StripeEntry(each.partition, append)
                for each, append in zip(accepted, appends, strict=True)
            ]
            with self._merges.make_way():
                found = stripe.appends.append(entries, compression=codec, ends=ends)
            stripe.take_home_if_due(MergeExecutor(self._merges.submit, self._merges.pause))
            return [each for each in found if each is not None]

        results = append_produced(
            produced,
            put,
            max_bytes=config.max_message_bytes,
            max_uncompressed_bytes=self._max_uncompressed_bytes,
        )
        of_partition: dict[int, list[_Result]] = {}
        for each, result in results:
            of_partition.setdefault(each.partition, []).append((each, result))
        return [
            (number, appended_of(run, config, stable=_stable(ends.get(number))))
            for number, found in of_partition.items()
            for run in _runs(found)
        ]

    # --- markers, on any thread ------------------------------------------------------------------

    def append_markers(
        self, markers: Mapping[int, Sequence[EndTransactionMarker]]
    ) -> Sequence[AppendResult]:
        """Append the markers of transactions that their partitions do not have; tell the readers.

        Args:
            markers: number of a partition → its markers, each of another producer.

        Returns:
            The result of each marker, in order (`Stripe.append_markers`).
        """
        assert self._loop is not None, "the gateway has appended to the stripe before"
        call = object()
        opened = [partition for number in markers if (partition := self._partitions.get(number))]
        for partition in opened:
            partition.begin_markers(call)
        appended: list[tuple[int, Appended]] = []
        failed = set(markers)
        try:
            ends: dict[int, tuple[int, int]] = {}
            with self._merges.make_way():
                results = self.stripe.append_markers(markers, ends=ends)
            numbers = [number for number, of_partition in markers.items() for _ in of_partition]
            failed = {
                number
                for number, result in zip(numbers, results, strict=True)
                if isinstance(result, SparkLogError)
            }
            appended = [
                (number, _appended_marker(result, _stable(ends.get(number))))
                for number, result in zip(numbers, results, strict=True)
                if isinstance(result, LogAppendInfo) and not result.is_duplicate
            ]
            return results
        finally:
            with suppress(RuntimeError):  # the gateway has ended, and has no readers
                of_opened = [
                    (each, () if each.partition in failed else markers[each.partition])
                    for each in opened
                ]
                self._loop.call_soon_threadsafe(self._on_markers, call, of_opened, appended)

    def _on_markers(
        self,
        call: object,
        opened: Sequence[tuple[StripedPartition, Sequence[EndTransactionMarker]]],
        appended: Sequence[tuple[int, Appended]],
    ) -> None:
        for partition, markers in opened:
            partition.end_markers(call, markers)
        self._on_appended(appended)

    # --- the ends --------------------------------------------------------------------------------

    @property
    def is_waited_for(self) -> bool:
        """Whether a fetch waits for one of the partitions."""
        return any(partition.is_waited_for for partition in self._partitions.values())

    def known_end(self, partition: int) -> tuple[int, int]:
        """Return the log end offset, and the last stable one, that the last poll has shown.

        Args:
            partition: number of a partition.
        """
        return self.stripe.reader.known_ends([partition])[0]

    async def poll(self) -> None:
        """Learn of the appends of others up to now, to all partitions, by one request.

        Calls at the same time share it.

        Raises:
            SparkLogError: the stripe cannot be read.
        """
        if self._is_polling and self._polling is not None:  # begun before the newest append, maybe
            await asyncio.wait([self._polling])
        if self._polling is None:
            self._polling = asyncio.ensure_future(self._poll())
            self._polling.add_done_callback(self._on_polled)
        await asyncio.shield(self._polling)

    def _on_polled(self, future: asyncio.Future[None]) -> None:
        self._polling, self._is_polling = None, False
        if not future.cancelled():
            future.exception()  # those who wait raise it

    async def _poll(self) -> None:
        self._is_polling = True
        reader = self.stripe.reader
        numbers = list(self._partitions)

        def poll() -> list[tuple[int, int]]:
            reader.poll()
            return reader.known_ends(numbers)

        ends = await self._run_blocking(poll)
        self.checked_ms = self._clock_ms()
        has_grown = False
        for number, (end_offset, stable_offset) in zip(numbers, ends, strict=True):
            has_grown |= self._partitions[number].on_stripe_end(end_offset, stable_offset)
        if has_grown:
            self.changed_ms = self.checked_ms


def _stable(end: tuple[int, int] | None) -> tuple[int, int] | None:
    """Return a last stable offset, and the log's end that it belongs to."""
    return None if end is None else (end[1], end[0])


def _runs(results: Sequence[_Result]) -> list[list[_Result]]:
    """Return the batches of a partition, apart where others have appended between them."""
    put = sorted(
        (
            (info.base_offset, info.last_offset + 1, (each, info))
            for each, info in results
            if isinstance(info, LogAppendInfo) and not info.is_duplicate
        ),
        key=lambda entry: entry[0],
    )
    if not put:
        return [[*results]]
    runs: list[list[_Result]] = []
    following = -1
    for base_offset, end_offset, result in put:
        if base_offset != following:
            runs.append([])
        runs[-1].append(result)
        following = end_offset
    return runs


def _appended_marker(info: LogAppendInfo, stable: tuple[int, int] | None) -> Appended:
    end_offset = info.base_offset + 1
    data = skipping_batch(info.base_offset, end_offset)
    cached = CachedBatch(info.base_offset, end_offset, data, CompressionType.NONE)
    return Appended(info.base_offset, end_offset, True, (cached,), stable=stable)
