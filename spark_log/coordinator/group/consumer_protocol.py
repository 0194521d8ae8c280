"""Subscriptions and assignments of Kafka's consumers (``ConsumerProtocol``), only for display.

Both begin, big-endian, with ``version i16, topics: i32 times (string)`` or ``(string, i32 times
partition i32)``. Later versions append fields. What cannot be read is shown as nothing: the bytes
are the clients' own.
"""

from __future__ import annotations

import struct
from typing import Final

from spark_log.types import TopicPartition

CONSUMER_PROTOCOL_TYPE: Final = "consumer"

_I16, _I32 = struct.Struct(">h"), struct.Struct(">i")


def subscribed_topics(metadata: bytes) -> tuple[str, ...]:
    """Return the topics of a member's metadata; empty if it cannot be read."""
    reader = _Reader(metadata)
    try:
        reader.i16()
        return tuple(reader.text() for _ in range(reader.count(_I16.size)))
    except (struct.error, ValueError):
        return ()


def assigned_partitions(assignment: bytes) -> frozenset[TopicPartition]:
    """Return the partitions of an assignment; empty if it cannot be read."""
    reader = _Reader(assignment)
    found = set()
    try:
        reader.i16()
        for _ in range(reader.count(_I16.size + _I32.size)):
            topic = reader.text()
            found |= {TopicPartition(topic, reader.i32()) for _ in range(reader.count(_I32.size))}
    except (struct.error, ValueError):
        return frozenset()
    return frozenset(found)


def encode_assignment(partitions: frozenset[TopicPartition]) -> bytes:
    """Return partitions as an assignment, for clients that ask about a group of consumers."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    parts = [_I16.pack(0), _I32.pack(len(topics))]
    for topic, numbers in topics.items():
        name = topic.encode()
        parts += [_I16.pack(len(name)), name, _I32.pack(len(numbers))]
        parts += [_I32.pack(number) for number in numbers]
    return b"".join([*parts, _I32.pack(-1)])


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def i16(self) -> int:
        return self._number(_I16)

    def i32(self) -> int:
        return self._number(_I32)

    def count(self, item_bytes: int) -> int:
        """Return the length of an array that the rest of the data can have."""
        count = self.i32()
        if not 0 <= count <= (len(self._data) - self._at) // item_bytes:
            raise ValueError("an array goes past the end")
        return count

    def text(self) -> str:
        length = self.i16()
        end = self._at + length
        if length < 0 or end > len(self._data):
            raise ValueError("a string goes past the end")
        text = self._data[self._at : end].decode()
        self._at = end
        return text

    def _number(self, form: struct.Struct) -> int:
        (number,) = form.unpack_from(self._data, self._at)
        self._at += form.size
        return int(number)
