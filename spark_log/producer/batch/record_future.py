"""`RecordFuture`: the future that `Producer.send` returns."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Self

from spark_log.errors import KafkaTimeoutError
from spark_log.producer.batch.producer_batch import RECORD_FIELDS, ProducerBatch
from spark_log.types import RecordMetadata


class RecordFuture(tuple[ProducerBatch, int]):
    """The outcome of one `Producer.send`.

    It has the methods of ``concurrent.futures.Future`` and of kafka-python's futures. Callbacks run
    in the producer's threads, in the order in which they were added; a slow callback delays the
    next appends, and its exceptions are logged.

    It is a tuple, so that a million futures cost little memory: the record's batch, and the length
    of the batch's flat list right after the record was added.
    """

    __slots__ = ()

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait until the record is acknowledged, and return its metadata.

        With ``acks=0`` the offset is -1.

        Args:
            timeout: seconds; None: until the record is done, at most ``delivery.timeout.ms``.

        Raises:
            KafkaTimeoutError: the record is not done in this time (a `TimeoutError`); or it was not
                appended within ``delivery.timeout.ms``.
            UnknownOutcomeError: the record may be in the log, now or later.
            SparkLogError: the record failed, and is not in the log.
        """
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self[0].metadata_of(self.row)

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Wait until the record is done, and return its error; None if it was acknowledged.

        Args:
            timeout: seconds; None: until the record is done, at most ``delivery.timeout.ms``.

        Raises:
            KafkaTimeoutError: the record is not done in this time.
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
        """The record's index in its batch."""
        return self[1] // RECORD_FIELDS - 1

    @property
    def was_refused(self) -> bool:
        """Whether the record failed before it was in a batch: it is too large, for example."""
        return isinstance(self[0], _RefusedRecord)

    def done(self) -> bool:
        """Whether the record is acknowledged or has failed."""
        return self[0].is_done

    def add_done_callback(self, function: Callable[[Self], Any]) -> None:
        """Call ``function(self)`` when the record is done, at once if it is done already."""
        self[0].call_when_done(partial(function, self))

    def running(self) -> bool:
        """Whether the record is neither acknowledged nor failed."""
        return not self.done()

    def cancel(self) -> bool:
        """Return False: a record cannot be recalled."""
        return False

    def cancelled(self) -> bool:
        """Return False: a record cannot be cancelled."""
        return False

    # --- as in kafka-python ----------------------------------------------------------------------

    def get(self, timeout: float | None = None) -> RecordMetadata:
        """Wait until the record is acknowledged, and return its metadata, as `result` does."""
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
        """Call a function with the record's metadata, or with its error if it failed."""
        self.add_callback(function, *args, **kwargs)
        return self.add_errback(function, *args, **kwargs)

    def __repr__(self) -> str:
        batch = self[0]
        state = "failed" if self.failed() else "acknowledged" if self.done() else "on its way"
        return f"<RecordFuture {batch.topic}-{batch.partition}, record {self.row}: {state}>"

    # Compare and hash by identity, unlike a tuple.
    __eq__ = object.__eq__
    __hash__ = object.__hash__


class _RefusedRecord(ProducerBatch):
    """A failed batch for the future of one record, which was refused before it was in a batch."""

    __slots__ = ()

    def __init__(self, topic: str, partition: int, error: Exception) -> None:
        super().__init__(topic, partition, created_ms=0)
        self.records += (None, None, None, 0)
        self.fail(error)


def refused_future(topic: str, partition: int, error: Exception) -> RecordFuture:
    """Return the future of a record that was refused before it was in a batch.

    Args:
        topic: the topic's name.
        partition: the partition's number; -1: unknown.
        error: the reason, which is the error of the future.
    """
    return RecordFuture((_RefusedRecord(topic, partition, error), RECORD_FIELDS))
