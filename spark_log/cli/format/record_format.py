"""How records are shown: as text by the rules of Kafka's ``DefaultMessageFormatter``, or JSON."""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from spark_log.cli.fetched_records import FetchedRecords
from spark_log.printable import printable_lines

TIMESTAMP_TYPES: Final = ("CreateTime", "LogAppendTime")


@dataclass(frozen=True, slots=True)
class TextFormat:
    """Kafka's properties of the console consumer, with Kafka's defaults.

    What is printed comes in this order: timestamp, partition, offset, epoch, headers, key, value.
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


def format_text(
    records: FetchedRecords,
    text_format: TextFormat,
    *,
    is_raw: bool = False,
    for_terminal: bool = False,
) -> bytes:
    """Return records as lines of text.

    Args:
        records: what to show.
        text_format: which of their fields, and what stands between these.
        is_raw: leave all bytes as they are; else what is not UTF-8 is replaced by U+FFFD.
        for_terminal: escape control characters of keys, values and headers, but for line breaks
            and tabs. Nothing is escaped when ``is_raw``.
    """
    count = len(records)
    null = os.fsencode(text_format.null_literal)
    line_end = os.fsencode(text_format.line_separator)
    escapes = for_terminal and not is_raw
    columns: list[Sequence[bytes]] = []
    if text_format.print_timestamp:
        kind = TIMESTAMP_TYPES[records.timestamp_type]
        times_ms = (records.timestamps_us // 1000).tolist()
        columns.append([f"{kind}:{time_ms}".encode() for time_ms in times_ms])
    if text_format.print_partition:
        columns.append([f"Partition:{records.partition}".encode()] * count)
    if text_format.print_offset:
        columns.append([f"Offset:{offset}".encode() for offset in records.offsets.tolist()])
    if text_format.print_epoch:
        columns.append([f"Epoch:{records.leader_epoch}".encode()] * count)
    if text_format.print_headers:
        separator = os.fsencode(text_format.headers_separator)
        headers = records.records.column("headers").to_pylist()
        shown = [headers_text(each, separator, null) or b"NO_HEADERS" for each in headers]
        columns.append(list(map(_escape, shown)) if escapes else shown)
    for name, is_printed in (("key", text_format.print_key), ("value", text_format.print_value)):
        if is_printed:
            data = _bytes_or(null, records.records.column(name))
            columns.append(list(map(_escape, data)) if escapes else data)
    if not columns:
        return b""
    between = os.fsencode(text_format.key_separator)
    lines = columns[0] if len(columns) == 1 else map(between.join, zip(*columns, strict=True))
    text = line_end.join(lines) + line_end
    return text if is_raw else text.decode("utf-8", "replace").encode()


def record_documents(records: FetchedRecords) -> list[dict[str, object]]:
    """Return records as documents for JSON, see `bytes_document`."""
    times_us = records.timestamps_us
    return [
        {
            "partition": records.partition,
            "offset": offset,
            "timestamp": f"{time}Z",
            "timestamp_ms": time_us // 1000,
            "timestamp_type": TIMESTAMP_TYPES[records.timestamp_type],
            "leader_epoch": records.leader_epoch,
            "key": bytes_document(key),
            "value": bytes_document(value),
            "headers": [
                {"key": header["key"], "value": bytes_document(header["value"])}
                for header in headers or ()
            ],
        }
        for offset, time, time_us, key, value, headers in zip(
            records.offsets.tolist(),
            np.datetime_as_string(times_us.view("M8[us]")).tolist(),
            times_us.tolist(),
            records.records.column("key").to_pylist(),
            records.records.column("value").to_pylist(),
            records.records.column("headers").to_pylist(),
            strict=True,
        )
    ]


def bytes_document(data: bytes | None) -> str | dict[str, str] | None:
    """Return what stands for bytes in JSON: text where they are UTF-8, else ``{"base64": …}``."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def headers_text(headers: list[dict[str, Any]] | None, separator: bytes, null: bytes) -> bytes:
    """Return a record's headers as ``key:value`` pairs."""
    return separator.join(
        header["key"].encode() + b":" + (null if header["value"] is None else header["value"])
        for header in headers or ()
    )


def _escape(data: bytes) -> bytes:
    return printable_lines(data.decode("utf-8", "replace")).encode()


def _bytes_or(null: bytes, column: pa.Array) -> list[bytes]:
    return [null if value is None else value for value in column.to_pylist()]
