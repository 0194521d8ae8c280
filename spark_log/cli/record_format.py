"""How records are shown: as text by the rules of Kafka's ``DefaultMessageFormatter``, or as JSON."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from spark_log.cli.output import to_json
from spark_log.log import LogBatch

ROWS_AT_ONCE: Final = 4096
"""So many records become Python objects at once."""

TIMESTAMP_TYPES: Final = ("CreateTime", "LogAppendTime")


@dataclass(frozen=True, slots=True)
class TextFormat:
    """Kafka's properties of the console consumer, with Kafka's defaults.

    What is printed comes in the order: timestamp, partition, offset, epoch, headers, key, value.
    """

    print_timestamp: bool = False
    print_partition: bool = False
    print_offset: bool = False
    print_epoch: bool = False
    print_headers: bool = False
    print_key: bool = False
    print_value: bool = True
    key_separator: str = "\t"
    line_separator: str = "\n"
    headers_separator: str = ","
    null_literal: str = "null"


def format_text(batch: LogBatch, partition: int, text_format: TextFormat) -> Iterator[bytes]:
    """Yield the records of a batch as text, some thousand at a time.

    Keys and values that are not UTF-8 have U+FFFD where they are not.
    """
    null = text_format.null_literal.encode()
    line_end = text_format.line_separator.encode()
    separator = text_format.key_separator.encode()
    for offset, rows in _pieces(batch):
        columns: list[Sequence[bytes]] = []
        if text_format.print_timestamp:
            kind = TIMESTAMP_TYPES[batch.timestamp_type]
            times_ms = _times_us(rows) // 1000
            columns.append([f"{kind}:{time_ms}".encode() for time_ms in times_ms.tolist()])
        if text_format.print_partition:
            columns.append([f"Partition:{partition}".encode()] * rows.num_rows)
        if text_format.print_offset:
            columns.append([f"Offset:{number}".encode() for number in offset.tolist()])
        if text_format.print_epoch:
            columns.append([f"Epoch:{batch.leader_epoch}".encode()] * rows.num_rows)
        if text_format.print_headers:
            headers = rows.column("headers").to_pylist()
            columns.append([_headers_text(each, text_format, null) for each in headers])
        if text_format.print_key:
            columns.append(_bytes_or(rows.column("key"), null))
        if text_format.print_value:
            columns.append(_bytes_or(rows.column("value"), null))
        lines = columns[0] if len(columns) == 1 else map(separator.join, zip(*columns, strict=True))
        text = line_end.join(lines) + line_end
        yield text.decode("utf-8", "replace").encode()


def format_json(batch: LogBatch, topic: str, partition: int) -> Iterator[bytes]:
    """Yield the records of a batch as JSON, one object a line, some thousand lines at a time."""
    for documents in record_documents(batch):
        lines = (
            to_json({"topic": topic, "partition": partition, **document}) for document in documents
        )
        yield "".join(f"{line}\n" for line in lines).encode()


def record_documents(batch: LogBatch) -> Iterator[list[dict[str, object]]]:
    """Yield the records of a batch as documents for JSON, some thousand at a time.

    Bytes that are UTF-8 become text; others ``{"base64": …}``.
    """
    kind = TIMESTAMP_TYPES[batch.timestamp_type]
    for offsets, rows in _pieces(batch):
        times_us = _times_us(rows)
        yield [
            {
                "offset": offset,
                "timestamp": f"{time}Z",
                "timestamp_ms": time_us // 1000,
                "timestamp_type": kind,
                "leader_epoch": batch.leader_epoch,
                "key": bytes_document(key),
                "value": bytes_document(value),
                "headers": [
                    {"key": header["key"], "value": bytes_document(header["value"])}
                    for header in headers or ()
                ],
            }
            for offset, time, time_us, key, value, headers in zip(
                offsets.tolist(),
                np.datetime_as_string(times_us.view("M8[us]")).tolist(),
                times_us.tolist(),
                rows.column("key").to_pylist(),
                rows.column("value").to_pylist(),
                rows.column("headers").to_pylist(),
                strict=True,
            )
        ]


def bytes_document(data: bytes | None) -> str | dict[str, str] | None:
    """Return what stands for ``data`` in JSON."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _pieces(batch: LogBatch) -> Iterator[tuple[np.ndarray, pa.RecordBatch]]:
    offsets = batch.offsets()
    for start in range(0, batch.records.num_rows, ROWS_AT_ONCE):
        yield offsets[start : start + ROWS_AT_ONCE], batch.records.slice(start, ROWS_AT_ONCE)


def _times_us(rows: pa.RecordBatch) -> np.ndarray:
    times_us: np.ndarray = rows.column("timestamp").cast(pa.int64()).to_numpy()
    return times_us


def _bytes_or(values: pa.Array, null: bytes) -> list[bytes]:
    texts: list[bytes | None] = values.to_pylist()
    return [null if text is None else text for text in texts]


def _headers_text(
    headers: list[dict[str, Any]] | None, text_format: TextFormat, null: bytes
) -> bytes:
    if not headers:
        return b"NO_HEADERS"
    return text_format.headers_separator.encode().join(
        header["key"].encode() + b":" + (null if header["value"] is None else header["value"])
        for header in headers
    )
