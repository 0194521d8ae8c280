"""The end of a Parquet segment: its footer has a checksum, which Parquet itself does not give it.

On storage, the last bytes of the file::

    4 bytes      CRC-32C of the segment's footer and of what follows it, little-endian
    4 bytes      ``SLFC``
    n bytes      the footer of the Parquet format
    4 bytes      n, little-endian
    4 bytes      ``PAR1``

Parquet readers find the footer from the end of the file, and nothing in it points at the eight
bytes before it. pyarrow does not survive every damaged footer, so it gets none before its checksum
was compared.
"""

from __future__ import annotations

import io
import struct
from typing import Final

import pyarrow as pa
from google_crc32c import extend

_MAGIC: Final = b"PAR1"
_TRAILER: Final = struct.Struct("<I4s")
_CHECKSUM: Final = struct.Struct("<I4s")
_CHECKSUM_MAGIC: Final = b"SLFC"


class FooterSink(io.RawIOBase):
    """A file for pyarrow's writer, which puts a checksum before the footer."""

    def __init__(self, sink: pa.NativeFile) -> None:
        """Begin at the start of a file.

        Args:
            sink: the file to write to.
        """
        self._sink = sink
        self._held: list[bytes] | None = None

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override] # pyarrow passes bytes alone
        """Write some bytes, or hold them."""
        if self._held is None:
            self._sink.write(data)
        else:
            self._held.append(bytes(data))
        return len(data)

    def hold(self) -> None:
        """Hold what is written from now on: the page index and the footer."""
        self._held = []

    def write_held(self) -> bytes:
        """Write what was held, with the checksum before the footer; return it without this."""
        tail = b"".join(self._held or ())
        self._held = None
        footer = footer_bytes(pa.py_buffer(tail))
        index, footer_and_trailer = tail[:-footer], tail[-footer:]
        self._sink.write(index)
        self._sink.write(_CHECKSUM.pack(extend(0, footer_and_trailer), _CHECKSUM_MAGIC))
        self._sink.write(footer_and_trailer)
        return tail


def footer_bytes(tail: pa.Buffer) -> int:
    """Return the size of a footer with what follows it.

    Args:
        tail: the last bytes of the file.

    Raises:
        ValueError: the bytes are not the end of a Parquet file.
    """
    if tail.size < _TRAILER.size:
        raise ValueError("is too short for a Parquet file")
    length, magic = _TRAILER.unpack(tail.slice(tail.size - _TRAILER.size).to_pybytes())
    if magic != _MAGIC:
        raise ValueError("does not end as a Parquet file does")
    return int(length) + _TRAILER.size


def checked_footer_bytes(tail: pa.Buffer) -> int:
    """Return the size of a footer with its checksum and what follows it.

    Args:
        tail: the last bytes of the file, or more.

    Raises:
        ValueError: the bytes are not the end of a Parquet file.
    """
    return footer_bytes(tail) + _CHECKSUM.size


def check_footer(tail: pa.Buffer) -> None:
    """Check the checksum of a footer.

    Args:
        tail: the last `checked_footer_bytes` of the file, or more.

    Raises:
        ValueError: the footer is damaged, or has no checksum.
    """
    footer = footer_bytes(tail)
    start = tail.size - footer
    if start < _CHECKSUM.size:
        raise ValueError("its footer is longer than the file")
    crc32c, magic = _CHECKSUM.unpack(
        tail.slice(start - _CHECKSUM.size, _CHECKSUM.size).to_pybytes()
    )
    if magic != _CHECKSUM_MAGIC:
        raise ValueError("its footer has no checksum, so it is not a segment")
    actual = extend(0, tail.slice(start))
    if actual != crc32c:
        raise ValueError(f"checksum of its footer is {actual:#010x}, expected {crc32c:#010x}")
