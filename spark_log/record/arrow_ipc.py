"""Parts of an Arrow IPC file that pyarrow does not expose: block positions and block metadata.

This module reads two flatbuffers tables itself (``Footer`` in File.fbs, ``Message`` in
Message.fbs), so that a batch header can be read without decoding, or even reading, the batch.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, overload

import numpy as np

_MAGIC = b"ARROW1"
_TRAILER = struct.Struct("<i6s")
_BLOCK = np.dtype(
    {
        "names": ["position", "metadata_bytes", "body_bytes"],
        "formats": ["<i8", "<i4", "<i8"],
        "offsets": [0, 8, 16],
        "itemsize": 24,
    }
)
_U32, _I32, _U16 = struct.Struct("<I"), struct.Struct("<i"), struct.Struct("<H")
END_OF_STREAM_BYTES = 8
_CONTINUATION = b"\xff\xff\xff\xff"
_MESSAGE_VTABLE = struct.Struct("<H10xH")  # size of the vtable; offset of the custom metadata
_KEY_VALUE_VTABLE = struct.Struct("<H2xHH")  # size of the vtable; offsets of key and value
_MAX_METADATA_ENTRIES = 1024
_CODECS = ("lz4", "zstd")  # indexed by Arrow's CompressionType


@dataclass(frozen=True, slots=True)
class Block:
    """Position of one record batch in the file: its message, followed by its body.

    Attributes:
        position: the byte position of the message in the file.
        metadata_bytes: the length of the message with its prefix and padding.
        body_bytes: the length of the body, the buffers that follow the message.
    """

    position: int
    metadata_bytes: int
    body_bytes: int

    @property
    def end(self) -> int:
        """The byte position after the block."""
        return self.position + self.metadata_bytes + self.body_bytes


class Blocks(Sequence[Block]):
    """The record batch blocks of a file, in order; in arrays, since a file may have very many.

    Attributes:
        positions: the byte position of each block, int64.
        ends: the byte position after each block, int64.
    """

    def __init__(self, packed: memoryview) -> None:
        """Read blocks from a footer.

        Args:
            packed: the footer's ``Block`` structs.
        """
        fields = np.frombuffer(packed, _BLOCK)
        self.positions = fields["position"]
        self._metadata_bytes = fields["metadata_bytes"]
        self._body_bytes = fields["body_bytes"]
        self.ends = self.positions + self._metadata_bytes + self._body_bytes

    @classmethod
    def of(cls, positions: np.ndarray, sizes: np.ndarray) -> Blocks:
        """Return blocks that have a body alone.

        Args:
            positions: the byte position of each block.
            sizes: the length of each block.
        """
        fields = np.zeros(len(positions), _BLOCK)
        fields["position"], fields["body_bytes"] = positions, sizes
        return cls(memoryview(fields.tobytes()))

    def __len__(self) -> int:
        return len(self.positions)

    @overload
    def __getitem__(self, index: int) -> Block: ...
    @overload
    def __getitem__(self, index: slice) -> list[Block]: ...
    def __getitem__(self, index: int | slice) -> Block | list[Block]:
        if isinstance(index, slice):
            return [self[ordinal] for ordinal in range(*index.indices(len(self)))]
        return Block(
            int(self.positions[index]),
            int(self._metadata_bytes[index]),
            int(self._body_bytes[index]),
        )

    def ordinal_at(self, position: int) -> int | None:
        """Return the ordinal of the block that begins at ``position``; None if no block does."""
        at = int(np.searchsorted(self.positions, position))
        return at if at < len(self) and self.positions[at] == position else None

    def follow_each_other(self) -> bool:
        """Return whether each block begins at the end of the block before it."""
        if len(self) == 1:  # the usual case, in which numpy would be slow
            return bool(self._metadata_bytes[0] >= 0 and self._body_bytes[0] >= 0)
        is_sane = (self._metadata_bytes >= 0).all() and (self._body_bytes >= 0).all()
        return bool(is_sane and (self.ends[:-1] == self.positions[1:]).all())


def footer_bytes(tail: memoryview) -> int:
    """Return the length of the footer at the end of a file, including its trailer.

    Args:
        tail: the last ten bytes of the file, or more.

    Raises:
        ValueError: ``tail`` is not the end of an Arrow file.
    """
    if len(tail) < _TRAILER.size:
        raise ValueError("is too short for an Arrow file")
    length, magic = _TRAILER.unpack_from(tail, len(tail) - _TRAILER.size)
    if magic != _MAGIC or length <= 0:
        raise ValueError("does not end as an Arrow file does")
    return int(length) + _TRAILER.size


def read_blocks(footer: memoryview) -> Blocks:
    """Return the record batch blocks in a footer.

    Args:
        footer: the last `footer_bytes` bytes of the file.

    Raises:
        ValueError: the footer is damaged.
    """
    try:
        table = _Table.root(footer)
        vector = table.indirect(3)
        if vector is None:
            return Blocks(memoryview(b""))
        (count,) = _U32.unpack_from(footer, vector)
        if count > len(footer) // _BLOCK.itemsize:
            raise ValueError(f"footer of {len(footer)} bytes claims {count} blocks")
        blocks = footer[vector + 4 : vector + 4 + _BLOCK.itemsize * count]
        if len(blocks) != _BLOCK.itemsize * count:
            raise ValueError(f"footer ends within its {count} blocks")
        return Blocks(blocks)
    except (struct.error, IndexError) as error:
        raise ValueError(f"damaged footer: {error}") from None


def check_blocks(blocks: Blocks, footer_position: int | None) -> None:
    """Check that the blocks of a file follow each other without a gap, up to its footer.

    No checksum covers the footer: a wrong count or position would silently drop batches.

    Args:
        blocks: the blocks in the footer.
        footer_position: the byte position of the footer; None if the size of the file is not known.

    Raises:
        ValueError: the blocks have a gap, an overlap, or a negative length.
    """
    if not len(blocks):
        return
    expected = None if footer_position is None else footer_position - END_OF_STREAM_BYTES
    if not blocks.follow_each_other() or blocks.ends[-1] != (expected or blocks.ends[-1]):
        raise ValueError("the footer's blocks do not cover the file")


class BatchFields(NamedTuple):
    """Byte positions in the message of a record batch, for a writer that fills them in.

    Attributes:
        body_bytes: position of the length of the body, i64.
        rows: position of the number of rows, i64.
        nodes: position of the first array's length and number of nulls, i64 each; those of the
            other arrays follow.
        buffers: position of the first buffer's position in the body and its length, i64 each;
            those of the other buffers follow.
    """

    body_bytes: int
    rows: int
    nodes: int
    buffers: int


def batch_fields(message: memoryview) -> BatchFields:
    """Return the positions of the fields of a record batch that has rows and a body.

    Args:
        message: the first ``metadata_bytes`` bytes of a block.
    """
    table = _message(message)
    begin = len(message) - len(table.buffer)
    at = table.indirect(2)
    assert at is not None
    batch = _Table(table.buffer, at)
    found = (table.at(3), batch.at(0), batch.indirect(1), batch.indirect(2))
    body_bytes, rows, nodes, buffers = (begin + position for position in found if position)
    return BatchFields(body_bytes, rows, nodes + _U32.size, buffers + _U32.size)


def blocks_position(footer: memoryview) -> int:
    """Return the byte position of the first block in a footer with blocks.

    Args:
        footer: the last `footer_bytes` bytes of the file.
    """
    vector = _Table.root(footer).indirect(3)
    assert vector is not None
    return vector + _U32.size


def codec(message: memoryview) -> str:
    """Return the compression of a record batch's buffers: ``none``, ``lz4`` or ``zstd``.

    Args:
        message: the first ``metadata_bytes`` bytes of a block.

    Raises:
        ValueError: the message is damaged.
    """
    try:
        table = _message(message)
        batch = table.indirect(2)
        compression = None if batch is None else _Table(table.buffer, batch).indirect(3)
        if compression is None:
            return "none"
        at = _Table(table.buffer, compression).at(0)
        return _CODECS[0 if at is None else table.buffer[at]]
    except (struct.error, IndexError) as error:
        raise ValueError(f"damaged message: {error}") from None


def custom_metadata(message: memoryview) -> dict[bytes, bytes]:
    """Return the custom metadata of an encapsulated message; for a repeated key, the first value.

    For speed this function does not use `_Table`: it takes most of the time of reading a batch
    header.

    Args:
        message: the first ``metadata_bytes`` bytes of a block.

    Raises:
        ValueError: the message is damaged.
    """
    data = bytes(message)
    begin = 8 if data.startswith(_CONTINUATION) else 4
    u32 = _U32.unpack_from
    found: dict[bytes, bytes] = {}
    try:
        table = begin + u32(data, begin)[0]
        vtable = table - _I32.unpack_from(data, table)[0]
        if vtable < begin:
            raise ValueError("vtable outside of the buffer")
        size, field = _MESSAGE_VTABLE.unpack_from(data, vtable)
        if size < _MESSAGE_VTABLE.size or not field:
            return found
        vector = table + field
        vector += u32(data, vector)[0]
        (count,) = u32(data, vector)
        for slot in range(vector + 4, vector + 4 + 4 * min(count, _MAX_METADATA_ENTRIES), 4):
            key, value = _key_value(data, slot + u32(data, slot)[0])
            found.setdefault(key, value)
    except (struct.error, IndexError) as error:
        raise ValueError(f"damaged message: {error}") from None
    return found


def _key_value(data: bytes, table: int) -> tuple[bytes, bytes]:
    """Return key and value of a flatbuffers table ``KeyValue``."""
    vtable = table - _I32.unpack_from(data, table)[0]
    if vtable < 0:
        raise ValueError("vtable outside of the buffer")
    size, key, value = _KEY_VALUE_VTABLE.unpack_from(data, vtable)
    if size < _KEY_VALUE_VTABLE.size or not key or not value:
        raise ValueError("an entry of the custom metadata lacks its key or its value")
    return _text(data, table + key), _text(data, table + value)


def _text(data: bytes, at: int) -> bytes:
    at += _U32.unpack_from(data, at)[0] + 4
    return data[at : at + _U32.unpack_from(data, at - 4)[0]]


def _message(message: memoryview) -> _Table:
    prefix = 8 if bytes(message[:4]) == _CONTINUATION else 4
    return _Table.root(message[prefix:])


class _Table:
    """A flatbuffers table, whose fields are found through its vtable."""

    def __init__(self, buffer: memoryview, position: int) -> None:
        self.buffer = buffer
        self._position = position
        self._vtable = position - _I32.unpack_from(buffer, position)[0]
        if self._vtable < 0:
            raise ValueError("vtable outside of the buffer")
        (self._vtable_bytes,) = _U16.unpack_from(buffer, self._vtable)

    @classmethod
    def root(cls, buffer: memoryview) -> _Table:
        return cls(buffer, _U32.unpack_from(buffer, 0)[0])

    def at(self, field: int) -> int | None:
        """Return the position of a field's value; None if the field has its default."""
        entry = 4 + 2 * field
        if entry >= self._vtable_bytes:
            return None
        (offset,) = _U16.unpack_from(self.buffer, self._vtable + entry)
        return self._position + offset if offset else None

    def indirect(self, field: int) -> int | None:
        """Return the position of the vector, string or table in a field; None without a value."""
        at = self.at(field)
        return None if at is None else int(at + _U32.unpack_from(self.buffer, at)[0])
