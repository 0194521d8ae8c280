"""Messages become tables."""

from typing import Any

import pytest

pytest.importorskip("confluent_kafka")

from confluent_kafka import Message

from spark_log.mirror.kafka.message_table import headers_array, message_tables


def message(topic, partition, offset, time_ms=5, **content):
    return Message(
        topic=topic, partition=partition, offset=offset, timestamp=(1, time_ms), **content
    )


def test_headers_keep_order_doubles_and_nulls():
    given: list[Any] = [None, [("a", b"1"), ("a", None)], [], [("é", b"")]]
    found = headers_array(given)
    found.validate(full=True)
    pairs = [each and [(one["key"], one["value"]) for one in each] for each in found.to_pylist()]
    assert pairs == given


def test_records_without_headers_have_null_headers():
    assert headers_array([None, None]).null_count == 2


def test_messages_of_several_topics_are_several_tables():
    given = [
        message("a", 1, 10, key=b"k", value=b"v", headers=[("h", b"x")]),
        message("b", 0, 5, value=b""),
        message("a", 0, 3, time_ms=-1),
    ]
    first, second = message_tables(given)
    assert (first.topic, first.partitions.tolist(), first.offsets.tolist()) == (
        "a",
        [1, 0],
        [10, 3],
    )
    assert first.table.column("value").to_pylist() == [b"v", None]
    assert first.table.column("timestamp").cast("int64").to_pylist() == [5000, 0]
    assert second.table.column("value").to_pylist() == [b""]


def test_no_messages_are_no_table():
    assert list(message_tables([])) == []
