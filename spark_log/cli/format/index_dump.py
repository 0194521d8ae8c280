"""The entries of an index file, each checked against the segment of the index."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from spark_log.cli.format.segment_dump import SegmentDump
from spark_log.errors import CorruptRecordError
from spark_log.log import KeyIndex, OffsetIndex, TimeIndex
from spark_log.log.files import SegmentName
from spark_log.record import ints_of, times_us_of
from spark_log.storage import open_store


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """An entry of an offset index (``position``), a time index or a key index (``timestamp_us``).

    Attributes:
        offset: the absolute offset.
        position: the position of a block in the segment file; None in a time index.
        timestamp_us: the largest timestamp up to the offset, in a key index that of the record;
            None in an offset index.
        is_valid: whether the entry agrees with the segment; None without a segment file.
    """

    offset: int
    position: int | None
    timestamp_us: int | None
    is_valid: bool | None


@dataclass(frozen=True, slots=True)
class IndexDump:
    """Content of an index file.

    Attributes:
        entries: all entries, in order.
        problem: the fault of its checksum or of the order of its entries; None without one.
    """

    entries: list[IndexEntry]
    problem: str | None


def read_index(path: Path, name: SegmentName) -> IndexDump:
    """Read an index file.

    Args:
        path: the ``.index``, ``.timeindex`` or ``.keyindex`` file.
        name: name of its segment. The segment file, and the offset index that a time index was
            made with, are expected in the same directory; both may be missing.

    Raises:
        CorruptRecordError: the size of the file is not that of an index.
    """
    segment = path.with_name(name.file_name)
    dump = SegmentDump(segment, name) if segment.exists() else None
    try:
        try:
            return IndexDump(_entries(path, name, dump, is_checked=True), None)
        except ValueError as error:
            return IndexDump(_entries(path, name, dump, is_checked=False), str(error))
    except ValueError as error:
        raise CorruptRecordError(
            f"{path}: {error}. Delete the file: an index is rebuilt from its segment",
            path=str(path),
        ) from None


def _entries(
    path: Path, name: SegmentName, dump: SegmentDump | None, *, is_checked: bool
) -> list[IndexEntry]:
    store = open_store(path.absolute().parent)
    if path.name == name.key_index:
        append_id = dump.append_id if dump is not None and is_checked else None
        return list(_key_entries(KeyIndex(store, "", name, append_id), name))
    data = store.open_buffer(path.name)
    if path.name == name.index:
        append_id = dump.append_id if dump is not None and is_checked else None
        return _offset_entries(OffsetIndex.from_bytes(name.base_offset, data, append_id), dump)
    offsets = path.with_name(name.index)
    seed = pa.py_buffer(offsets.read_bytes()) if offsets.exists() and is_checked else None
    return _time_entries(TimeIndex.from_bytes(name.base_offset, data, seed), dump)


def _offset_entries(index: OffsetIndex, dump: SegmentDump | None) -> list[IndexEntry]:
    starts = {} if dump is None else dict(dump.headers())
    return [
        IndexEntry(
            offset=entry.offset,
            position=entry.position,
            timestamp_us=None,
            is_valid=None
            if dump is None
            else entry.position in starts
            and dump.base_offset + starts[entry.position][0].base_offset_delta == entry.offset,
        )
        for entry in index.entries()
    ]


def _time_entries(index: TimeIndex, dump: SegmentDump | None) -> list[IndexEntry]:
    headers = [] if dump is None else [one for _, batch in dump.headers() for one in batch]
    bases = [header.base_offset_delta for header in headers]

    def is_valid(offset: int, timestamp_us: int) -> bool | None:
        if dump is None:
            return None
        at = bisect_right(bases, offset - dump.base_offset) - 1
        return at >= 0 and headers[at].max_timestamp_us == timestamp_us

    return [
        IndexEntry(
            offset=entry.offset,
            position=None,
            timestamp_us=entry.timestamp_us,
            is_valid=is_valid(entry.offset, entry.timestamp_us),
        )
        for entry in index.entries()
    ]


def _key_entries(index: KeyIndex, name: SegmentName) -> Iterator[IndexEntry]:
    """Yield the records of a key index, in the order of the hashes of their keys."""
    assert name.last_offset is not None
    for rows in index.blocks():
        offsets = ints_of(rows.column("offset"), np.int64).tolist()
        for offset, timestamp_us in zip(offsets, times_us_of(rows).tolist(), strict=True):
            is_valid = name.base_offset <= offset <= name.last_offset
            yield IndexEntry(offset, None, timestamp_us, is_valid)
