"""Translates errors of librdkafka into errors of this package, and retries calls."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Final, TypeVar

from spark_log.errors import (
    CorruptRecordError,
    GroupNotEmptyError,
    InvalidConfigurationError,
    KafkaTimeoutError,
    ProducerFencedError,
    SparkLogError,
    StorageUnavailableError,
)
from spark_log.mirror.kafka.confluent import KafkaError, KafkaException, Message
from spark_log.util import Clock, retry_pause_ms

_log = logging.getLogger(__name__)

RETRY_MS: Final = 60_000
"""Time for which a call is retried while brokers are not ready (``default.api.timeout.ms``)."""

_FIRST_PAUSE_MS: Final = 100
_LONGEST_PAUSE_MS: Final = 1_000

_T = TypeVar("_T")


def retry_while_not_ready(call: Callable[[], _T], clock: Clock) -> _T:
    """Call Kafka; retry while the responsible broker is not ready, or another one is responsible.

    A coordinator that loads its partition after a restart, or that has moved, refuses a call
    and does nothing. Librdkafka retries some calls, but not those of its admin client.

    Args:
        call: the call, which may be repeated.
        clock: measures the time since the first try, and waits between tries.

    Raises:
        KafkaException: the first error of another kind, or the last one after `RETRY_MS`.
    """
    random = Random()
    due_ms = clock.monotonic_ms() + RETRY_MS
    failures = 0
    while True:
        try:
            return call()
        except KafkaException as raised:
            error = raised.args[0]
            failures += 1
            pause_ms = retry_pause_ms(
                failures, initial_ms=_FIRST_PAUSE_MS, max_ms=_LONGEST_PAUSE_MS, random=random
            )
            if not is_not_ready(error) or clock.monotonic_ms() + pause_ms > due_ms:
                raise
            _log.info("Kafka is not ready, trying again: %s", error.str())
        clock.sleep_ms(pause_ms)


def is_not_ready(error: KafkaError) -> bool:
    """Return whether Kafka has done nothing, and the same call may succeed soon."""
    return error.code() in _NOT_READY or error.retriable()


def is_end(message: Message) -> bool:
    """Return whether a message only reports that the end of a partition was reached.

    Raises:
        SparkLogError: the message reports that reading failed.
    """
    error = message.error()
    if error is None:
        return False
    if error.code() == KafkaError._PARTITION_EOF:
        return True
    with kafka_errors():
        raise KafkaException(error)
    return False


@contextmanager
def kafka_errors(*expected: int) -> Iterator[None]:
    """Raise errors of librdkafka as errors of this package.

    Args:
        expected: the codes of errors that are ignored.

    Raises:
        SparkLogError: the error that corresponds to librdkafka's error.
    """
    try:
        yield
    except KafkaException as raised:
        error = raised.args[0]
        if error.code() not in expected:
            raise as_own_error(error) from None
    except SystemError as raised:
        # Confluent-kafka raises a fatal error before it calls the remaining callbacks.
        cause = raised.__cause__
        if not isinstance(cause, KafkaException):
            raise
        raise as_own_error(cause.args[0]) from None


def as_own_error(error: KafkaError) -> SparkLogError:
    """Return the error of this package that corresponds to one of librdkafka."""
    text = f"Kafka: {error.str()}"
    code = error.code()
    if code in _FENCED:
        return ProducerFencedError(f"{text}: another mirror with the same aliases was started")
    if code in (KafkaError._INVALID_ARG, KafkaError._CONFLICT, *_REFUSED):
        return InvalidConfigurationError(text)
    if code in (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.NON_EMPTY_GROUP):
        return GroupNotEmptyError(f"{text}: the group has members in Kafka; stop them first")
    if code in (KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN):
        return KafkaTimeoutError(f"{text}; check the bootstrap servers, and try again")
    if code in (KafkaError.INVALID_MSG, KafkaError._BAD_MSG):
        return CorruptRecordError(text)
    return StorageUnavailableError(text)


_FENCED: Final[Sequence[int]] = (
    KafkaError._FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.PRODUCER_FENCED,
)
_REFUSED: Final[Sequence[int]] = (
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.INVALID_CONFIG,
    KafkaError.INVALID_PARTITIONS,
    KafkaError.INVALID_REPLICATION_FACTOR,
)
_NOT_READY: Final[Sequence[int]] = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.NOT_CONTROLLER,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.CONCURRENT_TRANSACTIONS,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
    KafkaError._WAIT_COORD,
)
