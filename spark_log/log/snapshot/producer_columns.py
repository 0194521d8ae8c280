"""Columns and texts of producers and transactions, in snapshots and in stripes' home markers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from google_crc32c import extend

from spark_log.log.producers import (
    AbortedTransaction,
    EpochRun,
    OpenTransaction,
    ProducerEntry,
    ProducerState,
    SequenceRun,
    TransactionIndex,
)
from spark_log.record import TIMESTAMP_TYPE, array_crc32c, int_array, nullable_int_array

_RUN_TYPE: Final = pa.struct(
    [
        pa.field("base_sequence", pa.int32(), nullable=False),
        pa.field("base_offset", pa.int64(), nullable=False),
        pa.field("record_count", pa.int64(), nullable=False),
    ]
)
PRODUCER_TYPE: Final = pa.struct(
    [
        pa.field("producer_id", pa.int64(), nullable=False),
        pa.field("producer_epoch", pa.int16(), nullable=False),
        pa.field("appended", TIMESTAMP_TYPE, nullable=False),
        pa.field("runs", pa.list_(_RUN_TYPE), nullable=False),
    ]
)
"""The state of one producer."""


def producer_column(entries: Sequence[tuple[int, ProducerEntry]]) -> pa.StructArray:
    """Return producers as an array of `PRODUCER_TYPE`.

    Args:
        entries: each producer's id and state.
    """
    runs = [run for _, entry in entries for run in entry.runs]
    ends = np.cumsum([0, *(len(entry.runs) for _, entry in entries)])
    run_columns = {
        "base_sequence": [run.base_sequence for run in runs],
        "base_offset": [run.base_offset for run in runs],
        "record_count": [run.record_count for run in runs],
    }
    columns = {
        "producer_id": [producer_id for producer_id, _ in entries],
        "producer_epoch": [entry.epoch for _, entry in entries],
        "appended": [entry.appended_us for _, entry in entries],
    }
    lists = pa.ListArray.from_arrays(
        int_array(ends, pa.int32()), struct_array(_RUN_TYPE, run_columns)
    )
    return struct_array(PRODUCER_TYPE, columns, {"runs": lists})


def struct_array(
    of_type: pa.StructType,
    columns: Mapping[str, list[int] | list[int | None]],
    others: Mapping[str, pa.Array] | None = None,
) -> pa.StructArray:
    """Return a struct array from columns of numbers, and other columns that are arrays already."""
    arrays = dict(others or {})
    for name, values in columns.items():
        kind = of_type.field(name).type
        is_time = pa.types.is_timestamp(kind)
        array = nullable_int_array(values, pa.int64() if is_time else kind)
        arrays[name] = array.view(kind) if is_time else array
    fields = of_type.fields
    return pa.StructArray.from_arrays([arrays[field.name] for field in fields], fields=fields)


def producer_of(
    row: dict[str, Any], earlier_runs: Mapping[int, tuple[EpochRun, ...]]
) -> tuple[int, ProducerEntry]:
    """Return a producer's id and state.

    Args:
        row: a value of `PRODUCER_TYPE`, with the time as a number of microseconds.
        earlier_runs: the runs in earlier epochs of each producer that has any.
    """
    runs = tuple(SequenceRun(**run) for run in row["runs"])
    producer_id = row["producer_id"]
    entry = ProducerEntry(
        row["producer_epoch"],
        runs,
        row["appended"],
        earlier_runs=earlier_runs.get(producer_id, ()),
    )
    return producer_id, entry


def transactions_content(producers: ProducerState) -> dict[str, Any]:
    """Return transactions, and the runs of producers in earlier epochs, for `with_checksum`."""
    transactions = producers.transactions
    open_ones = [
        [each.producer_id, each.producer_epoch, each.first_offset] for each in transactions.open
    ]
    aborted = [
        [each.producer_id, each.first_offset, each.marker_offset] for each in transactions.aborted
    ]
    content: dict[str, Any] = {
        "open": open_ones,
        "aborted": aborted,
        "unlisted": transactions.unlisted,
    }
    earlier_runs = {
        str(producer_id): [
            [epoch, run.base_sequence, run.base_offset, run.record_count]
            for epoch, run in entry.earlier_runs
        ]
        for producer_id, entry in producers.entries()
        if entry.earlier_runs
    }
    if earlier_runs:
        content["earlier_runs"] = earlier_runs
    return content


def transactions_of(
    content: Mapping[str, Any], offset: int
) -> tuple[TransactionIndex, dict[int, tuple[EpochRun, ...]]]:
    """Return the transactions at an offset, and producers' runs of earlier epochs.

    Args:
        content: what `transactions_content` returned.
        offset: the offset.

    Raises:
        ValueError, KeyError, TypeError: the content is not what `transactions_content` returns.
    """
    earlier_runs = {
        int(producer_id): tuple((epoch, SequenceRun(*run)) for epoch, *run in runs)
        for producer_id, runs in content.get("earlier_runs", {}).items()
    }
    index = TransactionIndex(
        offset,
        open_transactions=(OpenTransaction(*each) for each in content["open"]),
        aborted=(AbortedTransaction(*each) for each in content["aborted"]),
        unlisted=((start, end) for start, end in content["unlisted"]),
    )
    return index, earlier_runs


def with_checksum(text: str) -> bytes:
    """Return the CRC-32C of a text in hexadecimal digits, a colon, and the text."""
    data = text.encode()
    return b"%08x:" % extend(0, data) + data


def checked(value: bytes, what: str) -> str:
    """Return the text behind a checksum.

    Raises:
        ValueError: the value is damaged.
    """
    crc32c, _, data = value.partition(b":")
    if crc32c != b"%08x" % extend(0, data):
        raise ValueError(f"the checksum of its {what} does not fit")
    return data.decode()


def columns_crc32c(batch: pa.RecordBatch) -> int:
    """Return the CRC-32C of all columns of a batch."""
    crc = 0
    for column in batch.columns:
        crc = array_crc32c(column, crc)
    return crc


def readable_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema with timestamps as int64, in microseconds."""

    def plain(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_timestamp(kind):
            return pa.int64()
        if pa.types.is_list(kind):
            return pa.list_(plain(kind.value_type))
        if pa.types.is_struct(kind):
            return pa.struct([field.with_type(plain(field.type)) for field in kind.fields])
        return kind

    return pa.schema([field.with_type(plain(field.type)) for field in schema])
