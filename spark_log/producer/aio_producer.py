"""`AIOProducer`: a `Producer` for asyncio. The same code on a thread of its own, and no logic."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self, TypeVar

import pyarrow as pa

from spark_log.errors import IllegalStateError
from spark_log.producer.producer import Producer
from spark_log.types import RecordMetadata

R = TypeVar("R")


class AIOProducer:
    """Sends records without blocking the event loop; calls keep their order.

    A full buffer lets ``await send(…)`` wait, not the loop.
    """

    def __init__(self, *args: Any, **settings: Any) -> None:
        """Touches nothing yet: the producer is opened by the first call.

        Args:
            args: see `Producer`.
            settings: likewise.
        """
        self._open: Callable[[], Producer] = lambda: Producer(*args, **settings)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="spark-log-aio-producer")
        self._producer: Producer | None = None
        self._is_closed = False

    async def start(self) -> Self:
        """Open the producer; what `Producer` raises is raised here."""
        await self._call(lambda producer: None)
        return self

    async def send(self, topic: str, *args: Any, **kwargs: Any) -> asyncio.Future[RecordMetadata]:
        """Send a record; see `Producer.send`.

        Returns:
            A future, once the record is in the buffer; await it for the acknowledgement.
        """
        return self._awaitable(
            await self._call(lambda producer: producer.send(topic, *args, **kwargs))
        )

    async def send_and_wait(self, topic: str, *args: Any, **kwargs: Any) -> RecordMetadata:
        """Send a record, and wait until it is acknowledged."""
        return await (await self.send(topic, *args, **kwargs))

    async def send_table(self, topic: str, table: pa.Table, **kwargs: Any) -> asyncio.Future[Any]:
        """Send a table; see `Producer.send_table`. Returns a future, as `send` does."""
        return self._awaitable(
            await self._call(lambda producer: producer.send_table(topic, table, **kwargs))
        )

    async def partitions_for(self, topic: str) -> set[int]:
        """See `Producer.partitions_for`."""
        return await self._call(lambda producer: producer.partitions_for(topic))

    async def flush(self, timeout: float | None = None) -> None:
        """See `Producer.flush`."""
        await self._call(lambda producer: producer.flush(timeout))

    async def close(self, timeout: float | None = None) -> None:
        """See `Producer.close`."""
        if self._is_closed:
            return
        if self._producer is not None:
            await self._call(lambda producer: producer.close(timeout))
        self._is_closed = True
        self._thread.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self.close()

    async def _call(self, function: Callable[[Producer], R]) -> R:
        if self._is_closed:
            raise IllegalStateError("the producer is closed; make another one")
        return await asyncio.wrap_future(self._thread.submit(self._run, function))

    def _run(self, function: Callable[[Producer], R]) -> R:
        if self._producer is None:
            self._producer = self._open()
        return function(self._producer)

    @staticmethod
    def _awaitable(sent: Any) -> asyncio.Future[Any]:
        """Return a future of the loop that follows one of the producer's."""
        loop = asyncio.get_running_loop()
        awaited: asyncio.Future[Any] = loop.create_future()

        def settle() -> None:
            if awaited.cancelled():
                return
            error = sent.exception()
            if error is None:
                awaited.set_result(sent.result())
            else:
                awaited.set_exception(error)

        def done(_: object) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle)

        sent.add_done_callback(done)
        return awaited
