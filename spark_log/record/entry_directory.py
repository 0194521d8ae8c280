"""The directory of a stripe's object: the partition and the header of each of its batches.

On storage: in the ``custom_metadata`` of the object's last Arrow batch, which has no rows, under
`ENTRIES_KEY`. The value is the base64 of a CRC-32C, and of 61 little-endian bytes for each entry:
``partition i32, ordinal i32`` and the batch's header (`record.batch_header`). It lies at the end of
the file beside the footer, which has the position of each Arrow batch: one request reads both.
"""

from __future__ import annotations

import binascii
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from google_crc32c import extend

from spark_log.record.batch_header import (
    HEADER_DTYPE,
    NO_PRODUCER_ID,
    BatchHeader,
    unpack_headers,
)

ENTRIES_KEY: Final = b"spark_log.entries"
"""The key of the directory."""

_ENTRY: Final = np.dtype(
    [("partition", "<i4"), ("ordinal", "<i4"), ("header", f"V{HEADER_DTYPE.itemsize}")]
)
_SUM: Final = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class EntryDirectory:
    """The entries of an object, in the order of its rows.

    Attributes:
        partitions: the partition of each entry, int32; ascending.
        ordinals: the number of the Arrow batch that has each entry, int32; ascending.
        headers: the header of each entry. Its offset deltas count the rows of the object.
    """

    partitions: np.ndarray
    ordinals: np.ndarray
    headers: Sequence[BatchHeader]

    def __len__(self) -> int:
        return len(self.headers)

    @property
    def is_last(self) -> bool:
        """Whether the object ends its stripe: its entries are barriers."""
        header = self.headers[0]
        return header.is_control and header.producer_id == NO_PRODUCER_ID

    def entries_of(self, partition: int) -> range:
        """Return the numbers of a partition's entries, which follow each other."""
        first, behind = np.searchsorted(self.partitions, [partition, partition + 1])
        return range(int(first), int(behind))

    def groups(self) -> Iterable[tuple[int, range]]:
        """Yield each partition, and the numbers of its entries."""
        firsts = [0, *(np.flatnonzero(np.diff(self.partitions)) + 1).tolist(), len(self)]
        for first, behind in pairwise(firsts):
            yield int(self.partitions[first]), range(first, behind)


def encode_entries(
    partitions: Sequence[int], ordinals: Sequence[int], headers: Sequence[BatchHeader]
) -> bytes:
    """Return the value under `ENTRIES_KEY`.

    Args:
        partitions: the partition of each entry.
        ordinals: the number of the Arrow batch that has each entry.
        headers: the header of each entry.
    """
    entries = np.empty(len(headers), _ENTRY)
    entries["partition"], entries["ordinal"] = partitions, ordinals
    entries["header"] = [header.pack() for header in headers]
    packed = entries.tobytes()
    return binascii.b2a_base64(_SUM.pack(extend(0, packed)) + packed, newline=False)


def decode_entries(value: bytes, arrow_batches: int) -> EntryDirectory:
    """Return the directory in a value under `ENTRIES_KEY`.

    Args:
        value: the value.
        arrow_batches: number of Arrow batches with rows.

    Raises:
        ValueError: the directory is damaged, or its entries do not follow each other.
    """
    data = binascii.a2b_base64(value, strict_mode=True)
    packed = data[_SUM.size :]
    if not packed or len(packed) % _ENTRY.itemsize:
        raise ValueError(f"{len(data)} bytes are not a directory of entries")
    if data[: _SUM.size] != _SUM.pack(extend(0, packed)):
        raise ValueError("the checksum of the directory of entries does not fit")
    entries = np.frombuffer(packed, _ENTRY)
    partitions, ordinals = entries["partition"].copy(), entries["ordinal"].copy()
    headers = unpack_headers(entries["header"].tobytes())
    row = 0
    for header in headers:
        if header.base_offset_delta != row or header.has_gaps or not header.record_count:
            raise ValueError("the entries do not follow each other")
        row = header.last_offset_delta + 1
    steps = np.diff(ordinals)
    is_ascending = partitions[0] >= 0 and (np.diff(partitions) >= 0).all()
    is_whole = ordinals[0] == 0 and ordinals[-1] == arrow_batches - 1
    if not (is_ascending and is_whole) or (steps < 0).any() or (steps > 1).any():
        raise ValueError("the entries are not in the order of the records")
    return EntryDirectory(partitions, ordinals, headers)
