"""Arrow files of one small record batch, with the bytes that Arrow's own writer would write.

Two such files of one partition differ in few places: the append id, the batch's metadata, its
buffers, and their lengths and positions. A template is a file that Arrow's writer has written once.
To fill in these places takes less time than to make a writer, whose objects serve one batch. To
take them out of such a file takes less time than to open it as an Arrow file.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import ipc

from spark_log.record import arrow_ipc
from spark_log.record.arrays import binary_array, timestamp_array
from spark_log.record.batch_check import CHECK_KEY, COLUMN_SUMS_BYTES
from spark_log.record.batch_header import METADATA_KEY
from spark_log.record.schema import (
    APPEND_ID_CHARACTERS,
    HEADERS_TYPE,
    RECORD_SCHEMA,
    segment_schema,
    write_options,
)
from spark_log.record.small_batch import BUFFERS, NODES, SmallBatch, content_of

_MARK: Final = b"!"
"""A character that neither base64 nor a topic's id has. It stands for a text to be filled in."""

_OTHER_MARK: Final = b"?"

_I64: Final = struct.Struct("<q")
_METADATA_BYTES: Final = struct.Struct("<i")
_NODES: Final = struct.Struct(f"<{2 * NODES}q")
_NO_ITEMS: Final = (0, 0) * 3
"""Lengths and nulls of the structs, names and values of headers, of which there are none."""

_BUFFERS: Final = struct.Struct(f"<{2 * BUFFERS}q")
_PADDING: Final = tuple(b"\0" * (-length % 8) for length in range(8))

_COMPRESSIONS: Final = ("none", "lz4", "zstd")

_VALUE_CHARACTERS: Final = 72
"""Length of the text under `METADATA_KEY`, if the batch has one header."""

_CHECK_CHARACTERS: Final = 8
"""Length of the text under `CHECK_KEY`, if it has no column sums."""


class SmallFile(NamedTuple):
    """The parts of a file of one small record batch, as they are stored. Nothing is checked yet.

    Attributes:
        append_id: the segment's append id.
        value: the batch header, as under `METADATA_KEY`.
        check: the check of the header, as under `CHECK_KEY`.
        rows: number of records.
        compression: ``none``, ``lz4`` or ``zstd``.
        content: the columns as they enter the checksum of the batch (`SmallBatch.content`).
    """

    append_id: bytes
    value: bytes
    check: bytes
    rows: int
    compression: str
    content: bytes


class FileTemplate:
    """The file of a small record batch in one partition, but for the batch itself."""

    def __init__(self, topic_id: str, partition: int) -> None:
        """Have Arrow write a file, and find the places to fill in.

        Args:
            topic_id: the topic's id.
            partition: the partition's number.
        """
        marks = _MARK * APPEND_ID_CHARACTERS
        schema = segment_schema(topic_id, partition, append_id=marks)
        file, block, footer = _written(schema, b"", b"", "none")
        self._head, self._foot = file[: block.position], file[block.end :]
        self._head_id, self._foot_id = self._head.index(marks), self._foot.index(marks)
        in_footer = arrow_ipc.blocks_position(memoryview(file)[-footer:])
        self._block = len(self._foot) - footer + in_footer
        self._compressions: tuple[str, ...] = _COMPRESSIONS
        """The compressions to try when a file is read; the one that was found last is first."""

    def fill(
        self, append_id: bytes, value: bytes, check: bytes, batch: SmallBatch, compression: str
    ) -> bytes:
        """Return the file of a record batch.

        Args:
            append_id: the segment's append id.
            value: the batch headers, as under `METADATA_KEY`.
            check: the check of the headers, as under `CHECK_KEY`.
            batch: the records.
            compression: ``none``, ``lz4`` or ``zstd``.
        """
        template = _message_template(compression, len(value), len(check))
        message, body = template.fill(value, check, batch)
        head, foot = self._ends(append_id, len(message), len(body))
        return b"".join((head, message, body, foot))

    def _ends(
        self, append_id: bytes, metadata_bytes: int, body_bytes: int
    ) -> tuple[bytearray, bytearray]:
        """Return the bytes before and behind the block of a record batch."""
        head, foot = bytearray(self._head), bytearray(self._foot)
        head[self._head_id : self._head_id + APPEND_ID_CHARACTERS] = append_id
        foot[self._foot_id : self._foot_id + APPEND_ID_CHARACTERS] = append_id
        _METADATA_BYTES.pack_into(foot, self._block + 8, metadata_bytes)
        _I64.pack_into(foot, self._block + 16, body_bytes)
        return head, foot

    def read(self, file: bytes) -> SmallFile | None:
        """Return the parts of a file that `fill` may have returned for a batch with one header.

        Returns:
            None for any other file: each byte that is not part of the result is compared.
        """
        begin, end = len(self._head), len(file) - len(self._foot)
        if end <= begin:
            return None
        (metadata_bytes,) = _METADATA_BYTES.unpack_from(file, end + self._block + 8)
        (body_bytes,) = _I64.unpack_from(file, end + self._block + 16)
        append_id = file[self._head_id : self._head_id + APPEND_ID_CHARACTERS]
        body_at = begin + metadata_bytes
        if metadata_bytes <= 0 or body_at + body_bytes != end:
            return None
        head, foot = self._ends(append_id, metadata_bytes, body_bytes)
        if file[:begin] != head or file[end:] != foot:
            return None
        message, body = file[begin:body_at], file[body_at:end]
        for compression in self._compressions:
            template = _message_template(compression, _VALUE_CHARACTERS, _CHECK_CHARACTERS)
            found = template.read(message, body)
            if found is not None:
                if compression != self._compressions[0]:
                    others = (each for each in _COMPRESSIONS if each != compression)
                    self._compressions = (compression, *others)
                return SmallFile(append_id, *found[:3], compression, found[3])
        return None


class _MessageTemplate:
    """The message of a small record batch, which does not depend on the partition."""

    def __init__(self, compression: str, value_bytes: int, check_bytes: int) -> None:
        """Have Arrow write a file, and find the places to fill in.

        Args:
            compression: ``none``, ``lz4`` or ``zstd``.
            value_bytes: length of the text under `METADATA_KEY`.
            check_bytes: length of the text under `CHECK_KEY`.
        """
        value, check = _MARK * value_bytes, _OTHER_MARK * check_bytes
        schema = segment_schema("", 0, append_id=b"")
        file, block, _ = _written(schema, value, check, compression)
        self._message = file[block.position : block.position + block.metadata_bytes]
        self._fields = arrow_ipc.batch_fields(memoryview(self._message))
        self._value, self._check = self._message.index(value), self._message.index(check)
        self._codec = None if compression == "none" else pa.Codec(compression)
        body_bytes, rows, nodes, buffers = self._fields
        self._holes = [
            (slice(at, at + length), self._message[at : at + length])
            for at, length in (
                (body_bytes, _I64.size),
                (rows, _I64.size),
                (nodes, _NODES.size),
                (buffers, _BUFFERS.size),
                (self._value, value_bytes),
                (self._check, check_bytes),
            )
        ]

    def fill(self, value: bytes, check: bytes, batch: SmallBatch) -> tuple[bytearray, bytes]:
        """Return the message and the body of a record batch."""
        places: list[int] = []
        pieces: list[bytes] = []
        position = 0
        for data in batch.buffers:
            length = len(data)
            if length and self._codec is not None:
                data = _I64.pack(length) + self._codec.compress(data, asbytes=True)  # noqa: PLW2901
                length = len(data)
            places += (position, length)
            if length:
                padding = _PADDING[length & 7]
                pieces += (data, padding)
                position += length + len(padding)
        message, rows, nulls = bytearray(self._message), batch.rows, batch.nulls
        body_bytes, rows_at, nodes, buffers = self._fields
        _I64.pack_into(message, body_bytes, position)
        _I64.pack_into(message, rows_at, rows)
        _NODES.pack_into(
            message,
            nodes,
            *(rows, nulls[0], rows, nulls[1], rows, nulls[2], 0, 0, 0, 0, 0, 0, rows, 0),
        )
        _BUFFERS.pack_into(message, buffers, *places)
        message[self._value : self._value + len(value)] = value
        message[self._check : self._check + len(check)] = check
        return message, b"".join(pieces)

    def read(self, message: bytes, body: bytes) -> tuple[bytes, bytes, int, bytes] | None:
        """Return metadata, check, number of rows and content of a batch that `fill` returned.

        Args:
            message: the message of a record batch.
            body: its body.

        Returns:
            None for another message or body.
        """
        if len(message) != len(self._message):
            return None
        others = bytearray(message)
        for hole, filling in self._holes:
            others[hole] = filling
        if others != self._message:
            return None
        body_bytes, rows_at, nodes, buffers = self._fields
        (rows,) = _I64.unpack_from(message, rows_at)
        counts = _NODES.unpack_from(message, nodes)
        nulls = counts[1], counts[3]
        expected = (*(rows, nulls[0], rows, nulls[1], rows, rows), *_NO_ITEMS, rows, 0)
        if rows <= 0 or counts != expected:
            return None
        if _I64.unpack_from(message, body_bytes) != (len(body),):
            return None
        taken = self._buffers(_BUFFERS.unpack_from(message, buffers), body)
        content = None if taken is None else content_of(rows, nulls, taken)
        if content is None:
            return None
        value = message[self._value : self._holes[4][0].stop]
        check = message[self._check : self._holes[5][0].stop]
        return value, check, rows, content

    def _buffers(self, places: tuple[int, ...], body: bytes) -> list[bytes] | None:
        """Return the buffers of a body; None if they do not follow each other as in `fill`."""
        found: list[bytes] = []
        position = 0
        for at in range(0, 2 * BUFFERS, 2):
            length = places[at + 1]
            if places[at] != position or length < 0 or position + length > len(body):
                return None
            data = body[position : position + length]
            position += length + (-length & 7)
            if length and self._codec is not None:
                (size,) = _I64.unpack_from(data)
                if not 0 < size < COLUMN_SUMS_BYTES:
                    return None
                data = self._codec.decompress(data[_I64.size :], size, asbytes=True)
            found.append(data)
        return found if position == len(body) else None


@lru_cache(maxsize=1024)
def file_template(topic_id: str, partition: int) -> FileTemplate:
    """Return the template of a partition; about 3 KB."""
    return FileTemplate(topic_id, partition)


_message_template = lru_cache(maxsize=128)(_MessageTemplate)


def _written(
    schema: pa.Schema, value: bytes, check: bytes, compression: str
) -> tuple[bytes, arrow_ipc.Block, int]:
    """Return a file that Arrow has written, the block of its record batch, and its footer's length.

    Args:
        schema: the file's schema.
        value: the text under `METADATA_KEY`.
        check: the text under `CHECK_KEY`.
        compression: ``none``, ``lz4`` or ``zstd``.
    """
    text = binary_array([b"text"])
    columns = [text, text, pa.nulls(1, HEADERS_TYPE), timestamp_array(np.zeros(1, np.int64))]
    records = pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)
    sink = pa.BufferOutputStream()
    with ipc.new_file(sink, schema, options=write_options(compression)) as writer:
        writer.write_batch(
            records.replace_schema_metadata(schema.metadata),
            custom_metadata={METADATA_KEY: value, CHECK_KEY: check},
        )
    file = memoryview(sink.getvalue())
    footer = arrow_ipc.footer_bytes(file)
    (block,) = arrow_ipc.read_blocks(file[-footer:])
    return bytes(file), block, footer
