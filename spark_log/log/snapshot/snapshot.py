"""A snapshot: segment summaries and producer state of a partition, up to an offset.

On storage: ``<offset>.snapshot``, an Arrow IPC file of one row. Its columns are ``offset``;
``segments``, a list with a summary of each live segment (a negative generation is that of a Parquet
file); and ``producers``, a list with the state
of each idempotent producer (Kafka's producer snapshots). The schema metadata has the topic id, the
partition and a checksum of the row. Segments never change, so a summary is valid as long as its
file exists. Derived data, replaced atomically: a crash leaves the older snapshot. Without a valid
snapshot every segment is opened, which changes no answer, with one exception: the state of
producers whose records were deleted is in the newest snapshot alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import NoneType
from typing import Any

import pyarrow as pa
from pyarrow import ipc

from spark_log.log.files import SegmentName
from spark_log.log.producers import EpochRun, ProducerState, TransactionIndex
from spark_log.log.segment import SegmentSummary
from spark_log.log.snapshot.producer_columns import (
    PRODUCER_TYPE,
    checked,
    columns_crc32c,
    producer_column,
    producer_of,
    readable_schema,
    struct_array,
    transactions_content,
    transactions_of,
    with_checksum,
)
from spark_log.record import (
    FORMAT_VERSION,
    TIMESTAMP_TYPE,
    int_array,
    ints_of,
)
from spark_log.util import parse_json

_SEGMENT_TYPE = pa.struct(
    [
        pa.field("base_offset", pa.int64(), nullable=False),
        pa.field("last_offset", pa.int64()),
        pa.field("generation", pa.int32(), nullable=False),
        pa.field("end_offset", pa.int64(), nullable=False),
        pa.field("record_count", pa.int64(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("min_timestamp", TIMESTAMP_TYPE),
        pa.field("max_timestamp", TIMESTAMP_TYPE, nullable=False),
    ]
)
SNAPSHOT_SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("segments", pa.list_(_SEGMENT_TYPE), nullable=False),
        pa.field("producers", pa.list_(PRODUCER_TYPE), nullable=False),
    ]
)
"""Columns of a snapshot file."""

_IDS_KEY = b"spark_log.append_ids"
"""Key of the append ids in the batch's custom metadata. They are not a column, since earlier
versions require exactly the columns above: they would take the snapshot for damaged and lose the
producer state in it."""

_HORIZONS_KEY = b"spark_log.delete_horizons"
"""Key of the compacted segments' delete horizons in the custom metadata, for the reason of
`_IDS_KEY`. Only a snapshot with compacted segments has it."""

_TRANSACTIONS_KEY = b"spark_log.transactions"
"""Key of the transactions, and of the runs of producers in earlier epochs, in the custom metadata,
for the reason of `_IDS_KEY`. A snapshot without this key does not contain transactions."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Segments and producers of a partition when its log ended at `offset`.

    Attributes:
        offset: the log end offset.
        segments: summaries of the live segments, in offset order.
        producers: state of the producers after all records before `offset`.
    """

    offset: int
    segments: tuple[SegmentSummary, ...]
    producers: ProducerState

    def check_name(self, offset: int) -> None:
        """Check that the file contains the offset that is in its name.

        Raises:
            ValueError: it contains another one.
        """
        if self.offset != offset:
            raise ValueError(f"it is of offset {self.offset}")

    def to_buffer(self, *, topic_id: str, partition: int) -> pa.Buffer:
        """Return the content of the snapshot file."""
        batch = pa.RecordBatch.from_arrays(
            [
                int_array([self.offset], pa.int64()),
                _in_one_row(_segment_column(self.segments)),
                _in_one_row(producer_column(tuple(self.producers.entries()))),
            ],
            schema=SNAPSHOT_SCHEMA,
        )
        metadata = {
            "spark_log.format": FORMAT_VERSION,
            "spark_log.topic_id": topic_id,
            "spark_log.partition": str(partition),
            "spark_log.crc32c": str(columns_crc32c(batch)),
        }
        sink = pa.BufferOutputStream()
        schema = SNAPSHOT_SCHEMA.with_metadata(metadata)
        with ipc.new_file(sink, schema) as writer:
            writer.write_batch(
                batch.replace_schema_metadata(metadata),
                custom_metadata=self._custom_metadata(),
            )
        return sink.getvalue()

    def _custom_metadata(self) -> dict[bytes, bytes]:
        ids = ",".join(each.append_id for each in self.segments)
        metadata = {_IDS_KEY: with_checksum(ids)}
        compacted = [each for each in self.segments if each.name.is_compacted]
        if compacted:
            horizons = json.dumps([each.delete_horizon_us for each in compacted])
            metadata[_HORIZONS_KEY] = with_checksum(horizons)
        transactions = self.producers.transactions
        if transactions.is_complete:
            metadata[_TRANSACTIONS_KEY] = with_checksum(_encode_transactions(self.producers))
        return metadata

    @classmethod
    def from_buffer(cls, data: pa.Buffer, *, topic_id: str, partition: int) -> Snapshot:
        """Read a snapshot file.

        Args:
            data: content of the file.
            topic_id: the topic's id; the file must have the same.
            partition: number of the partition; the file must have the same.

        Raises:
            ValueError: the file is damaged, or belongs to another partition.
        """
        try:
            file = ipc.open_file(data)
            metadata = file.schema.metadata or {}
            owner = (metadata.get(b"spark_log.topic_id"), metadata.get(b"spark_log.partition"))
            if owner != (topic_id.encode(), str(partition).encode()):
                raise ValueError(f"it belongs to topic id and partition {owner}, not to this one")
            if not file.schema.equals(SNAPSHOT_SCHEMA) or file.num_record_batches != 1:
                raise ValueError("its columns are not a snapshot's")
            batch, custom_metadata = file.get_batch_with_custom_metadata(0)
            batch.validate(full=True)
            if metadata.get(b"spark_log.crc32c") != str(columns_crc32c(batch)).encode():
                raise ValueError("its checksum does not fit")
            batch = batch.cast(readable_schema(SNAPSHOT_SCHEMA))
        except (OSError, pa.ArrowException) as error:
            raise ValueError(f"it is not a readable Arrow file: {error}") from None
        (offset,) = batch.column("offset").to_pylist()
        (producers,) = batch.column("producers").to_pylist()
        segments = batch.column("segments").flatten()
        custom_metadata = custom_metadata or {}
        ids = _decode_ids(custom_metadata.get(_IDS_KEY), len(segments))
        transactions, earlier_runs = _decode_transactions(
            custom_metadata.get(_TRANSACTIONS_KEY), offset
        )
        summaries = tuple(_segments(segments, ids))
        entries = (producer_of(row, earlier_runs) for row in producers)
        return cls(
            offset,
            _with_horizons(summaries, custom_metadata.get(_HORIZONS_KEY)),
            ProducerState(offset, entries, transactions),
        )


def _decode_ids(value: bytes | None, count: int) -> list[str]:
    """Return the append ids of ``count`` segments; empty ones if an earlier version wrote none.

    Raises:
        ValueError: the value is damaged.
    """
    if value is None:
        return [""] * count
    ids = checked(value, "append ids").split(",") if count else []
    if len(ids) != count:
        raise ValueError(f"it has {len(ids)} append ids for {count} segments")
    return ids


def _with_horizons(
    summaries: tuple[SegmentSummary, ...], value: bytes | None
) -> tuple[SegmentSummary, ...]:
    """Return summaries with the delete horizons of the compacted ones.

    Raises:
        ValueError: the value is damaged.
    """
    compacted = sum(each.name.is_compacted for each in summaries)
    if not compacted:
        return summaries
    horizons = [None] * compacted
    if value is not None:
        horizons = parse_json(checked(value, "delete horizons"))
    is_valid = isinstance(horizons, list) and all(
        type(each) in (int, NoneType) for each in horizons
    )
    if not is_valid or len(horizons) != compacted:
        raise ValueError(f"its delete horizons are not those of {compacted} segments")
    following = iter(horizons)
    return tuple(
        replace(each, delete_horizon_us=next(following)) if each.name.is_compacted else each
        for each in summaries
    )


def _encode_transactions(producers: ProducerState) -> str:
    return json.dumps(transactions_content(producers), separators=(",", ":"))


def _decode_transactions(
    value: bytes | None, offset: int
) -> tuple[TransactionIndex, dict[int, tuple[EpochRun, ...]]]:
    """Return the transactions at an offset, and producers' runs of earlier epochs.

    Without a value the index is incomplete, and the runs are missing.

    Raises:
        ValueError: the value is damaged.
    """
    if value is None:
        return TransactionIndex(offset, is_complete=False), {}
    return transactions_of(parse_json(checked(value, "transactions")), offset)


def _in_one_row(items: pa.Array) -> pa.ListArray:
    return pa.ListArray.from_arrays(int_array([0, len(items)], pa.int32()), items)


def _segment_column(summaries: tuple[SegmentSummary, ...]) -> pa.StructArray:
    columns: dict[str, list[int] | list[int | None]] = {
        "base_offset": [summary.name.base_offset for summary in summaries],
        "last_offset": [summary.name.last_offset for summary in summaries],
        "generation": [
            -summary.name.generation if summary.name.is_parquet else summary.name.generation
            for summary in summaries
        ],
        "end_offset": [summary.end_offset for summary in summaries],
        "record_count": [summary.record_count for summary in summaries],
        "size_bytes": [summary.size_bytes for summary in summaries],
        "min_timestamp": [summary.min_timestamp_us for summary in summaries],
        "max_timestamp": [summary.max_timestamp_us for summary in summaries],
    }
    return struct_array(_SEGMENT_TYPE, columns)


def _segments(column: pa.StructArray, append_ids: Sequence[str]) -> Iterator[SegmentSummary]:
    names = ("base_offset", "last_offset", "generation")
    rest = ("end_offset", "record_count", "size_bytes", "min_timestamp", "max_timestamp")
    rows = zip(_rows(column, names), _rows(column, rest), append_ids, strict=True)
    for (base, last, generation), summary, append_id in rows:
        name = SegmentName(base, last, abs(generation), is_parquet=generation < 0)
        yield SegmentSummary(name, *(*summary, append_id))


def _rows(column: pa.StructArray, names: Iterable[str]) -> Iterator[tuple[Any, ...]]:
    fields = (column.field(name) for name in names)
    values = [
        field.to_pylist() if field.null_count else ints_of(field, str(field.type)).tolist()
        for field in fields
    ]
    return zip(*values, strict=True)
