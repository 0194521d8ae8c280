"""`AIOConsumer`: a `Consumer` for asyncio, which runs on a thread of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

import pyarrow as pa

from spark_log.consumer.consumer import Consumer
from spark_log.errors import IllegalStateError
from spark_log.types import ConsumerRecord, TopicPartition

P = ParamSpec("P")
R = TypeVar("R")

_END: Final = object()


def _on_thread(
    method: Callable[Concatenate[Consumer, P], R],
) -> Callable[Concatenate[AIOConsumer, P], Coroutine[Any, Any, R]]:
    """Return a coroutine function that calls the method on the consumer's thread."""

    @wraps(method)
    async def call(self: AIOConsumer, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._call(lambda consumer: method(consumer, *args, **kwargs))

    return call


class AIOConsumer:
    """The methods of `Consumer` as coroutines; ``async for`` iterates over records.

    A cancelled poll returned no records: the next poll returns them.
    """

    def __init__(self, *topics: str, **settings: Any) -> None:
        """Prepare; the first call of a method, or `start`, opens the `Consumer`.

        Args:
            topics: names of topics to subscribe to.
            settings: the keyword arguments of `Consumer`: ``root``, ``group_id``, settings, …
        """
        self._open: Callable[[], Consumer] = lambda: Consumer(*topics, **settings)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="spark-log-aio-consumer")
        self._consumer: Consumer | None = None
        self._cancelled: list[Future[Any]] = []
        self._is_closed = False

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
        """Open the consumer, and raise the errors of its constructor."""
        await self._call(lambda consumer: None)
        return self

    def wakeup(self) -> None:
        """Let the current poll, or the next one, raise `WakeupError`."""
        if self._consumer is not None:
            self._consumer.wakeup()

    async def close(self, autocommit: bool = True, timeout_ms: float | None = None) -> None:
        """Commit positions if auto-commit is enabled, leave the group, and release all resources.

        Args:
            autocommit: False: do not commit.
            timeout_ms: how long to wait for the commit and for leaving. None: without limit on a
                local root, ``default.api.timeout.ms`` on an object store.
        """
        if self._is_closed:
            return
        if self._consumer is not None:
            await self._call(lambda consumer: consumer.close(autocommit, timeout_ms))
        self._is_closed = True
        self._thread.shutdown(wait=False)

    def __repr__(self) -> str:
        if self._consumer is None:
            return "<AIOConsumer, not started>"
        return f"<AIO{repr(self._consumer).removeprefix('<')}"

    async def __aenter__(self) -> Self:
        return await self.start()

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
        if self._is_closed:
            raise StopAsyncIteration
        record = await self._call(lambda consumer: next(consumer, _END))
        if not isinstance(record, ConsumerRecord):
            raise StopAsyncIteration
        return record

    async def _call(self, function: Callable[[Consumer], R]) -> R:
        if self._is_closed:
            raise IllegalStateError("the consumer is closed; create another one")
        call = _Call()
        future = self._thread.submit(self._run, function, call)
        awaited = asyncio.wrap_future(future)
        try:
            return await asyncio.shield(awaited)
        except asyncio.CancelledError:
            awaited.add_done_callback(_ignore)
            call.is_cancelled = True
            self._cancelled.append(future)
            self.wakeup()
            raise

    def _run(self, function: Callable[[Consumer], R], call: _Call) -> R:
        """Call a function with the consumer, on the consumer's thread."""
        if self._consumer is None:
            self._consumer = self._open()
        while self._cancelled and self._cancelled[0].done():
            self._take_back(self._cancelled[0])
            self._cancelled.pop(0)
        if call.is_cancelled:  # its wakeup may have been undone with that of another call
            raise asyncio.CancelledError
        return function(self._consumer)

    def _take_back(self, future: Future[Any]) -> None:
        """Seek back to the first record that a cancelled call returned; the call has ended."""
        assert self._consumer is not None
        self._consumer._forget_wakeup()
        if future.exception() is not None:
            return
        for tp, offset in _first_offsets(future.result()):
            if tp in self._consumer.assignment():
                self._consumer.seek(tp, offset)


class _Call:
    """One call of a method.

    Attributes:
        is_cancelled: the caller does not wait for the result any more.
    """

    is_cancelled = False


def _ignore(ended: asyncio.Future[Any]) -> None:
    """Retrieve the error of a cancelled call, so that asyncio does not log it."""
    if not ended.cancelled():
        ended.exception()


def _first_offsets(result: object) -> Iterable[tuple[TopicPartition, int]]:
    """Return the offset of the first returned record, by partition."""
    if isinstance(result, ConsumerRecord):
        yield TopicPartition(result.topic, result.partition), result.offset
    elif isinstance(result, pa.Table):
        grouped = result.group_by(["topic", "partition"]).aggregate([("offset", "min")])
        for row in grouped.to_pylist():
            yield TopicPartition(row["topic"], row["partition"]), row["offset_min"]
    elif isinstance(result, dict):
        for tp, found in result.items():
            with suppress(TypeError, IndexError):  # a result of another method has no records
                if isinstance(found[0], ConsumerRecord):
                    yield tp, found[0].offset
