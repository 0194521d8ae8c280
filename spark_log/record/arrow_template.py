"""Arrow files of one small record batch, with the bytes that Arrow's own writer would write.

Two such files of one partition differ in few places: the append id, the batch's metadata, its
buffers, and their lengths and positions. A template is a file that Arrow's writer has written once.
To fill in these places takes less time than to make a writer, whose objects serve one batch.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import ipc

from spark_log.record import arrow_ipc
from spark_log.record.arrays import binary_array, timestamp_array
from spark_log.record.batch_check import CHECK_KEY, COLUMN_SUMS_BYTES, encode_check
from spark_log.record.batch_header import METADATA_KEY, BatchHeader, decode_headers
from spark_log.record.schema import (
    APPEND_ID_CHARACTERS,
    COMPRESSIONS,
    HEADERS_TYPE,
    RECORD_SCHEMA,
    segment_schema,
    write_options,
)
from spark_log.record.small_batch import BUFFERS, MOST_SMALL_ROWS, NODES, SmallBatch

_MARK: Final = b"!"
"""A character that neither base64 nor a topic's id has. It stands for a text to be filled in."""

_OTHER_MARK: Final = b"?"

_VALUE_BYTES: Final = 72
"""Length of the text of one batch header."""

_CHECK_BYTES: Final = 8
"""Length of the text of a check without column sums."""

_MOST_BODY_BYTES: Final = COLUMN_SUMS_BYTES + 1024
"""Size from which on a body is not one of a small batch: compression may add some bytes."""

_I64: Final = struct.Struct("<q")
_METADATA_BYTES: Final = struct.Struct("<i")
_NODES: Final = struct.Struct(f"<{2 * NODES}q")
_BUFFERS: Final = struct.Struct(f"<{2 * BUFFERS}q")


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
        self._compressions: tuple[str, ...] = COMPRESSIONS
        """The compressions of files to read; the one that was found last is first."""

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
        head, foot = self._framing(append_id, len(message), len(body))
        return b"".join((head, message, body, foot))

    def read(self, file: bytes) -> SmallFile | None:
        """Return the content of a file that this template made, or Arrow's writer in its place.

        All of it is checked: the file differs from the template in the places to be filled in and
        nowhere else, and these fit each other and their checksums.

        Args:
            file: the bytes of a file.

        Returns:
            None for any other file: it has several batches, it is not small, it is of another
            partition, or it is damaged.
        """
        first, body_end = len(self._head), len(file) - len(self._foot)
        if body_end <= first:
            return None
        (message_bytes,) = _METADATA_BYTES.unpack_from(file, body_end + self._block + 8)
        body_bytes = body_end - first - message_bytes
        if message_bytes <= 0 or not 0 < body_bytes < _MOST_BODY_BYTES:
            return None
        append_id = file[self._head_id : self._head_id + APPEND_ID_CHARACTERS]
        head, foot = self._framing(append_id, message_bytes, body_bytes)
        if not file.startswith(head) or not file.endswith(foot):
            return None
        message, body = file[first : first + message_bytes], file[first + message_bytes : body_end]
        for compression in self._compressions:
            template = _message_template(compression, _VALUE_BYTES, _CHECK_BYTES)
            found = template.read(message, body)
            if found is not None:
                break
        else:
            return None
        if compression != self._compressions[0]:
            others = (each for each in COMPRESSIONS if each != compression)
            self._compressions = (compression, *others)
        value, check, batch = found
        header = _header_of(value, batch) if check == encode_check(append_id, value, None) else None
        if header is None:
            return None
        return SmallFile(append_id, header, batch, first, body_bytes, compression)

    def _framing(
        self, append_id: bytes, message_bytes: int, body_bytes: int
    ) -> tuple[bytearray, bytearray]:
        """Return the bytes before and behind a record batch."""
        head, foot = bytearray(self._head), bytearray(self._foot)
        head[self._head_id : self._head_id + APPEND_ID_CHARACTERS] = append_id
        foot[self._foot_id : self._foot_id + APPEND_ID_CHARACTERS] = append_id
        _METADATA_BYTES.pack_into(foot, self._block + 8, message_bytes)
        _I64.pack_into(foot, self._block + 16, body_bytes)
        return head, foot


def _header_of(value: bytes, batch: SmallBatch) -> BatchHeader | None:
    """Return the header of a batch; None if it is not this batch's.

    Args:
        value: the text under `METADATA_KEY`.
        batch: the records.
    """
    try:
        (header,) = decode_headers(value)
    except ValueError:
        return None
    last = header.base_offset_delta, header.last_offset_delta, header.record_count
    if last != (0, batch.rows - 1, batch.rows) or batch.crc32c(header) != header.crc32c:
        return None
    return header


class SmallFile(NamedTuple):
    """The content of a file with one small batch.

    Attributes:
        append_id: the segment's append id.
        header: the batch header.
        batch: the records, which have the header's checksum.
        position: byte position of the Arrow batch.
        body_bytes: stored size of the records.
        compression: ``none``, ``lz4`` or ``zstd``.
    """

    append_id: bytes
    header: BatchHeader
    batch: SmallBatch
    position: int
    body_bytes: int
    compression: str


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
        self.message = file[block.position : block.position + block.metadata_bytes]
        self._fields = arrow_ipc.batch_fields(memoryview(self.message))
        self._value, self._check = self.message.index(value), self.message.index(check)
        self._value_bytes, self._check_bytes = value_bytes, check_bytes
        self._codec = None if compression == "none" else pa.Codec(compression)

    def fill(self, value: bytes, check: bytes, batch: SmallBatch) -> tuple[bytearray, bytes]:
        """Return the message and the body of a record batch."""
        pieces = batch.buffers
        if self._codec is not None:
            pieces = [
                _I64.pack(len(data)) + self._codec.compress(data, asbytes=True) if data else data
                for data in pieces
            ]
        layout = _layout(tuple(map(len, pieces)))
        return self._filled(value, check, batch, layout), layout.body.pack(*pieces)

    def _filled(self, value: bytes, check: bytes, batch: SmallBatch, layout: _Layout) -> bytearray:
        """Return the message of a batch whose stored buffers have a layout."""
        message, rows, nulls = bytearray(self.message), batch.rows, batch.nulls
        body_bytes, rows_at, nodes, buffers = self._fields
        _I64.pack_into(message, body_bytes, layout.body.size)
        _I64.pack_into(message, rows_at, rows)
        _NODES.pack_into(
            message,
            nodes,
            *(rows, nulls[0], rows, nulls[1], rows, nulls[2], 0, 0, 0, 0, 0, 0, rows, 0),
        )
        message[buffers : buffers + _BUFFERS.size] = layout.places
        message[self._value : self._value + len(value)] = value
        message[self._check : self._check + len(check)] = check
        return message

    def read(self, message: bytes, body: bytes) -> tuple[bytes, bytes, SmallBatch] | None:
        """Return what was filled into a message, and the batch; None if it is another message.

        Args:
            message: a message.
            body: the bytes behind it.
        """
        if len(message) != len(self.message):
            return None
        _, rows_at, nodes, buffers = self._fields
        (rows,) = _I64.unpack_from(message, rows_at)
        keys, values = message[nodes + 8 : nodes + 16], message[nodes + 24 : nodes + 32]
        nulls = (rows if any(keys) else 0, rows if any(values) else 0, rows)
        lengths = _BUFFERS.unpack_from(message, buffers)[1::2]
        if min(lengths) < 0 or max(lengths) > len(body) or not 0 < rows <= MOST_SMALL_ROWS:
            return None
        layout = _layout(lengths)
        if layout.body.size != len(body):
            return None
        pieces = layout.body.unpack(body)
        buffers_read = self._plain(pieces)
        batch = None if buffers_read is None else SmallBatch.of_buffers(rows, nulls, buffers_read)
        if batch is None or layout.body.pack(*pieces) != body:
            return None
        value = message[self._value : self._value + self._value_bytes]
        check = message[self._check : self._check + self._check_bytes]
        is_same = self._filled(value, check, batch, layout) == message
        return (value, check, batch) if is_same else None

    def _plain(self, pieces: Sequence[bytes]) -> Sequence[bytes] | None:
        """Return buffers as they were before their compression; None if that is not possible."""
        if self._codec is None:
            return pieces
        found = []
        for data in pieces:
            size = _I64.unpack_from(data)[0] if len(data) > _I64.size else 0
            if data and not 0 < size < COLUMN_SUMS_BYTES:
                return None
            try:
                plain = (
                    self._codec.decompress(data[_I64.size :], size, asbytes=True) if data else b""
                )
            except (OSError, pa.ArrowException):
                return None
            found.append(plain)
        return found


class _Layout(NamedTuple):
    """The places of a batch's buffers in its body.

    Attributes:
        places: position and length of each buffer, as the message has them.
        body: the body, each buffer with its padding.
    """

    places: bytes
    body: struct.Struct


@lru_cache(maxsize=256)
def _layout(lengths: tuple[int, ...]) -> _Layout:
    """Return the places of buffers of these lengths; the next batch often has the same."""
    places: list[int] = []
    position = 0
    for length in lengths:
        places += (position, length)
        position += length + (-length & 7)
    body = struct.Struct("".join(f"{length}s{-length & 7}x" for length in lengths))
    return _Layout(_BUFFERS.pack(*places), body)


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
