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
from itertools import pairwise
from typing import Final

import numpy as np
from google_crc32c import extend

from spark_log.record.batch_header import (
    HEADER_DTYPE,
    NO_PRODUCER_ID,
    BatchHeader,
    header_array,
    unpack_headers,
)
from spark_log.util import lazy

ENTRIES_KEY: Final = b"spark_log.entries"
"""The key of the directory."""

_ENTRY: Final = np.dtype(
    [("partition", "<i4"), ("ordinal", "<i4"), ("header", f"V{HEADER_DTYPE.itemsize}")]
)
_SUM: Final = struct.Struct("<I")
_HEADER_BYTES: Final = 400
"""Approximate memory of a header as an object."""


class EntryDirectory:
    """The entries of an object, in the order of its rows.

    Who needs few fields of the headers takes them from `array`: as objects they take longer than
    all else that a writer does with the entries of others.

    Attributes:
        partitions: the partition of each entry, int32; ascending.
        ordinals: the number of the Arrow batch that has each entry, int32; ascending.
        array: the header of each entry, of `HEADER_DTYPE`. Its offset deltas count the rows of the
            object.
    """

    def __init__(self, partitions: np.ndarray, ordinals: np.ndarray, packed: bytes) -> None:
        """Take the entries of an object.

        Args:
            partitions: the partition of each entry, int32.
            ordinals: the number of the Arrow batch that has each entry, int32.
            packed: consecutive results of `BatchHeader.pack`.

        Raises:
            ValueError: a header is of unknown magic.
        """
        self.partitions = partitions
        self.ordinals = ordinals
        self.array = header_array(packed)

    @classmethod
    def of(
        cls, partitions: Sequence[int], ordinals: Sequence[int], headers: Sequence[BatchHeader]
    ) -> EntryDirectory:
        """Return the directory of entries with these headers."""
        packed = b"".join(header.pack() for header in headers)
        made = cls(np.array(partitions, np.int32), np.array(ordinals, np.int32), packed)
        made.__dict__["headers"] = headers
        return made

    def __len__(self) -> int:
        return len(self.array)

    @lazy
    def headers(self) -> Sequence[BatchHeader]:
        """The header of each entry."""
        return unpack_headers(self.array.tobytes())

    @property
    def memory_bytes(self) -> int:
        """Approximate memory that the directory holds."""
        headers_bytes = _HEADER_BYTES * len(self) if "headers" in self.__dict__ else 0
        return len(self) * _ENTRY.itemsize + headers_bytes

    @property
    def is_last(self) -> bool:
        """Whether the object ends its stripe: its entries are barriers."""
        first = self.array[0]
        is_control = bool(first["attributes"] & BatchHeader.CONTROL_BIT)
        return is_control and int(first["producer_id"]) == NO_PRODUCER_ID

    @property
    def row_count(self) -> int:
        """Number of rows of the object."""
        return int(self.array[-1]["last_offset_delta"]) + 1

    def entries_of(self, partition: int) -> range:
        """Return the numbers of a partition's entries, which follow each other."""
        first, behind = np.searchsorted(self.partitions, [partition, partition + 1])
        return range(int(first), int(behind))

    def firsts(self) -> np.ndarray:
        """Return the number of the first entry of each partition, int64."""
        is_first = np.ones(len(self), np.bool_)
        np.not_equal(self.partitions[1:], self.partitions[:-1], out=is_first[1:])
        return np.flatnonzero(is_first)

    def groups(self) -> Iterable[tuple[int, range]]:
        """Yield each partition, and the numbers of its entries."""
        firsts = self.firsts()
        ranges = pairwise([*firsts.tolist(), len(self)])
        for partition, (first, behind) in zip(
            self.partitions[firsts].tolist(), ranges, strict=True
        ):
            yield partition, range(first, behind)

    def encode(self) -> bytes:
        """Return the value under `ENTRIES_KEY`."""
        entries = np.empty(len(self), _ENTRY)
        entries["partition"], entries["ordinal"] = self.partitions, self.ordinals
        entries["header"] = self.array.view(_ENTRY["header"])
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
    directory = EntryDirectory(partitions, ordinals, entries["header"].tobytes())
    ends = directory.array["last_offset_delta"].astype(np.int64) + 1
    firsts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
    counts = directory.array["record_count"]
    are_following = (directory.array["base_offset_delta"] == firsts) & (ends - firsts == counts)
    if not (are_following & (counts > 0)).all():
        raise ValueError("the entries do not follow each other")
    steps = np.diff(ordinals)
    is_ascending = partitions[0] >= 0 and (np.diff(partitions) >= 0).all()
    is_whole = ordinals[0] == 0 and ordinals[-1] == arrow_batches - 1
    if not (is_ascending and is_whole) or (steps < 0).any() or (steps > 1).any():
        raise ValueError("the entries are not in the order of the records")
    return directory
