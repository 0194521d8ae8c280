"""Streamed answers: hits and progress of a search as events, and an export as a file."""

from __future__ import annotations

import base64
import io
from dataclasses import asdict
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from spark_log.console.budget import Budget, RequestCancelledError
from spark_log.console.console import Console
from spark_log.console.reading import PREVIEW_BYTES, shown_records
from spark_log.console.responses import json_text, verdict
from spark_log.console.search import Search, SearchProgress
from spark_log.console.views import SearchParameters
from spark_log.console.work import Emit
from spark_log.log import FetchedRecords
from spark_log.record import HEADERS_TYPE, TIMESTAMP_TYPE

_EXPORT_SCHEMA: Final = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", TIMESTAMP_TYPE, nullable=False),
        pa.field("timestampType", pa.int32(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS_TYPE),
    ]
)
_PIECE_BYTES: Final = 65_536
_JSON_ROWS: Final = 1_000
_PROGRESS_MS: Final = 200


def emit_hits(
    console: Console, parameters: SearchParameters, search: Search, budget: Budget, emit: Emit
) -> None:
    """Emit server-sent events: ``hit`` for each record, ``progress``, then ``done`` or ``failed``.

    The data of an event is JSON: a record, or `SearchProgress`, or ``{"error": …}``.
    """
    avro = console.settings.avro.get(parameters.topic)
    shown_ms = float("-inf")

    def on_hits(rows: FetchedRecords) -> None:
        for record in shown_records(rows, parameters.form, avro, PREVIEW_BYTES):
            emit(_event("hit", asdict(record)))

    def on_progress(progress: SearchProgress) -> None:
        nonlocal shown_ms
        if progress.elapsed_ms >= shown_ms + _PROGRESS_MS:
            shown_ms = progress.elapsed_ms
            emit(_event("progress", asdict(progress)))

    try:
        done = search.run(budget, console.cluster.clock, on_hits, on_progress)
        emit(_event("done", asdict(done)))
    except RequestCancelledError:
        pass
    except Exception as error:
        emit(_event("failed", {"error": verdict(error)[1]}))
    finally:
        _close(search)


def emit_json_lines(
    console: Console, topic: str, search: Search, budget: Budget, emit: Emit
) -> None:
    """Emit a JSON object on a line for each record, in the format of console-consumer."""
    lines: list[str] = []
    size = 0

    def on_hits(rows: FetchedRecords) -> None:
        nonlocal size
        for start in range(0, len(rows), _JSON_ROWS):
            for each in _json_rows(topic, rows.slice(start, _JSON_ROWS)):
                line = json_text(each)
                lines.append(line)
                size += len(line)
                if size >= _PIECE_BYTES:
                    emit(_lines(lines))
                    size = 0

    try:
        search.run(budget, console.cluster.clock, on_hits, lambda _: None)
        if lines:
            emit(_lines(lines))
    finally:
        _close(search)


def emit_parquet(console: Console, topic: str, search: Search, budget: Budget, emit: Emit) -> None:
    """Emit a Parquet file with the columns of the Spark source, one row group after another."""
    sink = _Sink(emit)
    try:
        with pq.ParquetWriter(sink, _EXPORT_SCHEMA, compression="zstd") as writer:

            def on_hits(rows: FetchedRecords) -> None:
                writer.write_batch(_export_batch(topic, rows))

            search.run(budget, console.cluster.clock, on_hits, lambda _: None)
        sink.send()
    finally:
        _close(search)


class _Sink(io.RawIOBase):
    """An append-only file that emits the bytes that are written to it."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._waiting = bytearray()
        self._size = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._size

    def write(self, data: Any) -> int:
        self._waiting += data
        self._size += len(data)
        if len(self._waiting) >= _PIECE_BYTES:
            self.send()
        return len(data)

    def send(self) -> None:
        if self._waiting:
            self._emit(bytes(self._waiting))
            self._waiting.clear()


def _export_batch(topic: str, rows: FetchedRecords) -> pa.RecordBatch:
    count = len(rows)
    return pa.RecordBatch.from_arrays(
        [
            pa.repeat(pa.scalar(topic, pa.string()), count),
            pa.repeat(pa.scalar(rows.partition, pa.int32()), count),
            pa.array(rows.offsets, pa.int64()),
            rows.records.column("timestamp"),
            pa.repeat(pa.scalar(rows.timestamp_type, pa.int32()), count),
            rows.records.column("key"),
            rows.records.column("value"),
            rows.records.column("headers"),
        ],
        schema=_EXPORT_SCHEMA,
    )


def _json_rows(topic: str, rows: FetchedRecords) -> list[dict[str, Any]]:
    columns = {name: rows.records.column(name).to_pylist() for name in ("key", "value", "headers")}
    times_us = rows.timestamps_us.tolist()
    return [
        {
            "topic": topic,
            "partition": rows.partition,
            "offset": offset,
            "timestamp_us": times_us[row],
            "timestamp_type": rows.timestamp_type,
            "key": _bytes(columns["key"][row]),
            "value": _bytes(columns["value"][row]),
            "headers": [
                {"key": each["key"], "value": _bytes(each["value"])}
                for each in columns["headers"][row] or ()
            ],
        }
        for row, offset in enumerate(rows.offsets.tolist())
    ]


def _bytes(data: bytes | None) -> str | dict[str, str] | None:
    """Return bytes as JSON: text if they are UTF-8, else ``{"base64": …}``; null for None."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _lines(lines: list[str]) -> bytes:
    piece = "".join(f"{line}\n" for line in lines).encode()
    lines.clear()
    return piece


def _event(name: str, data: dict[str, Any]) -> bytes:
    return f"event: {name}\ndata: {json_text(data)}\n\n".encode()


def _close(search: Search) -> None:
    if search.expression is not None:
        search.expression.close()
