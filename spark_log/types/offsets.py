"""Committed offsets, and offsets that are looked up, reset and deleted."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """An offset to commit, which is that of the next record to read, with the user's metadata."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class OffsetAndTimestamp(NamedTuple):
    """The result of an offset lookup, with kafka-python's field names.

    Attributes:
        offset: the offset; -1 if no such record exists.
        timestamp: the timestamp of the record at that offset, in milliseconds since the epoch; -1
            if the lookup was not by timestamp.
        leader_epoch: the leader epoch of the partition; -1 if no such record exists.
    """

    offset: int
    timestamp: int
    leader_epoch: int


class OffsetSpec(IntEnum):
    """An offset that `Admin.list_offsets` looks up, besides timestamps (Kafka's ``OffsetSpec``)."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3


class OffsetTimestamp(int):
    """A time, in milliseconds since the epoch, given to `Admin.reset_group_offsets`.

    The class tells a time from a plain offset. A time means the first record at or after it.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"OffsetTimestamp({int(self)})"


@dataclass(frozen=True, slots=True)
class DeletedRecords:
    """The result of ``delete_records`` for a partition (Kafka's ``DeletedRecords``).

    Attributes:
        low_watermark: the first offset that can be read now.
    """

    low_watermark: int
