"""Formats records: as text by the rules of Kafka's ``DefaultMessageFormatter``, or as JSON."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from spark_log.cli.format.deserializers import STRING, FieldDeserializer, bytes_document
from spark_log.log import FetchedRecords
from spark_log.util import printable_lines

TIMESTAMP_TYPES: Final = ("CreateTime", "LogAppendTime")


@dataclass(frozen=True, slots=True)
class TextFormat:
    """Kafka's properties of the console consumer, with Kafka's defaults.

    The printed fields have this order: timestamp, partition, offset, epoch, headers, key, value.
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
    key_deserializer: str = "string"
    value_deserializer: str = "string"


def format_text(
    records: FetchedRecords,
    text_format: TextFormat,
    key: FieldDeserializer = STRING,
    value: FieldDeserializer = STRING,
    *,
    is_raw: bool = False,
    for_terminal: bool = False,
) -> bytes:
    """Return records as lines of text.

    Args:
        records: the records.
        text_format: the fields to show, and the texts between them. Its deserializers are names,
            which are not used here.
        key: the deserializer of keys.
        value: the deserializer of values.
        is_raw: whether no bytes are changed. If false, bytes that are not UTF-8 are replaced by
            U+FFFD.
        for_terminal: whether to escape control characters in keys, values and headers, except line
            breaks and tabs. Nothing is escaped if ``is_raw``.

    Raises:
        SerializationError: a key or value is not what its deserializer takes.
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
        columns.append(list(map(escape, shown)) if escapes else shown)
    for name, is_printed, deserializer in (
        ("key", text_format.print_key, key),
        ("value", text_format.print_value, value),
    ):
        if is_printed:
            data = deserializer.texts(records, name, null)
            columns.append(list(map(escape, data)) if escapes else data)
    if not columns:
        return b""
    between = os.fsencode(text_format.key_separator)
    lines = columns[0] if len(columns) == 1 else map(between.join, zip(*columns, strict=True))
    text = line_end.join(lines) + line_end
    return text if is_raw else text.decode("utf-8", "replace").encode()


def record_documents(
    records: FetchedRecords, key: FieldDeserializer = STRING, value: FieldDeserializer = STRING
) -> list[dict[str, object]]:
    """Return records as documents for JSON.

    Args:
        records: the records.
        key: deserializer of keys. `STRING` shows bytes as `bytes_document` does.
        value: deserializer of values.

    Raises:
        SerializationError: a key or value is not what its deserializer takes.
    """
    times_us = records.timestamps_us
    return [
        {
            "partition": records.partition,
            "offset": offset,
            "timestamp": f"{time}Z",
            "timestamp_ms": time_us // 1000,
            "timestamp_type": TIMESTAMP_TYPES[records.timestamp_type],
            "leader_epoch": records.leader_epoch,
            "key": key_document,
            "value": value_document,
            "headers": [
                {"key": header["key"], "value": bytes_document(header["value"])}
                for header in headers or ()
            ],
        }
        for offset, time, time_us, key_document, value_document, headers in zip(
            records.offsets.tolist(),
            np.datetime_as_string(times_us.view("M8[us]")).tolist(),
            times_us.tolist(),
            key.documents(records, "key"),
            value.documents(records, "value"),
            records.records.column("headers").to_pylist(),
            strict=True,
        )
    ]


def headers_text(
    headers: list[dict[str, Any]] | None, separator: bytes, null: bytes, equals: bytes = b":"
) -> bytes:
    """Return a record's headers as ``key:value`` pairs, with ``equals`` in place of the colon."""
    return separator.join(
        header["key"].encode() + equals + (null if header["value"] is None else header["value"])
        for header in headers or ()
    )


def escape(data: bytes) -> bytes:
    """Return bytes as UTF-8 without control characters, except line breaks and tabs."""
    return printable_lines(data.decode("utf-8", "replace")).encode()
