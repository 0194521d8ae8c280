"""Arrow files of one small record batch, with the bytes that Arrow's own writer would write.

Two such files of one partition differ in few places: the append id, the batch's metadata, its
buffers, and their lengths and positions. A template is a file that Arrow's writer has written once.
To fill in these places takes less time than to make a writer, whose objects serve one batch.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from itertools import chain
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import ipc

from spark_log.record import arrow_ipc
from spark_log.record.arrays import binary_array, timestamp_array
from spark_log.record.batch_check import CHECK_KEY
from spark_log.record.batch_header import METADATA_KEY
from spark_log.record.schema import (
    APPEND_ID_CHARACTERS,
    HEADERS_TYPE,
    RECORD_SCHEMA,
    segment_schema,
    write_options,
)
from spark_log.record.small_batch import BUFFERS, NODES, SmallBatch

_MARK: Final = b"!"
"""A character that neither base64 nor a topic's id has. It stands for a text to be filled in."""

_OTHER_MARK: Final = b"?"

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
        head, foot = bytearray(self._head), bytearray(self._foot)
        head[self._head_id : self._head_id + APPEND_ID_CHARACTERS] = append_id
        foot[self._foot_id : self._foot_id + APPEND_ID_CHARACTERS] = append_id
        _METADATA_BYTES.pack_into(foot, self._block + 8, len(message))
        _I64.pack_into(foot, self._block + 16, len(body))
        return b"".join((head, message, body, foot))


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

    def fill(self, value: bytes, check: bytes, batch: SmallBatch) -> tuple[bytearray, bytes]:
        """Return the message and the body of a record batch."""
        pieces = batch.buffers
        if self._codec is not None:
            pieces = [
                _I64.pack(len(data)) + self._codec.compress(data, asbytes=True) if data else data
                for data in pieces
            ]
        layout = _layout(tuple(map(len, pieces)))
        message, rows, nulls = bytearray(self._message), batch.rows, batch.nulls
        body_bytes, rows_at, nodes, buffers = self._fields
        _I64.pack_into(message, body_bytes, layout.body_bytes)
        _I64.pack_into(message, rows_at, rows)
        _NODES.pack_into(
            message,
            nodes,
            *(rows, nulls[0], rows, nulls[1], rows, nulls[2], 0, 0, 0, 0, 0, 0, rows, 0),
        )
        message[buffers : buffers + _BUFFERS.size] = layout.places
        message[self._value : self._value + len(value)] = value
        message[self._check : self._check + len(check)] = check
        return message, b"".join(chain.from_iterable(zip(pieces, layout.paddings, strict=True)))


class _Layout(NamedTuple):
    """The places of a batch's buffers in its body.

    Attributes:
        places: position and length of each buffer, as the message has them.
        paddings: the bytes behind each buffer.
        body_bytes: length of the body.
    """

    places: bytes
    paddings: tuple[bytes, ...]
    body_bytes: int


@lru_cache(maxsize=256)
def _layout(lengths: tuple[int, ...]) -> _Layout:
    """Return the places of buffers of these lengths; the next batch often has the same."""
    places: list[int] = []
    position = 0
    for length in lengths:
        places += (position, length)
        position += length + (-length & 7)
    paddings = tuple(bytes(-length & 7) for length in lengths)
    return _Layout(_BUFFERS.pack(*places), paddings, position)


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
