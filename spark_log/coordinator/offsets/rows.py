"""Rows of the offsets table, and the committed offsets that result from a group's rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_log.errors import InvalidConfigurationError, OffsetOutOfRangeError, check_unicode
from spark_log.record import TIMESTAMP_TYPE, bool_array, int_array, text_array, timestamp_array
from spark_log.types import OffsetAndMetadata, TopicPartition

OFFSETS_SCHEMA = pa.schema(
    [
        pa.field("group", pa.string(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("topic_id", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("leader_epoch", pa.int32(), nullable=False),
        pa.field("metadata", pa.string(), nullable=False),
        pa.field("generation", pa.int32(), nullable=False),
        pa.field("member_id", pa.string(), nullable=False),
        pa.field("commit_timestamp", pa.timestamp("us", tz="UTC"), nullable=False),
    ]
)
"""One row per partition of each commit. ``offset`` is the offset of the next record to read."""

EMPTY = pa.Table.from_batches([], OFFSETS_SCHEMA)
"""No rows. Built without `pyarrow.array`, which imports pandas if it is installed: 0.3 s."""

TOMBSTONE = -1
"""The offset in a row that deletes the group's committed offset in a partition."""


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A committed offset of a group in one partition, with the member and time of its commit."""

    offset: int
    metadata: str
    leader_epoch: int
    topic_id: str
    generation: int
    member_id: str
    commit_timestamp_us: int


class PartitionKey(NamedTuple):
    """A partition with its topic's id: a topic that was created again has another key."""

    topic: str
    topic_id: str
    partition: int


@dataclass(frozen=True, slots=True)
class Row:
    """An offset to commit; with `TOMBSTONE`, a committed offset to delete."""

    key: PartitionKey
    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class StampedRow(NamedTuple):
    """A row of a commit, with all values that the table stores."""

    group: str
    row: Row
    generation: int
    member_id: str
    timestamp_us: int


@dataclass(slots=True)
class CommittedOffsets:
    """The committed offsets of a group after a version of the table.

    Attributes:
        latest: the newest row of each partition, tombstones included.
    """

    latest: dict[PartitionKey, CommittedOffset] = field(default_factory=dict)

    def apply(self, rows: pa.Table) -> None:
        """Add rows of this group, in any order."""
        stamps = rows.column("commit_timestamp").cast(pa.int64())
        columns = {name: rows.column(name).to_pylist() for name in rows.column_names[1:-1]}
        for topic, topic_id, partition, offset, epoch, metadata, generation, member, stamp in zip(
            *columns.values(), stamps.to_pylist(), strict=True
        ):
            key = PartitionKey(topic, topic_id, partition)
            known = self.latest.get(key)
            if known is None or (known.generation, known.commit_timestamp_us) < (generation, stamp):
                self.latest[key] = CommittedOffset(
                    offset, metadata, epoch, topic_id, generation, member, stamp
                )

    def add(self, stamped: StampedRow) -> None:
        """Add a row of this group that is newer than the others of its generation."""
        _, row, generation, member_id, timestamp_us = stamped
        known = self.latest.get(row.key)
        if known is None or known.generation <= generation:
            self.latest[row.key] = CommittedOffset(
                row.offset,
                row.metadata,
                row.leader_epoch,
                row.key.topic_id,
                generation,
                member_id,
                timestamp_us,
            )

    def present(self) -> dict[PartitionKey, CommittedOffset]:
        """Return the committed offsets, without deleted ones."""
        return {key: found for key, found in self.latest.items() if found.offset >= 0}


def check_offset(tp: TopicPartition, offset: int) -> None:
    """Check that an offset can be committed.

    Raises:
        OffsetOutOfRangeError: it is negative.
    """
    if offset < 0:
        raise OffsetOutOfRangeError(
            f"{tp}: offset {offset} cannot be committed; the first offset is 0",
            offset=offset,
        )


def check_metadata(tp: TopicPartition, position: OffsetAndMetadata) -> None:
    """Check that the metadata of a commit can be stored; None is allowed, as in kafka-python.

    Raises:
        InvalidConfigurationError: it is not a string, or not valid Unicode.
    """
    metadata: object = position.metadata
    if metadata is None:
        return
    if not isinstance(metadata, str):
        raise InvalidConfigurationError(
            f"{tp}: the metadata of an offset is {metadata!r}; expected a string, or None",
            key="metadata",
        )
    check_unicode(f"{tp}: the metadata of an offset", metadata)


def to_table(rows: Iterable[StampedRow]) -> pa.Table:
    """Return the rows as the table stores them."""
    values: list[tuple[Any, ...]] = [
        (
            group,
            row.key.topic,
            row.key.topic_id,
            row.key.partition,
            row.offset,
            row.leader_epoch,
            row.metadata,
            generation,
            member_id,
            stamp_us,
        )
        for group, row, generation, member_id, stamp_us in rows
    ]
    columns = zip(*values, strict=True) if values else [()] * len(OFFSETS_SCHEMA)
    return pa.Table.from_arrays(
        [_array(column, each.type) for column, each in zip(columns, OFFSETS_SCHEMA, strict=True)],
        schema=OFFSETS_SCHEMA,
    )


def sort_rows(rows: pa.Table) -> pa.Table:
    """Return rows sorted by group, partition, and the order of their commits."""
    names = ("group", "topic", "topic_id", "partition", "generation", "commit_timestamp")
    return rows.take(pc.sort_indices(rows, [(name, "ascending") for name in names]))


def is_followed(rows: pa.Table) -> pa.Array:
    """Return for each of some sorted rows whether the next row has the same group and partition."""
    if rows.num_rows == 0:
        return pa.nulls(0, pa.bool_())
    same = None
    for name in ("partition", "group", "topic", "topic_id"):
        column = rows.column(name).combine_chunks()
        equal = pc.equal(column.slice(0, len(column) - 1), column.slice(1))
        same = equal if same is None else pc.and_(same, equal)
    last = bool_array(np.zeros(1, np.bool_))
    return pa.concat_arrays([pa.chunked_array([same]).combine_chunks(), last])


def _array(values: Sequence[Any], of_type: pa.DataType) -> pa.Array:
    if of_type == pa.string():
        return text_array(values)
    if of_type == TIMESTAMP_TYPE:
        return timestamp_array(np.array(values, np.int64))
    return int_array(values, of_type)
