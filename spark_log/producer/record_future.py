"""What `Producer.send` returns: a record that is on its way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from spark_log.errors import KafkaTimeoutError
from spark_log.producer.producer_batch import RECORD_FIELDS, ProducerBatch
from spark_log.types import RecordMetadata


class RecordFuture(tuple[ProducerBatch, int]):
    """The outcome of one ``send``: a batch, and how long its list was with the record in it.

    Methods are those of `concurrent.futures.Future`, and those of kafka-python's futures beside
    them. It is a pair and nothing else, so that a million of them cost little: what can be waited
    for is the batch. Callbacks run in the producer's threads, in the order in which they were
    added, and should be quick; what they raise is logged.
    """

    __slots__ = ()

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait until the record is acknowledged, and return where it is.

        With ``acks=0`` the offset is -1.

        Args:
            timeout: seconds; None: no longer than ``delivery.timeout.ms``, when it ends anyhow.

        Raises:
            KafkaTimeoutError: not done in this time (a `TimeoutError`); or the record was not
                acknowledged within ``delivery.timeout.ms``.
            SparkLogError: why the record failed.
        """
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self[0].metadata_of(self.row)

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Wait likewise, and return why the record failed, None if it did not.

        Raises:
            KafkaTimeoutError: not done in this time.
        """
        batch = self[0]
        if not batch.wait(timeout):
            raise KafkaTimeoutError(
                f"a record for {batch.topic}-{batch.partition} is not acknowledged after "
                f"{timeout} s; it is still on its way: wait longer, or until delivery.timeout.ms"
            )
        return batch.error_of(self.row)

    @property
    def row(self) -> int:
        """The record's place in its batch."""
        return self[1] // RECORD_FIELDS - 1

    def done(self) -> bool:
        """Whether the record is acknowledged or has failed."""
        return self[0].is_done

    def add_done_callback(self, function: Callable[[Self], Any]) -> None:
        """Call ``function(self)`` when the record is done: at once if it is."""
        self[0].call_when_done(self, function)

    def running(self) -> bool:
        """Whether the record is still on its way."""
        return not self.done()

    def cancel(self) -> bool:
        """Return False: what was sent cannot be taken back."""
        return False

    def cancelled(self) -> bool:
        """Return False."""
        return False

    # --- as in kafka-python ----------------------------------------------------------------------

    def get(self, timeout: float | None = None) -> RecordMetadata:
        """Do the same as `result`."""
        return self.result(timeout)

    @property
    def is_done(self) -> bool:
        """Whether the record is acknowledged or has failed."""
        return self.done()

    def succeeded(self) -> bool:
        """Whether the record is acknowledged."""
        return self.done() and self.exception() is None

    def failed(self) -> bool:
        """Whether the record has failed."""
        return self.done() and self.exception() is not None

    def add_callback(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Self:
        """Call ``function(*args, metadata, **kwargs)`` when the record is acknowledged."""

        def call(future: Self) -> None:
            if future.exception() is None:
                function(*args, future.result(), **kwargs)

        self.add_done_callback(call)
        return self

    def add_errback(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Self:
        """Call ``function(*args, error, **kwargs)`` when the record has failed."""

        def call(future: Self) -> None:
            error = future.exception()
            if error is not None:
                function(*args, error, **kwargs)

        self.add_done_callback(call)
        return self

    def add_both(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Self:
        """Call it in both cases: with the metadata, or with the error."""
        self.add_callback(function, *args, **kwargs)
        return self.add_errback(function, *args, **kwargs)

    def __repr__(self) -> str:
        batch = self[0]
        state = "failed" if self.failed() else "acknowledged" if self.done() else "on its way"
        return f"<RecordFuture {batch.topic}-{batch.partition}, record {self.row}: {state}>"

    # A tuple would compare, and hash, by what it holds; a future is itself.
    __eq__ = object.__eq__
    __hash__ = object.__hash__


def failed_future(topic: str, partition: int, error: Exception) -> RecordFuture:
    """Return the future of a record that was not taken."""
    batch = ProducerBatch(topic, partition, created_ms=0)
    batch.records += (None, None, None, 0)
    batch.fail(error)
    return RecordFuture((batch, RECORD_FIELDS))
