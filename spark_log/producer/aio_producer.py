"""`AIOProducer`: a `Producer` for asyncio. It runs the same code on a thread of its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from spark_log.client_thread import ClientThread, with_arguments_of
from spark_log.producer.producer import Producer
from spark_log.types import RecordMetadata

_logger = logging.getLogger(__name__)


class AIOProducer:
    """Sends records without blocking the event loop; records are sent in the order of the calls.

    If the buffer is full, ``await send(…)`` waits, and the event loop continues.

    Cancellation: a `send` that is cancelled before it began sends nothing. If it had begun, the
    record may be in the log or not, as it may be after its acknowledgement's await was cancelled;
    should such a record fail, its error is logged.
    """

    @with_arguments_of(Producer.__init__)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Return a producer that opens the root at its first call.

        Args:
            args: the positional arguments of `Producer`.
            kwargs: the keyword arguments of `Producer`.
        """
        self._thread = ClientThread(
            "producer", lambda: Producer(*args, **kwargs), on_abandoned=_log_if_it_fails
        )

    async def start(self) -> Self:
        """Open the producer now; raises the errors of `Producer`'s constructor."""
        await self._thread.call(lambda producer: None)
        return self

    @with_arguments_of(Producer.send)
    async def send(self, *args: Any, **kwargs: Any) -> asyncio.Future[RecordMetadata]:
        """Send a record; arguments and errors are those of `Producer.send`.

        Returns:
            A future, once the record is in the buffer; await it for the acknowledgement.
        """
        return _awaitable(await self._thread.call(lambda producer: producer.send(*args, **kwargs)))

    @with_arguments_of(Producer.send)
    async def send_and_wait(self, *args: Any, **kwargs: Any) -> RecordMetadata:
        """Send a record, wait until it is acknowledged, and return its metadata."""
        return await (await self.send(*args, **kwargs))

    @with_arguments_of(Producer.send_table)
    async def send_table(self, *args: Any, **kwargs: Any) -> asyncio.Future[Any]:
        """Send the rows of a table; arguments and errors are those of `Producer.send_table`.

        Returns:
            A future, once the rows are in the buffer; await it for the `RecordRange` of each
            partition.
        """
        return _awaitable(
            await self._thread.call(lambda producer: producer.send_table(*args, **kwargs))
        )

    async def partitions_for(self, topic: str) -> set[int]:
        """Return the numbers of a topic's partitions; errors as `Producer.partitions_for`."""
        return await self._thread.call_aside(lambda producer: producer.partitions_for(topic))

    async def metrics(self) -> dict[str, dict[str, float]]:
        """Return ``{group: {name: value}}`` under Kafka's names, as `Producer.metrics`."""
        return await self._thread.call_aside(lambda producer: producer.metrics())

    async def flush(self, timeout: float | None = None) -> None:
        """Append all waiting records without lingering, and wait until each is done.

        Args:
            timeout: seconds; None: until all are done, at most about ``delivery.timeout.ms``.

        Raises:
            KafkaTimeoutError: not all records were done in time.
        """
        await self._thread.call_aside(lambda producer: producer.flush(timeout))

    async def close(self, timeout: float | None = None) -> None:
        """Append all waiting records, accept no more, and end the threads.

        A cancelled close continues in the background; a second one waits for it.

        Args:
            timeout: seconds to append the waiting records, after the calls before have ended or
                as much time has passed; None: until all are done, at most about
                ``delivery.timeout.ms``.
        """
        await self._thread.close(lambda producer: producer.close(timeout), patience_s=timeout)

    def __repr__(self) -> str:
        return self._thread.describe("AIOProducer")

    async def __aenter__(self) -> Self:
        try:
            return await self.start()
        except BaseException:
            self._thread.close_soon(lambda producer: producer.close())
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self.close()


def _awaitable(sent: Any) -> asyncio.Future[Any]:
    """Return a future of the running loop that gets the outcome of a producer's future."""
    loop = asyncio.get_running_loop()
    awaited: asyncio.Future[Any] = loop.create_future()

    def set_outcome() -> None:
        error = sent.exception()
        if awaited.cancelled():
            _log_error(error)
        elif error is None:
            awaited.set_result(sent.result())
        else:
            awaited.set_exception(error)

    sent.add_done_callback(lambda _: _call_soon(loop, set_outcome))
    return awaited


def _call_soon(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    with suppress(RuntimeError):  # the loop is closed, and nobody awaits the outcome
        loop.call_soon_threadsafe(function)


def _log_if_it_fails(producer: Producer, sent: Any) -> None:
    """Log the error of a record or table whose `send` was cancelled, if it fails."""
    if hasattr(sent, "add_done_callback"):
        sent.add_done_callback(lambda done: _log_error(done.exception()))


def _log_error(error: Exception | None) -> None:
    if error is not None:
        _logger.warning("a record whose send was cancelled has failed: %s", error)
