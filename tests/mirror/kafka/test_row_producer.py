"""Rows of a table as records of a producer: in order, none left out where its queue is full."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("confluent_kafka")

from confluent_kafka import KafkaError

from spark_log.errors import (
    InvalidRecordError,
    KafkaTimeoutError,
    ProducerFencedError,
    RecordTooLargeError,
)
from spark_log.mirror.commit_timer import CATCH_UP, CommitTimer
from spark_log.mirror.kafka.row_producer import (
    InterleavedError,
    ProducedRows,
    produce_rows,
    rows_by_partition,
)
from spark_log.mirror.mirror_settings import MirrorSettings
from spark_log.record import HEADERS_TYPE


def produced(producer: Any, rows, *, asks_for_all):
    return produce_rows(producer, "kt", rows, asks_for_all=asks_for_all)


class FullProducer:
    """A producer whose queue has room for some records at a time, and which acknowledges all."""

    def __init__(self, room):
        self.room = self.left = room
        self.records = []
        self.reports = []

    def produce(self, topic, value, key, partition, callback, on_delivery, timestamp, headers=None):
        if not self.left:
            raise BufferError
        self.left -= 1
        if callback is not None:
            self.reports.append((callback, len(self.records)))
        self.records.append((topic, partition, key, value, timestamp, headers))

    def poll(self, timeout):
        self.left = self.room

    def acknowledge(self, first_offset=0):
        for callback, number in self.reports:
            callback(None, Acknowledged(first_offset + number))


class Acknowledged:
    def __init__(self, offset):
        self._offset = offset

    def offset(self):
        return self._offset


def table(count, *, headers=None, partitions=1):
    numbers = np.arange(count)
    return pa.table(
        {
            "topic": ["t"] * count,
            "partition": pa.array(numbers % partitions, pa.int32()),
            "offset": pa.array(numbers // partitions + 100, pa.int64()),
            "key": pa.array([None if n % 3 else b"k%d" % n for n in numbers], pa.binary()),
            "value": pa.array([None if n % 5 == 1 else b"v%d" % n for n in numbers], pa.binary()),
            "headers": pa.array(headers or [None] * count, HEADERS_TYPE),
            "timestamp": pa.array(numbers * 1_500, pa.timestamp("us", tz="UTC")),
        }
    )


def expected(count, headers=None):
    return [
        (
            *("kt", 0, None if n % 3 else b"k%d" % n, None if n % 5 == 1 else b"v%d" % n),
            *(max(n * 1_500 // 1_000, 1), headers and headers[n]),
        )
        for n in range(count)
    ]


@pytest.mark.parametrize("asks_for_all", [True, False])
@pytest.mark.parametrize("count", [1, 2, 3, 40])
@pytest.mark.parametrize("room", [1, 2, 7, 100])
def test_no_row_is_left_out_or_repeated_when_the_queue_is_full(room, count, asks_for_all):
    producer = FullProducer(room)
    (rows,) = rows_by_partition(table(count))
    done = produced(producer, rows, asks_for_all=asks_for_all)
    producer.acknowledge(first_offset=7)
    assert producer.records == expected(count)
    assert done.offsets.tolist() == list(range(100, 100 + count))
    assert done.kafka_offsets().tolist() == list(range(7, 7 + count))
    assert len(done.reported) == (count if asks_for_all else min(count, 2))


def test_headers_are_pairs_and_a_row_without_any_has_none():
    given = [[("a", b"1"), ("a", None)], None, [], [("b", b"")], None]
    (rows,) = rows_by_partition(table(5, headers=given))
    producer = FullProducer(2)
    produced(producer, rows, asks_for_all=False)
    assert producer.records == expected(5, [each or [] for each in given])


def test_rows_of_each_partition_keep_their_order():
    first, second = rows_by_partition(table(7, partitions=2))
    assert [each.topic_partition.partition for each in (first, second)] == [0, 1]
    assert first.values == [b"v0", b"v2", b"v4", None]
    assert second.offsets.tolist() == [100, 101, 102]
    assert list(rows_by_partition(table(0))) == []


def test_a_record_of_another_producer_in_between_is_noticed():
    offsets = np.arange(3)
    assert ProducedRows(offsets, [5, 7]).kafka_offsets().tolist() == [5, 6, 7]
    with pytest.raises(InterleavedError):
        ProducedRows(offsets, [5, 8]).kafka_offsets()
    with pytest.raises(InterleavedError):
        ProducedRows(offsets, [5]).kafka_offsets()
    with pytest.raises(KafkaTimeoutError):
        ProducedRows(offsets, [5], asks_for_all=True).kafka_offsets()


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.MSG_SIZE_TOO_LARGE, RecordTooLargeError),
        (KafkaError.INVALID_RECORD, InvalidRecordError),
        (KafkaError._FENCED, ProducerFencedError),  # noqa: SLF001
    ],
)
def test_the_record_that_kafka_refused_is_named(code, kind):
    errors = [(0, KafkaError(KafkaError._PURGE_QUEUE)), (2, KafkaError(code))]  # noqa: SLF001
    with pytest.raises(kind) as raised:
        ProducedRows(np.arange(50, 60), [5, 6], errors, asks_for_all=True).kafka_offsets()
    assert kind is ProducerFencedError or "offset 52" in str(raised.value)


def test_a_transaction_is_longer_while_the_mirror_is_behind_and_ends_at_its_size(monkeypatch):
    now_s = [100.0]
    monkeypatch.setattr("spark_log.mirror.commit_timer.time.monotonic", lambda: now_s[0])
    timer = CommitTimer(MirrorSettings(commit_interval_ms=1_000, max_transaction_bytes=500))
    now_s[0] += 1.5
    timer.add(10, 100, is_behind=True)
    assert timer.left_s() == CATCH_UP - 1.5
    timer.add(1, 10, is_behind=False)
    assert timer.left_s() == -0.5
    timer.add(10, 390, is_behind=True)
    assert (timer.left_s(), timer.count, timer.size_bytes) == (0, 21, 500)
