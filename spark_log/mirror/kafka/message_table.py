"""Messages of confluent-kafka as Arrow tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from spark_log.mirror.kafka.confluent import Message
from spark_log.record import (
    HEADERS_TYPE,
    TIMESTAMP_TYPE,
    binary_array,
    int_array,
    text_array,
    timestamp_array,
)

_US_PER_MS: Final = 1000

_headers: Any = Message.headers  # its type allows text and dicts, which only a producer passes
_COLUMNS: Final = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS_TYPE),
        pa.field("timestamp", TIMESTAMP_TYPE),
        pa.field("partition", pa.int32()),
    ]
)


@dataclass(frozen=True, slots=True)
class MessageTable:
    """Messages of one topic.

    Attributes:
        topic: the topic's name in Kafka.
        table: the columns of `Producer.send_table`, with ``partition``; rows in the order of
            reading.
        partitions: int32, the partition of each row.
        offsets: int64, the offset of each row in Kafka.
    """

    topic: str
    table: pa.RecordBatch
    partitions: np.ndarray
    offsets: np.ndarray


def message_tables(messages: Sequence[Message]) -> Iterator[MessageTable]:
    """Yield the messages of each topic as a table.

    Messages without a timestamp get the timestamp 0. A message without headers has null headers.
    """
    for topic, of_topic in _by_topic(messages):
        count = len(of_topic)
        partitions = np.fromiter(map(Message.partition, of_topic), np.int32, count)
        offsets = np.fromiter(map(Message.offset, of_topic), np.int64, count)
        times_ms = np.fromiter((time for _, time in map(Message.timestamp, of_topic)), np.int64)
        columns = [
            binary_array(list(map(Message.key, of_topic))),
            binary_array(list(map(Message.value, of_topic))),
            headers_array([*map(_headers, of_topic)]),
            timestamp_array(np.maximum(times_ms, 0) * _US_PER_MS),
            int_array(partitions, pa.int32()),
        ]
        table = pa.RecordBatch.from_arrays(columns, schema=_COLUMNS)
        yield MessageTable(topic, table, partitions, offsets)


def headers_array(headers: Sequence[list[tuple[str, bytes | None]] | None]) -> pa.Array:
    """Return the headers of records as an array of `HEADERS_TYPE`.

    Args:
        headers: the headers of each record; None becomes null.
    """
    count = len(headers)
    if headers.count(None) == count:
        return pa.nulls(count, HEADERS_TYPE)
    pairs = [pair for each in headers if each is not None for pair in each]
    lengths = np.fromiter((0 if each is None else len(each) for each in headers), np.int32, count)
    ends = np.zeros(count + 1, np.int32)
    np.cumsum(lengths, out=ends[1:])
    valid = np.fromiter((each is not None for each in headers), np.bool_, count)
    fields = list(HEADERS_TYPE.value_type)
    items = pa.StructArray.from_arrays(
        [text_array([name for name, _ in pairs]), binary_array([value for _, value in pairs])],
        fields=fields,
    )
    validity = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(
        HEADERS_TYPE, count, [validity, pa.py_buffer(ends)], children=[items]
    )


def _by_topic(messages: Sequence[Message]) -> Iterator[tuple[str, Sequence[Message]]]:
    topics: list[Any] = list(map(Message.topic, messages))
    if not topics:
        return
    if topics.count(topics[0]) == len(topics):
        yield topics[0], messages
        return
    numbers = {topic: number for number, topic in enumerate(dict.fromkeys(topics))}
    codes = np.fromiter(map(numbers.__getitem__, topics), np.int64, len(topics))
    for topic, number in numbers.items():
        yield topic, [messages[at] for at in np.flatnonzero(codes == number).tolist()]


def parts_by_partition(partitions: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield each partition with the indexes of its rows, in the order of rows."""
    order = np.argsort(partitions, kind="stable")
    numbers, firsts = np.unique(partitions[order], return_index=True)
    yield from zip(numbers.tolist(), np.split(order, firsts[1:]), strict=True)
