"""Calls to Kafka while brokers are not ready: repeated, as long as it makes sense."""

from types import SimpleNamespace

import pytest

pytest.importorskip("confluent_kafka")

from confluent_kafka import KafkaError, KafkaException

from spark_log.errors import (
    GroupNotEmptyError,
    InvalidConfigurationError,
    KafkaTimeoutError,
    ProducerFencedError,
    StorageUnavailableError,
)
from spark_log.mirror import KafkaCluster
from spark_log.mirror.kafka.errors import (
    RETRY_MS,
    as_own_error,
    kafka_errors,
    retry_while_not_ready,
)
from spark_log.types import OffsetAndMetadata, TopicPartition
from spark_log.util.clock import ManualClock

NOT_READY = [
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
]


class Clock(ManualClock):
    """A clock whose sleeps take no time."""

    def sleep_ms(self, duration_ms):
        self.advance_ms(duration_ms)


def failing(*codes):
    """Return a function that fails with each of these codes, and then returns a value."""
    left = list(codes)

    def call():
        if left:
            raise KafkaException(KafkaError(left.pop(0)))
        return "answer"

    return call


def test_a_call_is_repeated_until_the_coordinator_is_ready():
    clock = Clock()
    assert retry_while_not_ready(failing(*NOT_READY), clock) == "answer"
    assert 500 < clock.monotonic_ms() < 1_000  # about 100, 200, 400 ms


def test_it_is_given_up_after_a_minute():
    clock = Clock()
    with pytest.raises(KafkaException) as raised:
        retry_while_not_ready(failing(*NOT_READY * 1_000), clock)
    assert raised.value.args[0].code() in NOT_READY
    assert RETRY_MS - 2_000 < clock.monotonic_ms() <= RETRY_MS


def test_what_will_not_change_is_an_error_at_once():
    clock = Clock()
    with pytest.raises(KafkaException):
        retry_while_not_ready(failing(KafkaError.TOPIC_AUTHORIZATION_FAILED), clock)
    assert clock.monotonic_ms() == 0


def test_a_timeout_of_a_transaction_may_be_repeated():
    timed_out = KafkaException(KafkaError(KafkaError._TIMED_OUT, "slow", retriable=True))  # noqa: SLF001
    errors = [timed_out]

    def commit():
        if errors:
            raise errors.pop()

    retry_while_not_ready(commit, Clock())
    assert not errors


class Answer:
    """The futures of an admin client, each with the offsets of one group."""

    def __init__(self, code):
        self.code = code

    def __getitem__(self, group_id):
        return self

    def result(self):
        error = None if self.code is None else KafkaError(self.code)
        one = SimpleNamespace(topic="t", partition=0, offset=7, metadata=None, error=error)
        return SimpleNamespace(topic_partitions=[one])


@pytest.mark.parametrize("code", NOT_READY)
def test_offsets_of_a_group_are_read_and_set_when_its_coordinator_is_ready(monkeypatch, code):
    clock = Clock()
    cluster = KafkaCluster({"bootstrap.servers": "127.0.0.1:1"}, clock)
    codes = [code, code, None]
    asked = []

    def answer(request, **_):
        asked.append(request)
        return Answer(codes[(len(asked) - 1) % 3])

    monkeypatch.setattr(cluster._admin, "list_consumer_group_offsets", answer)  # noqa: SLF001
    monkeypatch.setattr(cluster._admin, "alter_consumer_group_offsets", answer)  # noqa: SLF001
    assert cluster.group_offsets("g") == {TopicPartition("t", 0): OffsetAndMetadata(7)}
    assert len(asked) == 3
    cluster.alter_group_offsets("g", {TopicPartition("t", 0): OffsetAndMetadata(8)})
    assert len(asked) == 6


def test_a_fatal_error_that_a_callback_meets_has_its_name():
    fatal = KafkaException(KafkaError(KafkaError._FENCED))  # noqa: SLF001
    with pytest.raises(ProducerFencedError), kafka_errors():
        raise SystemError("returned a result with an exception set") from fatal
    with pytest.raises(SystemError), kafka_errors():
        raise SystemError


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError._FENCED, ProducerFencedError),  # noqa: SLF001
        (KafkaError.UNKNOWN_MEMBER_ID, GroupNotEmptyError),
        (KafkaError.INVALID_CONFIG, InvalidConfigurationError),
        (KafkaError._TRANSPORT, KafkaTimeoutError),  # noqa: SLF001
        (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, StorageUnavailableError),
    ],
)
def test_errors_have_the_names_of_this_package(code, kind):
    assert type(as_own_error(KafkaError(code))) is kind
