"""What both index files are: fixed-size entries whose fields strictly increase."""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def read_entries(data: pa.Buffer, layout: np.dtype[np.void]) -> np.ndarray:
    """Return an index file's entries, zero-copy.

    Args:
        data: the whole file.
        layout: of one entry.

    Raises:
        ValueError: its size or its order shows that it is damaged.
    """
    if data.size % layout.itemsize:
        raise ValueError(
            f"{data.size} bytes are not a whole number of {layout.itemsize}-byte entries"
        )
    entries = np.frombuffer(data, layout)
    for field in layout.names or ():
        if (entries[field][1:] <= entries[field][:-1]).any():
            raise ValueError(f"the entries' {field} does not strictly increase")
    return entries


def make_entries(layout: np.dtype[np.void], rows: list[tuple[int, int]]) -> bytes:
    """Return the index file with these entries."""
    return np.array(rows, layout).tobytes()
