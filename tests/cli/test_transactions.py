"""``spark-log transactions``: as kafka-transactions, in text and JSON."""

import pytest

from spark_log import TopicPartition
from spark_log.record import ProducerAppend
from tests.cli.support import append, begin_transaction, partition_log
from tests.record.samples import numbered

WEATHER, FLIGHTS = TopicPartition("weather", 0), TopicPartition("flights", 1)


@pytest.fixture
def begun(root):
    """An open transaction of ``orders``, behind one record; its coordinator and producer."""
    append(root, "weather", b"rain")
    return begin_transaction(root, "orders", WEATHER, FLIGHTS)


def table(outcome):
    assert (outcome.status, outcome.err) == (0, "")
    return [line.split() for line in outcome.lines]


def test_list_shows_ids_and_states(shell, begun):
    _, producer = begun
    assert table(shell("transactions", "list")) == [
        ["TRANSACTIONALID", "PRODUCERID", "TRANSACTIONSTATE"],
        ["orders", str(producer.producer_id), "Ongoing"],
    ]
    listed = shell("transactions", "list", "--json").document["transactions"]
    assert listed == [
        {"transactional_id": "orders", "producer_id": producer.producer_id, "state": "Ongoing"}
    ]


@pytest.mark.parametrize(
    ("argv", "found"),
    [
        (("--state", "Ongoing"), 1),
        (("--state", "Empty"), 0),
        (("--producer-id", "99999"), 0),
        (("--duration-filter", "3600000"), 0),
        (("--transactional-id-pattern", "ord.*"), 1),
    ],
)
def test_list_filters(shell, begun, argv, found):
    listed = shell("transactions", "list", *argv, "--json").document["transactions"]
    assert len(listed) == found


def test_describe_shows_what_is_open(shell, begun):
    _, producer = begun
    columns, row = table(shell("transactions", "describe", "orders"))
    assert columns[:4] == ["TRANSACTIONALID", "PRODUCERID", "PRODUCEREPOCH", "TRANSACTIONSTATE"]
    assert row[:5] == ["orders", str(producer.producer_id), "0", "Ongoing", "60000"]
    assert row[-1] == "flights-1,weather-0"
    outcome = shell("transactions", "describe", "--transactional-id", "orders", "--json")
    (described,) = outcome.document["transactions"]
    assert described["topic_partitions"] == [
        {"topic": "flights", "partition": 1},
        {"topic": "weather", "partition": 0},
    ]
    assert described["transaction_start_time_ms"] > 0


def test_describe_shows_the_start_of_what_has_ended_and_no_duration(shell, begun):
    coordinator, producer = begun
    _, (*_, started, duration, _) = table(shell("transactions", "describe", "orders"))
    assert int(started) > 0
    assert int(duration) >= 0
    coordinator.abort(producer)
    _, row = table(shell("transactions", "describe", "orders"))
    assert row[3:7] == ["CompleteAbort", "60000", started, "-"]


def test_describe_tells_mistakes(shell, root):
    assert "which transactional ids?" in shell("transactions", "describe").error
    outcome = shell("transactions", "describe", "nobody")
    assert (outcome.status, "no transactional id 'nobody'" in outcome.error) == (2, True)


def test_describe_producers_shows_open_transactions(shell, begun):
    _, producer = begun
    columns, row = table(
        shell("transactions", "describe-producers", "--topic", "weather", "--partition", "0")
    )
    assert columns[-2:] == ["CURRENTTRANSACTIONSTARTOFFSET", "TRANSACTIONALID"]
    assert (row[0], row[-2:]) == (str(producer.producer_id), ["1", "orders"])
    outcome = shell("transactions", "describe-producers", "flights", "--partition", "0", "--json")
    assert outcome.document == {"topic": "flights", "partition": 0, "producers": []}


def test_abort_by_offset_and_by_producer(shell, root, begun):
    coordinator, producer = begun
    where = ("transactions", "abort", "weather", "--partition", "0")
    outcome = shell(*where, "--start-offset", "1")
    assert outcome.lines == [
        f"Aborted the transaction of producer {producer.producer_id}, epoch 0."
    ]
    assert coordinator.refresh().state == "CompleteAbort"
    assert "begins at offset 1" in shell(*where, "--start-offset", "1").error
    _, again = begin_transaction(root, "orders", WEATHER)
    named = ("--producer-id", again.producer_id, "--producer-epoch", again.producer_epoch)
    assert shell(*where, *named, "--json").document["producer_id"] == again.producer_id
    assert "has no open transaction" in shell(*where, *named).error
    assert "which transaction?" in shell(*where).error
    assert "which transaction?" in shell(*where, "--producer-id", "1").error


def test_find_hanging_finds_what_nobody_ends(shell, root, begun):
    coordinator, producer = begun
    assert shell("transactions", "find-hanging").err == "No transaction hangs.\n"
    coordinator.commit(producer)
    late = ProducerAppend(producer.producer_id, 0, 0, is_transactional=True)
    partition_log(root, "flights", 0).append(numbered(0, 1), producer=late)
    columns, row = table(shell("transactions", "find-hanging"))
    assert columns[0] == "TOPIC"
    assert row[:5] == ["flights", "0", str(producer.producer_id), "0", "0"]
    hanging = shell("transactions", "find-hanging", "flights", "--json").document["transactions"]
    assert [each["transactional_id"] for each in hanging] == ["orders"]
    assert shell("transactions", "find-hanging", "weather", "--json").document == {
        "transactions": []
    }
    shell("transactions", "abort", "flights", "--partition", "0", "--start-offset", "0")
    assert shell("transactions", "find-hanging", "--json").document == {"transactions": []}
