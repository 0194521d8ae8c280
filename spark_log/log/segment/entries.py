"""What both index files are: fixed-size entries whose fields strictly increase, and a checksum.

The checksum (CRC-32C, the file's last four bytes, little-endian) begins with what the index was
made from: of an offset index the segment's append id, of a time index the checksum of the offset
index that was made with it. So a damaged or short index is recognised, and so is a whole one of
another file that once had this name, or one half of a pair whose other half was made anew (ADR 5).
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
    """Return the index file with these entries; no bytes where there are none.

    Args:
        layout: of one entry.
        rows: the entries.
        seed: what the checksum begins with.
    """
    if not rows:
        return b""
    entries = np.array(rows, layout).tobytes()
    return entries + _CHECKSUM.pack(extend(extend(0, seed), entries))


def read_entries(data: pa.Buffer, layout: np.dtype[np.void], seed: bytes) -> np.ndarray:
    """Return an index file's entries, zero-copy.

    Args:
        data: the whole file.
        layout: of one entry.
        seed: what the checksum has to begin with.

    Raises:
        ValueError: it is damaged, or belongs to something else.
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
    """Return an index file's entries as they are, where nothing is there to check them by.

    Raises:
        ValueError: it is not of a size that an index has.
    """
    count, rest = divmod(data.size - _CHECKSUM.size, layout.itemsize)
    if count < 1 or rest:
        raise ValueError(
            f"{data.size} bytes are not entries of {layout.itemsize} bytes and a checksum of "
            f"{_CHECKSUM.size}"
        )
    return np.frombuffer(data, layout, count)


def checksum_of(data: pa.Buffer | bytes) -> bytes:
    """Return the four bytes of checksum that an index file ends in."""
    return bytes(memoryview(data)[-_CHECKSUM.size :])
