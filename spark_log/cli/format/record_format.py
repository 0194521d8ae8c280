"""How records are printed: as text by the rules of Kafka's ``DefaultMessageFormatter``, or JSON."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from spark_log.cli.fetched_records import FetchedRecords
from spark_log.errors import InvalidConfigurationError, SerializationError
from spark_log.printable import printable_lines

DESERIALIZERS: Final = ("string", "json", "hex")
"""How bytes of keys and values are shown: as UTF-8 text, as JSON documents, or in hexadecimal."""

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

    def check(self) -> None:
        """Refuse unknown deserializers.

        Raises:
            InvalidConfigurationError: a deserializer is not one of `DESERIALIZERS`.
        """
        for name in ("key_deserializer", "value_deserializer"):
            given = getattr(self, name)
            if given not in DESERIALIZERS:
                key = name.replace("_", ".")
                raise InvalidConfigurationError(
                    f"{key} is {given!r}, expected {', '.join(DESERIALIZERS)}", key=key
                )


def format_text(
    records: FetchedRecords,
    text_format: TextFormat,
    *,
    is_raw: bool = False,
    for_terminal: bool = False,
) -> bytes:
    """Return records as lines of text.

    Args:
        records: the records.
        text_format: fields to show, and the texts between them.
        is_raw: whether all bytes stay as they are. Otherwise bytes that are not UTF-8 are replaced
            by U+FFFD.
        for_terminal: whether to escape control characters in keys, values and headers, except line
            breaks and tabs. Nothing is escaped if ``is_raw``.

    Raises:
        SerializationError: a key or value is not JSON, but its deserializer is ``json``.
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
    for name, is_printed, deserializer in (
        ("key", text_format.print_key, text_format.key_deserializer),
        ("value", text_format.print_value, text_format.value_deserializer),
    ):
        if is_printed:
            data = _texts(records, name, deserializer, null)
            columns.append(list(map(_escape, data)) if escapes else data)
    if not columns:
        return b""
    between = os.fsencode(text_format.key_separator)
    lines = columns[0] if len(columns) == 1 else map(between.join, zip(*columns, strict=True))
    text = line_end.join(lines) + line_end
    return text if is_raw else text.decode("utf-8", "replace").encode()


def record_documents(
    records: FetchedRecords, key_deserializer: str = "string", value_deserializer: str = "string"
) -> list[dict[str, object]]:
    """Return records as documents for JSON.

    Args:
        records: the records.
        key_deserializer: one of `DESERIALIZERS`. ``string`` shows bytes as `bytes_document` does.
        value_deserializer: one of `DESERIALIZERS`.

    Raises:
        SerializationError: a key or value is not JSON, but its deserializer is ``json``.
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
            "key": key,
            "value": value,
            "headers": [
                {"key": header["key"], "value": bytes_document(header["value"])}
                for header in headers or ()
            ],
        }
        for offset, time, time_us, key, value, headers in zip(
            records.offsets.tolist(),
            np.datetime_as_string(times_us.view("M8[us]")).tolist(),
            times_us.tolist(),
            _documents(records, "key", key_deserializer),
            _documents(records, "value", value_deserializer),
            records.records.column("headers").to_pylist(),
            strict=True,
        )
    ]


def bytes_document(data: bytes | None) -> str | dict[str, str] | None:
    """Return bytes as JSON: text if they are UTF-8, else ``{"base64": …}``; null for None."""
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


def _texts(records: FetchedRecords, name: str, deserializer: str, null: bytes) -> list[bytes]:
    """Return the text of each key or value."""
    column = records.records.column(name).to_pylist()
    if deserializer == "hex":
        return [null if data is None else data.hex().encode() for data in column]
    if deserializer == "json":
        documents = _json_documents(records, name)
        return [
            null if data is None else json.dumps(document, ensure_ascii=False).encode()
            for data, document in zip(column, documents, strict=True)
        ]
    return [null if data is None else data for data in column]


def _documents(records: FetchedRecords, name: str, deserializer: str) -> list[Any]:
    """Return the JSON document of each key or value."""
    if deserializer == "json":
        return _json_documents(records, name)
    column = records.records.column(name).to_pylist()
    if deserializer == "hex":
        return [None if data is None else data.hex() for data in column]
    return [bytes_document(data) for data in column]


def _json_documents(records: FetchedRecords, name: str) -> list[Any]:
    documents = []
    column = records.records.column(name).to_pylist()
    for offset, data in zip(records.offsets.tolist(), column, strict=True):
        try:
            documents.append(None if data is None else json.loads(data))
        except ValueError as error:
            raise SerializationError(
                f"the {name} at partition {records.partition}, offset {offset} is not JSON: {error}"
            ) from None
    return documents
