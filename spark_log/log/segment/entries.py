"""The format of both index files: fixed-size entries with strictly increasing fields, a checksum.

The checksum is a CRC-32C, the last four bytes of the file, little-endian. Its seed names the source
of the index: the segment's append id for an offset index, the checksum of the offset index for the
time index that was written with it. This detects a damaged or short index, a complete
index of another segment of the same name, and a time index whose offset index was replaced
(docs/adr/0005).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from google_crc32c import extend

_CHECKSUM: Final = struct.Struct("<I")


def make_entries(layout: np.dtype[np.void], rows: Sequence[tuple[int, int]], seed: bytes) -> bytes:
    """Return the content of an index file; empty if there are no entries.

    Args:
        layout: the data type of one entry.
        rows: the values of the entries.
        seed: the seed of the checksum, which names the index's source.
    """
    if not rows:
        return b""
    entries = np.array(rows, layout).tobytes()
    return entries + _CHECKSUM.pack(extend(extend(0, seed), entries))


def read_entries(data: pa.Buffer, layout: np.dtype[np.void], seed: bytes) -> np.ndarray:
    """Return the entries of an index file, zero-copy.

    Args:
        data: the whole file.
        layout: the data type of one entry.
        seed: the seed of the checksum, which names the index's source.

    Raises:
        ValueError: the file is damaged, or was made for another segment or offset index.
    """
    entries = unchecked_entries(data, layout)
    content = data.slice(0, data.size - _CHECKSUM.size)
    (checksum,) = _CHECKSUM.unpack(checksum_of(data))
    actual = extend(extend(0, seed), content)
    if actual != checksum:
        raise ValueError(
            f"its checksum is {checksum:#010x} and should be {actual:#010x}: it is damaged, or was "
            f"made for another file"
        )
    for field in layout.names or ():
        if (entries[field][1:] <= entries[field][:-1]).any():
            raise ValueError(f"the entries' {field} does not strictly increase")
    return entries


def unchecked_entries(data: pa.Buffer, layout: np.dtype[np.void]) -> np.ndarray:
    """Return the entries of an index file, without a check of its checksum.

    Raises:
        ValueError: the file's size is not that of entries and a checksum.
    """
    count, rest = divmod(data.size - _CHECKSUM.size, layout.itemsize)
    if count < 1 or rest:
        raise ValueError(
            f"{data.size} bytes are not entries of {layout.itemsize} bytes and a checksum of "
            f"{_CHECKSUM.size}"
        )
    return np.frombuffer(data, layout, count)


def checksum_of(data: pa.Buffer | bytes) -> bytes:
    """Return the checksum of an index file: its last four bytes."""
    return bytes(memoryview(data)[-_CHECKSUM.size :])
