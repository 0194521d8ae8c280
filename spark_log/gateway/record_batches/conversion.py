"""Kafka's v2 record batches as Arrow records, and Arrow records as v2 batches.

- Timestamps are milliseconds in Kafka and microseconds in the log. From Kafka they are exact, or
  refused; to Kafka they are rounded down.
- The names of headers are UTF-8, because they are strings in Arrow.
- A record without headers has null headers in the log. Null and empty headers are one in Kafka.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa

from spark_log.gateway.record_batches.batch_error import BatchError, BatchErrorCode
from spark_log.gateway.record_batches.client_batch import (
    HEADER_BYTES,
    MIN_RECORD_BYTES,
    ClientBatch,
    write_header,
)
from spark_log.gateway.record_batches.columns import BinaryBuffers, HeaderBuffers, RecordPart
from spark_log.gateway.record_batches.compression import CompressionType, compress, decompress
from spark_log.gateway.record_batches.record_codec import RecordCodec, fastest_codec
from spark_log.gateway.record_batches.record_fault import RecordFault
from spark_log.record import (
    COLUMN_SUMS_BYTES,
    HEADERS_TYPE,
    MOST_SMALL_ROWS,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    RECORD_SCHEMA,
    BinaryColumn,
    ControlRecordType,
    EndTransactionMarker,
    SmallBatch,
    marker_records,
    times_us_of,
    timestamp_array,
)

MAX_UNCOMPRESSED_BYTES: Final = 2**31 - 1
"""The largest size of the records of all batches that are converted together."""

_US_PER_MS = 1000


@dataclass(frozen=True, slots=True)
class BatchTarget:
    """Header fields of a v2 batch that is made from records of the log.

    Attributes:
        leader_epoch: the leader epoch under which the records were appended.
        timestamp_type: 0 for create time, 1 for log append time.
        is_transactional: whether the batch belongs to a transaction.
        producer_id: the id of the idempotent producer; -1 without one.
        producer_epoch: the producer's epoch; -1 without one.
        base_sequence: the sequence number of the first record; -1 without one.
    """

    leader_epoch: int = NO_LEADER_EPOCH
    timestamp_type: int = 0
    is_transactional: bool = False
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE


def to_arrow(
    batches: Sequence[ClientBatch],
    *,
    max_uncompressed_bytes: int,
    codec: RecordCodec | None = None,
) -> pa.RecordBatch:
    """Return the records of batches, in order, with the columns of `RECORD_SCHEMA`.

    The offsets of each batch must be contiguous from its base offset, as a producer writes them. A
    record without a timestamp (-1 in Kafka) keeps -1 ms.

    Args:
        batches: batches of `split`.
        max_uncompressed_bytes: the largest size of all records without their compression.
        codec: the way in which records are read; the fastest by default.

    Raises:
        BatchError: a batch cannot be decompressed, is too large, or has a record that is damaged
            or that the log cannot store. `batch_index` says which batch.
    """
    records, offset_deltas = _decoded(batches, max_uncompressed_bytes, codec)
    row = 0
    for index, batch in enumerate(batches):
        deltas = offset_deltas[row : row + batch.record_count]
        expected = np.arange(batch.record_count, dtype=np.int32)
        if not np.array_equal(deltas, expected):
            at = int((deltas != expected).argmax())
            raise BatchError(
                f"record {at} of a batch has offset delta {deltas[at]}; expected {at}",
                BatchErrorCode.INVALID_RECORD,
                batch_index=index,
                record_index=at,
            )
        row += batch.record_count
    return records


def to_small(
    batch: ClientBatch, *, max_uncompressed_bytes: int, codec: RecordCodec | None = None
) -> SmallBatch | None:
    """Return the records of a small batch without Arrow's arrays, which would take longer to make.

    Args:
        batch: a batch of `split`.
        max_uncompressed_bytes: the largest size of the records without their compression.
        codec: the way in which records are read; the fastest by default.

    Returns:
        None for a batch that `to_arrow` converts, or whose error it raises.
    """
    if len(batch.data) >= COLUMN_SUMS_BYTES or batch.timestamp_type or not batch.record_count:
        return None
    try:
        part = _part(batch, 0, min(max_uncompressed_bytes, COLUMN_SUMS_BYTES))
        times, deltas, key, value, headers = (codec or fastest_codec()).decode([part])
    except (BatchError, ValueError):
        return None
    rows = batch.record_count
    if headers is not None or bytes(deltas) != _contiguous(rows):
        return None
    return SmallBatch.of_columns(rows, _column(key), _column(value), bytes(times))


def _column(buffers: BinaryBuffers) -> BinaryColumn:
    offsets, validity, data = buffers
    return b"" if validity is None else bytes(validity), bytes(offsets), bytes(data)


@lru_cache(maxsize=MOST_SMALL_ROWS)
def _contiguous(rows: int) -> bytes:
    """Return the offset deltas of a client's batch, as bytes."""
    return np.arange(rows, dtype=np.int32).tobytes()


def to_arrow_with_offsets(
    batches: Sequence[ClientBatch],
    *,
    max_uncompressed_bytes: int,
    codec: RecordCodec | None = None,
) -> tuple[pa.RecordBatch, np.ndarray]:
    """Return records as `to_arrow` does, and the offset of each, int64; there may be gaps.

    Args:
        batches: batches of `split`.
        max_uncompressed_bytes: the largest size of all records without their compression.
        codec: the way in which records are read; the fastest by default.

    Raises:
        BatchError: see `to_arrow`; or the offsets of a batch do not ascend within its range.
    """
    records, offset_deltas = _decoded(batches, max_uncompressed_bytes, codec)
    row = 0
    bases = np.empty(len(offset_deltas), np.int64)
    for index, batch in enumerate(batches):
        deltas = offset_deltas[row : row + batch.record_count]
        if len(deltas) and not (
            deltas[0] >= 0
            and deltas[-1] <= batch.last_offset_delta
            and (deltas[1:] > deltas[:-1]).all()
        ):
            raise BatchError(
                f"the offset deltas of a batch do not ascend from 0 to {batch.last_offset_delta}",
                BatchErrorCode.INVALID_RECORD,
                batch_index=index,
            )
        bases[row : row + batch.record_count] = batch.base_offset
        row += batch.record_count
    return records, bases + offset_deltas


def from_arrow(
    records: pa.RecordBatch,
    *,
    base_offset: int,
    target: BatchTarget,
    offsets: np.ndarray | None = None,
    last_offset: int | None = None,
    compression: CompressionType = CompressionType.NONE,
    codec: RecordCodec | None = None,
) -> bytes | bytearray:
    """Return records as a v2 batch, or as several after each other.

    There are several if the timestamp type is log append time and the records have different
    timestamps: such a batch has one timestamp for all its records.

    Args:
        records: one record or more, with the columns of `RECORD_SCHEMA` and perhaps others.
        base_offset: the base offset of the (first) batch.
        target: the other fields of the header.
        offsets: the offset of each record, ascending, not below `base_offset`; by default they are
            contiguous from it.
        last_offset: the last offset of the (last) batch, by default that of the last record. A
            larger one moves readers past offsets that have no record.
        compression: the compression of the records.
        codec: the way in which records are written; the fastest by default.

    Raises:
        BatchError: the records exceed 2 GiB, or their offsets the range of one batch.
    """
    codec = codec or fastest_codec()
    count = records.num_rows
    times_ms = times_us_of(records) // _US_PER_MS
    if offsets is None:
        offsets = np.arange(base_offset, base_offset + count)
    if last_offset is None:
        last_offset = int(offsets[-1])
    if not target.timestamp_type:
        return _encoded(
            records, times_ms, offsets, base_offset, last_offset, target, compression, codec
        )
    bounds = [0, *(np.flatnonzero(np.diff(times_ms)) + 1).tolist(), count]
    parts = []
    for start, end in itertools.pairwise(bounds):
        first = base_offset if start == 0 else int(offsets[start])
        last = last_offset if end == count else int(offsets[end]) - 1
        rows = records.slice(start, end - start)
        part = (times_ms[start:end], offsets[start:end], first, last, target, compression, codec)
        parts.append(_encoded(rows, *part))
    return parts[0] if len(parts) == 1 else b"".join(parts)


def control_batch(
    marker: EndTransactionMarker,
    *,
    offset: int,
    timestamp_us: int,
    leader_epoch: int,
    base_offset: int | None = None,
    codec: RecordCodec | None = None,
) -> bytearray:
    """Return the marker at the end of a transaction as Kafka's control batch.

    Args:
        marker: the marker.
        offset: the marker's offset.
        timestamp_us: the marker's timestamp, in microseconds since the epoch.
        leader_epoch: the leader epoch under which the marker was appended.
        base_offset: the base offset of the batch, by default the marker's offset. A lower one
            moves readers past offsets before the marker that have no record.
        codec: the way in which records are written; the fastest by default.
    """
    base = offset if base_offset is None else base_offset
    records = marker_records([marker], timestamp_us)
    batch = (codec or fastest_codec()).encode(
        HEADER_BYTES,
        np.zeros(1, np.int64),
        np.full(1, offset - base, np.int32),
        records.column("key"),
        records.column("value"),
        records.column("headers"),
    )
    time_ms = timestamp_us // _US_PER_MS
    write_header(
        batch,
        base_offset=base,
        last_offset_delta=offset - base,
        record_count=1,
        attributes=ClientBatch.TRANSACTIONAL_BIT | ClientBatch.CONTROL_BIT,
        base_timestamp_ms=time_ms,
        max_timestamp_ms=time_ms,
        leader_epoch=leader_epoch,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
    )
    return batch


def marker_of(batch: ClientBatch) -> EndTransactionMarker | None:
    """Return the marker of a control batch; None if the batch is not the end of a transaction.

    Raises:
        BatchError: the control record is damaged.
    """
    if not (batch.is_control and batch.is_transactional):
        return None
    records, _ = to_arrow_with_offsets([batch], max_uncompressed_bytes=len(batch.data))
    if records.num_rows != 1:
        raise BatchError(
            f"a control batch has {records.num_rows} records; expected one",
            BatchErrorCode.CORRUPT_MESSAGE,
        )
    kind = ControlRecordType.of_key(records.column("key")[0].as_py())
    if kind is None:
        return None
    is_committed = kind is ControlRecordType.COMMIT
    return EndTransactionMarker(batch.producer_id, batch.producer_epoch, is_committed)


def _decoded(
    batches: Sequence[ClientBatch], max_bytes: int, codec: RecordCodec | None
) -> tuple[pa.RecordBatch, np.ndarray]:
    parts: list[RecordPart] = []
    rest = min(max_bytes, MAX_UNCOMPRESSED_BYTES)
    for index, batch in enumerate(batches):
        parts.append(_part(batch, index, rest))
        rest -= len(parts[-1][0])
    try:
        times, deltas, key, value, headers = (codec or fastest_codec()).decode(parts)
    except ValueError as error:
        raise _batch_error(error) from None
    times_us = np.frombuffer(times, np.int64)
    if any(batch.timestamp_type for batch in batches):
        times_us = _with_append_times(times_us, batches)
    count = len(times_us)
    columns = [
        _binary(pa.binary(), count, key),
        _binary(pa.binary(), count, value),
        _headers(count, headers, batches),
        timestamp_array(times_us),
    ]
    records = pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)
    return records, np.frombuffer(deltas, np.int32)


def _part(batch: ClientBatch, index: int, max_bytes: int) -> RecordPart:
    """Return the records of a batch without compression.

    Args:
        batch: the batch.
        index: its index, for errors.
        max_bytes: their largest size.

    Raises:
        BatchError: the batch cannot be decompressed, is too large, or has fewer records than it
            says.
    """
    try:
        data = decompress(batch.records, batch.compression_type, max_bytes=max_bytes)
    except BatchError as error:
        error.batch_index = index
        raise
    if batch.record_count > len(data) // MIN_RECORD_BYTES:
        raise BatchError(
            f"records of {len(data)} bytes are said to be {batch.record_count}",
            BatchErrorCode.INVALID_RECORD,
            batch_index=index,
        )
    return data, batch.record_count, batch.base_timestamp_ms


def _with_append_times(times_us: np.ndarray, batches: Sequence[ClientBatch]) -> np.ndarray:
    times_us = times_us.copy()
    row = 0
    for index, batch in enumerate(batches):
        if batch.timestamp_type:
            time_us = batch.max_timestamp_ms * _US_PER_MS
            if not -(2**63) <= time_us < 2**63:
                raise BatchError(
                    f"the append time {batch.max_timestamp_ms} ms of a batch "
                    f"{RecordFault.TIME_RANGE.description.removeprefix('its timestamp ')}",
                    BatchErrorCode.INVALID_TIMESTAMP,
                    batch_index=index,
                )
            times_us[row : row + batch.record_count] = time_us
        row += batch.record_count
    return times_us


def _binary(of_type: pa.DataType, count: int, buffers: BinaryBuffers) -> pa.Array:
    offsets, validity, data = buffers
    return pa.Array.from_buffers(
        of_type, count, [_buffer(validity), pa.py_buffer(offsets), _buffer(data)]
    )


def _buffer(data: object) -> pa.Buffer | None:
    return data if data is None or isinstance(data, pa.Buffer) else pa.py_buffer(data)


def _headers(count: int, headers: HeaderBuffers | None, batches: Sequence[ClientBatch]) -> pa.Array:
    if headers is None:
        return pa.nulls(count, HEADERS_TYPE)
    offsets, validity, names, values = headers
    ends = np.frombuffer(offsets, np.int32)
    items = int(ends[-1])
    fields = [_binary(pa.string(), items, names), _binary(pa.binary(), items, values)]
    try:
        fields[0].validate(full=True)
    except pa.ArrowInvalid:
        row = int(np.searchsorted(ends, _first_not_utf8(fields[0]), side="right")) - 1
        of_batches = np.cumsum([batch.record_count for batch in batches])
        index = int(np.searchsorted(of_batches, row, side="right"))
        at = row - int(of_batches[index]) + batches[index].record_count
        raise BatchError(
            f"record {at} of a batch has a header whose name is not UTF-8",
            BatchErrorCode.INVALID_RECORD,
            batch_index=index,
            record_index=at,
        ) from None
    struct = pa.StructArray.from_arrays(fields, fields=list(HEADERS_TYPE.value_type))
    buffers = [_buffer(validity), pa.py_buffer(offsets)]
    return pa.Array.from_buffers(HEADERS_TYPE, count, buffers, children=[struct])


def _first_not_utf8(names: pa.Array) -> int:
    for number, name in enumerate(names.view(pa.binary())):
        try:
            name.as_py().decode()
        except UnicodeDecodeError:
            return number
    raise AssertionError("all names are UTF-8")


def _batch_error(error: ValueError) -> BatchError:
    number, batch_index, record_index = error.args
    fault = RecordFault(number)
    return BatchError(
        f"record {record_index} of a batch is damaged: {fault.description}",
        fault.code,
        batch_index=batch_index,
        record_index=record_index,
    )


def _encoded(
    records: pa.RecordBatch,
    times_ms: np.ndarray,
    offsets: np.ndarray,
    base_offset: int,
    last_offset: int,
    target: BatchTarget,
    compression: CompressionType,
    codec: RecordCodec,
) -> bytearray:
    first, last = int(offsets[0]), int(offsets[-1])
    if not base_offset <= first <= last <= last_offset <= base_offset + 2**31 - 1:
        raise BatchError(
            f"records with offsets {first} to {last} do not fit a batch of the offsets "
            f"{base_offset} to {last_offset}",
            BatchErrorCode.INVALID_RECORD,
        )
    base_ms, max_ms = int(times_ms[0]), int(times_ms.max())
    headers = records.column("headers")
    try:
        batch = codec.encode(
            HEADER_BYTES,
            times_ms - base_ms,
            (offsets - base_offset).astype(np.int32),
            records.column("key"),
            records.column("value"),
            _with_all_names(headers),
        )
    except OverflowError:
        raise BatchError(
            f"{len(times_ms)} records exceed the 2 GiB of a batch", BatchErrorCode.MESSAGE_TOO_LARGE
        ) from None
    if compression is not CompressionType.NONE:
        packed = compress(memoryview(batch)[HEADER_BYTES:], compression)
        batch = bytearray(HEADER_BYTES)
        batch += packed
    attributes = int(compression)
    if target.timestamp_type:
        attributes |= ClientBatch.TIMESTAMP_TYPE_BIT
    if target.is_transactional:
        attributes |= ClientBatch.TRANSACTIONAL_BIT
    write_header(
        batch,
        base_offset=base_offset,
        last_offset_delta=last_offset - base_offset,
        record_count=len(times_ms),
        attributes=attributes,
        base_timestamp_ms=base_ms,
        max_timestamp_ms=max_ms,
        leader_epoch=target.leader_epoch,
        producer_id=target.producer_id,
        producer_epoch=target.producer_epoch,
        base_sequence=target.base_sequence,
    )
    return batch


def _with_all_names(headers: pa.ListArray) -> pa.ListArray:
    """Return headers in which a name that is null, which Kafka does not have, is empty."""
    if headers.null_count == len(headers) or not headers.values.field(0).null_count:
        return headers
    names, values = (headers.values.field(number) for number in (0, 1))
    items = pa.StructArray.from_arrays(
        [names.fill_null(""), values], fields=list(HEADERS_TYPE.value_type)
    )
    buffers = headers.buffers()[:2]
    return pa.Array.from_buffers(
        HEADERS_TYPE, len(headers), buffers, offset=headers.offset, children=[items]
    )
