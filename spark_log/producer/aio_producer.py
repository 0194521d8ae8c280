"""`AIOProducer`: a `Producer` for asyncio. It runs the same code on a thread of its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Any, Self

from spark_log.errors import SparkLogError
from spark_log.producer.producer import Producer
from spark_log.producer.transaction import TransactionCall, Transactions
from spark_log.threads import ClientThread, with_arguments_of
from spark_log.types import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    RecordMetadata,
    TopicPartition,
)

_log = logging.getLogger(__name__)


class AIOProducer:
    """Sends records without blocking the event loop; records are sent in the order of the calls.

    If the buffer is full, ``await send(…)`` waits, and the event loop continues.

    Cancellation: a `send` that is cancelled before it began sends nothing. If it had begun, or if
    the await of its acknowledgement is cancelled, the record may be in the log or not; if such a
    record fails, its error is logged. A call that begins or ends transactions continues after its
    await was cancelled: call it again for its outcome.
    """

    @with_arguments_of(Producer.__init__)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Take the arguments of `Producer`; the first call opens the root."""
        self._thread = ClientThread(
            "producer", lambda: _Producer(*args, **kwargs), on_abandoned=_log_if_it_fails
        )

    async def start(self) -> Self:
        """Open the producer now; raises the errors of `Producer`'s constructor."""
        await self._thread.call(lambda producer: None)
        return self

    @with_arguments_of(Producer.send)
    async def send(self, *args: Any, **kwargs: Any) -> asyncio.Future[RecordMetadata]:
        """Send a record; arguments and errors are those of `Producer.send`.

        Returns:
            A future, when the record is in the buffer; await it for the acknowledgement.
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
            A future, when the rows are in the buffer; await it for the `RecordRange` of each
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

    # --- transactions ----------------------------------------------------------------------------

    async def init_transactions(self, timeout: float | None = None) -> None:
        """Begin as the one producer of ``transactional.id``; once, before the first transaction.

        Args:
            timeout: seconds; None: ``max.block.ms``.

        Raises:
            SparkLogError: the errors of `Producer.init_transactions`.
        """
        await self._run_to_end("init_transactions", Transactions.initialize, timeout)

    async def begin_transaction(self) -> None:
        """Begin a transaction: records may be sent, until it is committed or aborted.

        Raises:
            SparkLogError: the errors of `Producer.begin_transaction`.
        """
        await self._thread.call(lambda producer: producer.begin_transaction())

    async def commit_transaction(self, timeout: float | None = None) -> None:
        """Append all waiting records, then commit: all records of the transaction are visible.

        Args:
            timeout: seconds; None: ``max.block.ms``.

        Raises:
            SparkLogError: the errors of `Producer.commit_transaction`.
        """
        await self._run_to_end("commit_transaction", Transactions.commit, timeout)

    async def abort_transaction(self, timeout: float | None = None) -> None:
        """Abort the transaction: readers of committed records never see its records.

        Args:
            timeout: seconds; None: ``max.block.ms``.

        Raises:
            SparkLogError: the errors of `Producer.abort_transaction`.
        """
        await self._run_to_end("abort_transaction", Transactions.abort, timeout)

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group_metadata: ConsumerGroupMetadata,
        timeout: float | None = None,
    ) -> None:
        """Add a consumer group's offsets to the transaction (KIP-447).

        Args:
            offsets: the offset of the next record to read, by partition.
            group_metadata: ``consumer.group_metadata()``.
            timeout: seconds; None: ``max.block.ms``.

        Raises:
            SparkLogError: the errors of `Producer.send_offsets_to_transaction`.
        """
        await self._thread.call(
            lambda producer: producer.send_offsets_to_transaction(offsets, group_metadata, timeout)
        )

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """Return a context that is one transaction: ``async with producer.transaction(): …``.

        It commits and aborts as `Producer.transaction` does. A body that is cancelled is aborted. A
        commit that is cancelled continues: call `commit_transaction` again for its outcome.

        Raises:
            SparkLogError: the errors of `Producer.transaction`.
        """
        begun: list[bool] = []

        def begin(producer: _Producer) -> None:
            producer.begin_transaction()
            begun.append(True)

        try:
            await self._thread.call(begin)
            yield self
        except BaseException as error:
            await self._abort_after(error, begun)
            raise
        try:
            await self.commit_transaction()
        except SparkLogError as error:
            if error.abortable:
                await self._abort_after(error, begun)
            raise

    async def _abort_after(self, error: BaseException, begun: list[bool]) -> None:
        """Abort after an error, if the transaction has begun when earlier calls have ended."""

        def abort(transactions: Transactions) -> TransactionCall | None:
            return transactions.abort() if begun else None

        try:
            await self._run_to_end("abort_transaction", abort, None)
        except Exception as second:
            error.add_note(f"abort_transaction failed: {second}")

    async def _run_to_end(
        self,
        name: str,
        begin: Callable[[Transactions], TransactionCall | None],
        timeout: float | None,
    ) -> None:
        """Begin a call after all calls before it, and await its end without a thread."""
        transactions, call = await self._thread.call(lambda producer: producer.begin(name, begin))
        if call is not None:
            ended = asyncio.wrap_future(call.outcome)
            ended.add_done_callback(lambda done: done.cancelled() or done.exception())
            timeout = transactions.timeout_s(timeout)
            await asyncio.wait([ended], timeout=timeout)
            transactions.take(call, timeout)

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
            timeout: seconds to append the waiting records. The time begins when earlier calls have
                ended, or when the same time has passed. None: until all are done, at most about
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


class _Producer(Producer):
    """A producer that begins the calls of transactions, whose ends the event loop awaits."""

    def begin(
        self, name: str, begin: Callable[[Transactions], TransactionCall | None]
    ) -> tuple[Transactions, TransactionCall | None]:
        transactions = self._runtime.transactional(name)
        return transactions, begin(transactions)


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
        _log.warning("a record whose send was cancelled has failed: %s", error)
