"""The log tells what a consumer does: few lines for each operation, none for each record."""

import logging

import pytest

from spark_log import Admin, TopicPartition
from spark_log.types import OffsetAndMetadata
from tests.consumer.support import T0, append, numbered, poll_until, read_values, settle


@pytest.fixture
def lines(caplog):
    """Return the lines that modules of the consumer logged since the last call."""
    caplog.set_level(logging.DEBUG, logger="spark_log.consumer")

    def lines(level=logging.DEBUG):
        found = [
            record.getMessage()
            for record in caplog.records
            if record.name.startswith("spark_log.consumer") and record.levelno >= level
        ]
        caplog.clear()
        return found

    return lines


def test_a_fetch_and_a_poll_are_told_with_their_offsets(root, open_consumer, lines):
    append(root, numbered(0, 100))
    consumer = open_consumer("t", client_id="c")
    poll_until(consumer, 100)
    found = lines()
    assert "consumer c: subscribed to t" in found
    assert "consumer c: assigned t-0" in found
    assert "t-0: starts at offset 0 (earliest)" in found
    (fetched,) = [line for line in found if line.startswith("t-0: fetched")]
    assert fetched.startswith("t-0: fetched from offset 0 to before 100: ")
    assert " bytes in " in fetched
    assert "poll returns 100 records; the next offsets are t-0: 100" in found


def test_no_line_is_written_for_each_record(root, open_consumer, lines):
    append(root, numbered(0, 1_000))
    consumer = open_consumer("t", consumer_timeout_ms=100)
    assert sum(1 for _ in consumer) == 1_000
    assert len(lines()) < 20


def test_a_poll_that_returns_nothing_writes_no_line(root, open_consumer, lines):
    append(root, numbered(0, 1))
    consumer = open_consumer("t")
    read_values(consumer, 1)
    lines()
    for _ in range(10):
        consumer.poll(timeout_ms=10)
    assert lines() == []


def test_positions_say_where_they_come_from(root, open_consumer, lines):
    append(root, numbered(0, 10))
    consumer = open_consumer(group_id="g", auto_offset_reset="latest")
    consumer.assign([T0])
    consumer.commit({T0: OffsetAndMetadata(7)})
    consumer.poll()
    assert "t-0: starts at offset 7 (committed)" in lines()
    consumer.seek(T0, 3)
    assert "t-0: seek to offset 3" in lines()
    consumer.seek_to_end()
    consumer.position(T0)
    assert "t-0: starts at offset 10 (latest)" in lines()


def test_a_position_out_of_range_is_reset_with_a_warning(root, open_consumer, lines):
    append(root, numbered(0, 10))
    append(root, numbered(10, 20))
    consumer = open_consumer()
    consumer.assign([T0])
    consumer.seek(T0, 0)
    Admin(root).delete_records({T0: 10})
    poll_until(consumer, 10)
    (warning,) = lines(logging.WARNING)
    assert "resetting the position by auto.offset.reset=earliest" in warning


def test_a_commit_is_told_when_it_begins_and_when_it_took_effect(root, join, lines):
    append(root, numbered(0, 5))
    consumer = join("t")
    read_values(consumer, 5)
    lines()
    consumer.commit()
    begun, done = lines()
    assert begun == "group g: committing t-0: 5"
    assert done.startswith("group g: committed the offsets of 1 partitions in ")


def test_each_step_of_a_rebalance_is_told(root, join, lines):
    a = join()
    settle({a: 3})
    assert lines(logging.INFO) == [
        "consumer a of group g: subscribed to three",
        "consumer a of group g: assigned three-0, three-1, three-2",
    ]
    b = join()
    settle({a: 2, b: 1})
    found = lines(logging.INFO)
    assert "consumer a of group g: revoked three-2" in found
    assert "consumer b of group g: assigned three-2" in found
    b.close()
    assert lines(logging.INFO) == ["consumer b of group g: closed"]


def test_partitions_of_a_deleted_topic_are_lost(root, open_consumer, lines):
    consumer = open_consumer("t", "three", client_id="c")
    consumer.poll()
    Admin(root).delete_topics(["t"])
    lines()
    while TopicPartition("t", 0) in consumer.assignment():
        consumer.poll(timeout_ms=100)
    assert "consumer c: lost t-0" in lines(logging.INFO)


def test_other_subscriptions_are_told(root, open_consumer, lines):
    consumer = open_consumer(client_id="c")
    consumer.subscribe(pattern="t.*")
    assert lines() == ["consumer c: subscribed to topics that match t.*"]
    consumer.unsubscribe()
    assert lines() == ["consumer c: unsubscribed"]
    consumer.assign([T0])
    assert lines() == ["consumer c: reads t-0, as assigned by the user"]
