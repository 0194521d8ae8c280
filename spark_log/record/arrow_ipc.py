"""What pyarrow does not show of an Arrow IPC file: where its blocks are, and a block's metadata.

The two flatbuffers tables concerned (``Footer`` in File.fbs, ``Message`` in Message.fbs) are read
by hand, so that a batch's header can be had without decoding, or even reading, the batch.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

_MAGIC = b"ARROW1"
_TRAILER = struct.Struct("<i6s")
_BLOCK = struct.Struct("<qi4xq")
_END_OF_STREAM_BYTES = 8
_CONTINUATION = b"\xff\xff\xff\xff"


@dataclass(frozen=True, slots=True)
class Block:
    """Where one record batch lies in the file: its message, then its body.

    Attributes:
        position: byte position of the message in the file.
        metadata_bytes: length of the message with its prefix and padding.
        body_bytes: length of the buffers behind it.
    """

    position: int
    metadata_bytes: int
    body_bytes: int


def footer_bytes(tail: memoryview) -> int:
    """Return how many bytes at the end of the file hold its footer, trailer included.

    Args:
        tail: the last ten bytes of the file, or more.

    Raises:
        ValueError: they are not the end of an Arrow file.
    """
    if len(tail) < _TRAILER.size:
        raise ValueError("too short for an Arrow file")
    length, magic = _TRAILER.unpack_from(tail, len(tail) - _TRAILER.size)
    if magic != _MAGIC or length <= 0:
        raise ValueError("does not end as an Arrow file does")
    return int(length) + _TRAILER.size


def read_blocks(footer: memoryview) -> list[Block]:
    """Return the record batch blocks that a footer lists.

    Args:
        footer: the last `footer_bytes` bytes of the file.

    Raises:
        ValueError: the footer is damaged.
    """
    try:
        table = _Table.root(footer)
        vector = table.indirect(3)
        if vector is None:
            return []
        (count,) = struct.unpack_from("<I", footer, vector)
        if count > len(footer) // _BLOCK.size:
            raise ValueError(f"footer of {len(footer)} bytes claims {count} blocks")
        blocks = footer[vector + 4 : vector + 4 + _BLOCK.size * count]
        if len(blocks) != _BLOCK.size * count:
            raise ValueError(f"footer ends within its {count} blocks")
        return [Block(*fields) for fields in _BLOCK.iter_unpack(blocks)]
    except (struct.error, IndexError) as error:
        raise ValueError(f"damaged footer: {error}") from None


def check_blocks(blocks: list[Block], footer_position: int) -> None:
    """Check that a file's blocks lie one behind the other, up to its footer.

    No checksum covers the footer: a wrong count or position would drop batches in silence.

    Raises:
        ValueError: they do not.
    """
    ends = [block.position + block.metadata_bytes + block.body_bytes for block in blocks]
    expected = [block.position for block in blocks[1:]]
    if blocks and ends != [*expected, footer_position - _END_OF_STREAM_BYTES]:
        raise ValueError("the footer's blocks do not cover the file")


def is_compressed(message: memoryview) -> bool:
    """Return whether the buffers of a record batch are compressed.

    Args:
        message: the first ``metadata_bytes`` bytes of a block.

    Raises:
        ValueError: the message is damaged.
    """
    try:
        table = _message(message)
        batch = table.indirect(2)
        return batch is not None and _Table(table.buffer, batch).indirect(3) is not None
    except (struct.error, IndexError) as error:
        raise ValueError(f"damaged message: {error}") from None


def read_custom_metadata(message: memoryview, wanted: bytes) -> bytes | None:
    """Return the value of ``wanted`` in an encapsulated message's custom metadata.

    Args:
        message: the first ``metadata_bytes`` bytes of a block.
        wanted: the key.

    Raises:
        ValueError: the message is damaged.
    """
    try:
        table = _message(message)
        vector = table.indirect(4)
        if vector is None:
            return None
        buffer = table.buffer
        (count,) = struct.unpack_from("<I", buffer, vector)
        for index in range(min(count, 1024)):
            slot = vector + 4 + 4 * index
            entry = _Table(buffer, slot + struct.unpack_from("<I", buffer, slot)[0])
            if entry.text(0) == wanted:
                return entry.text(1)
        return None
    except (struct.error, IndexError) as error:
        raise ValueError(f"damaged message: {error}") from None


def _message(message: memoryview) -> _Table:
    prefix = 8 if bytes(message[:4]) == _CONTINUATION else 4
    return _Table.root(message[prefix:])


class _Table:
    """A flatbuffers table: fields are found through its vtable."""

    def __init__(self, buffer: memoryview, position: int) -> None:
        self.buffer = buffer
        self._position = position
        self._vtable = position - struct.unpack_from("<i", buffer, position)[0]
        if self._vtable < 0:
            raise ValueError("vtable outside of the buffer")
        (self._vtable_bytes,) = struct.unpack_from("<H", buffer, self._vtable)

    @classmethod
    def root(cls, buffer: memoryview) -> _Table:
        return cls(buffer, struct.unpack_from("<I", buffer, 0)[0])

    def indirect(self, field: int) -> int | None:
        """Return where the vector, string or table in this field begins."""
        entry = 4 + 2 * field
        if entry >= self._vtable_bytes:
            return None
        (offset,) = struct.unpack_from("<H", self.buffer, self._vtable + entry)
        if not offset:
            return None
        at = self._position + offset
        return int(at + struct.unpack_from("<I", self.buffer, at)[0])

    def text(self, field: int) -> bytes:
        at = self.indirect(field)
        if at is None:
            return b""
        (length,) = struct.unpack_from("<I", self.buffer, at)
        return bytes(self.buffer[at + 4 : at + 4 + length])
