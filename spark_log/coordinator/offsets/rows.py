"""Rows of the offsets table, and the position that a group's rows amount to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_log.errors import InvalidConfigurationError, OffsetOutOfRangeError, check_unicode
from spark_log.record.arrays import int_array, text_array, timestamp_array
from spark_log.record.schema import TIMESTAMP_TYPE
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
"""One row for every partition of every commit. ``offset`` is that of the next record to read."""

EMPTY = pa.Table.from_batches([], OFFSETS_SCHEMA)
"""No rows. Made without `pyarrow.array`, which imports pandas where there is one: 0.3 s."""

TOMBSTONE = -1
"""The offset of a row that says: from here on the group has no position in this partition."""


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A group's position in one partition, and who committed it when."""

    offset: int
    metadata: str
    leader_epoch: int
    topic_id: str
    generation: int
    member_id: str
    commit_timestamp_us: int


class PartitionKey(NamedTuple):
    """What a position is of: a topic that was created again is another one."""

    topic: str
    topic_id: str
    partition: int


@dataclass(frozen=True, slots=True)
class Row:
    """A position to commit, or with `TOMBSTONE` one to forget."""

    key: PartitionKey
    offset: int
    metadata: str = ""
    leader_epoch: int = -1


@dataclass(slots=True)
class GroupPositions:
    """A group's positions after some version of the table.

    Attributes:
        latest: the newest row of each partition, tombstones too.
    """

    latest: dict[PartitionKey, CommittedOffset] = field(default_factory=dict)

    def apply(self, rows: pa.Table) -> None:
        """Take in rows of this group, in any order."""
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

    def positions(self) -> dict[PartitionKey, CommittedOffset]:
        """Return where the group stands: without what was deleted."""
        return {key: found for key, found in self.latest.items() if found.offset >= 0}


def check_offset(tp: TopicPartition, offset: int) -> None:
    """Check that an offset can be a position.

    Raises:
        OffsetOutOfRangeError: it is negative.
    """
    if offset < 0:
        raise OffsetOutOfRangeError(
            f"{tp}: a position of {offset} cannot be committed; the first offset is 0",
            offset=offset,
        )


def check_metadata(tp: TopicPartition, position: OffsetAndMetadata) -> None:
    """Check that a position's metadata can be stored; None is allowed, as in kafka-python.

    Raises:
        InvalidConfigurationError: it is no text, or not Unicode.
    """
    metadata: object = position.metadata
    if metadata is None:
        return
    if not isinstance(metadata, str):
        raise InvalidConfigurationError(
            f"{tp}: the metadata of a position is {metadata!r}; expected a text, or None",
            key="metadata",
        )
    check_unicode(f"{tp}: the metadata of a position", metadata)


def to_table(rows: Iterable[tuple[str, Row, int, str, int]]) -> pa.Table:
    """Return rows of ``(group, row, generation, member_id, commit_timestamp_us)``."""
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


def is_followed(rows: pa.Table) -> pa.Array:
    """Return of sorted rows which are of the same group and partition as the one behind them."""
    if rows.num_rows == 0:
        return pa.array([], pa.bool_())
    same = None
    for name in ("partition", "group", "topic", "topic_id"):
        column = rows.column(name).combine_chunks()
        equal = pc.equal(column.slice(0, len(column) - 1), column.slice(1))
        same = equal if same is None else pc.and_(same, equal)
    return pa.concat_arrays([pa.chunked_array([same]).combine_chunks(), pa.array([False])])


def _array(values: Sequence[Any], of_type: pa.DataType) -> pa.Array:
    if of_type == pa.string():
        return text_array(values)
    if of_type == TIMESTAMP_TYPE:
        return timestamp_array(np.array(values, np.int64))
    return int_array(values, of_type)
