"""`AIOConsumer`: a `Consumer` for asyncio. It runs the same code on a thread of its own."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

import pyarrow as pa

from spark_log.consumer.consumer import Consumer
from spark_log.threads import ClientThread, with_arguments_of
from spark_log.types import ConsumerRecord, TopicPartition

P = ParamSpec("P")
R = TypeVar("R")

_END: Final = object()


def _on_thread(
    method: Callable[Concatenate[Consumer, P], R],
) -> Callable[Concatenate[AIOConsumer, P], Coroutine[Any, Any, R]]:
    """Return a coroutine function that runs a method of `Consumer` on the client's thread."""

    @wraps(method)
    async def call(self: AIOConsumer, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._thread.call(lambda consumer: method(consumer, *args, **kwargs))

    return call


class AIOConsumer:
    """`Consumer` with every method awaited; iterate over it with ``async for``.

    Cancellation: a cancelled poll returns no records; the next poll returns them.
    """

    @with_arguments_of(Consumer.__init__)
    def __init__(self, *topics: str, **kwargs: Any) -> None:
        """Return a consumer that opens the root at its first call.

        Args:
            topics: the topics to subscribe to, as in `Consumer`.
            kwargs: the keyword arguments of `Consumer`.
        """
        self._thread = ClientThread(
            "consumer",
            lambda: Consumer(*topics, **kwargs),
            on_abandoned=_seek_back,
            interrupt=Consumer.wakeup,
            clear_interrupt=Consumer._forget_wakeup,
        )

    assign = _on_thread(Consumer.assign)
    assignment = _on_thread(Consumer.assignment)
    beginning_offsets = _on_thread(Consumer.beginning_offsets)
    commit = _on_thread(Consumer.commit)
    committed = _on_thread(Consumer.committed)
    end_offsets = _on_thread(Consumer.end_offsets)
    group_metadata = _on_thread(Consumer.group_metadata)
    highwater = _on_thread(Consumer.highwater)
    lag = _on_thread(Consumer.lag)
    metrics = _on_thread(Consumer.metrics)
    offsets_for_times = _on_thread(Consumer.offsets_for_times)
    partitions_for_topic = _on_thread(Consumer.partitions_for_topic)
    pause = _on_thread(Consumer.pause)
    paused = _on_thread(Consumer.paused)
    poll = _on_thread(Consumer.poll)
    poll_table = _on_thread(Consumer.poll_table)
    position = _on_thread(Consumer.position)
    resume = _on_thread(Consumer.resume)
    seek = _on_thread(Consumer.seek)
    seek_to_beginning = _on_thread(Consumer.seek_to_beginning)
    seek_to_end = _on_thread(Consumer.seek_to_end)
    subscribe = _on_thread(Consumer.subscribe)
    subscription = _on_thread(Consumer.subscription)
    topics = _on_thread(Consumer.topics)
    unsubscribe = _on_thread(Consumer.unsubscribe)

    async def start(self) -> Self:
        """Open the consumer now; raises the errors of `Consumer`'s constructor."""
        await self._thread.call(lambda consumer: None)
        return self

    async def get(
        self,
        topic: str,
        key: bytes,
        *,
        partition: int | None = None,
        timeout_ms: float | None = None,
    ) -> ConsumerRecord | None:
        """Return the newest record of a key, as `Consumer.get` does."""
        # In a tuple: `_seek_back` would take a record for that of an iteration.
        (record,) = await self._thread.call(
            lambda consumer: (consumer.get(topic, key, partition=partition, timeout_ms=timeout_ms),)
        )
        return record

    def wakeup(self) -> None:
        """Make the running or the next poll raise `WakeupError`; may be called in any thread."""
        if self._thread.client is not None:
            self._thread.client.wakeup()

    async def close(self, autocommit: bool = True, timeout_ms: float | None = None) -> None:
        """Close the consumer: commit its positions if auto commit is on, and leave the group.

        A cancelled close continues in the background; a second one waits for it.

        Args:
            autocommit: whether to commit positions if auto-commit is on.
            timeout_ms: the maximum time to wait for the commit and the group; None for no limit, or
                on an object store for ``default.api.timeout.ms``.
        """
        await self._thread.close(lambda consumer: consumer.close(autocommit, timeout_ms))

    def __repr__(self) -> str:
        return self._thread.describe("AIOConsumer")

    async def __aenter__(self) -> Self:
        try:
            return await self.start()
        except BaseException:
            self._thread.close_soon(lambda consumer: consumer.close(autocommit=False))
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self.close(autocommit=kind is None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord:
        if self._thread.is_closed:
            raise StopAsyncIteration
        record = await self._thread.call(lambda consumer: next(consumer, _END))
        if not isinstance(record, ConsumerRecord):
            raise StopAsyncIteration
        return record


def _seek_back(consumer: Consumer, result: object) -> None:
    """Seek to the first records of a cancelled poll, so that the next poll returns them again."""
    for tp, offset in _first_offsets(result):
        if tp in consumer.assignment():
            consumer.seek(tp, offset)


def _first_offsets(result: object) -> Iterable[tuple[TopicPartition, int]]:
    """Yield each partition of a poll's result with the offset of its first record."""
    if isinstance(result, ConsumerRecord):
        yield TopicPartition(result.topic, result.partition), result.offset
    elif isinstance(result, pa.Table):
        grouped = result.group_by(["topic", "partition"]).aggregate([("offset", "min")])
        for row in grouped.to_pylist():
            yield TopicPartition(row["topic"], row["partition"]), row["offset_min"]
    elif isinstance(result, dict):
        for tp, found in result.items():
            with suppress(TypeError, IndexError):  # the result of another call: nothing to undo
                if isinstance(found[0], ConsumerRecord):
                    yield tp, found[0].offset
