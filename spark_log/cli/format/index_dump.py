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
from spark_log.record import murmur2_of_keys
from spark_log.storage import open_store


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """An entry of an offset index (``position``), a time index (``timestamp_us``) or a key index.

    Attributes:
        offset: the absolute offset; None in a key index without a segment file.
        position: the position of a block in the segment file; None in other indexes.
        timestamp_us: the largest timestamp up to the offset; None in other indexes.
        is_valid: whether the entry agrees with the segment; None without a segment file.
        row: the number of the record in the segment, control records not counted; None in other
            indexes.
        key_hash: the murmur2 hash of the record's key; None in other indexes.
    """

    offset: int | None
    position: int | None
    timestamp_us: int | None
    is_valid: bool | None
    row: int | None = None
    key_hash: int | None = None


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
        return list(_key_entries(KeyIndex.open(store, "", name, append_id), dump))
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


def _key_entries(index: KeyIndex, dump: SegmentDump | None) -> Iterator[IndexEntry]:
    """Yield the entries of a key index, in the order of the hashes."""
    offsets, hashes = (None, None) if dump is None else _keys_of(dump)
    for key_hashes, rows in index.entries():
        for key_hash, row in zip(key_hashes.tolist(), rows.tolist(), strict=True):
            if offsets is None or hashes is None:
                yield IndexEntry(None, None, None, None, row, key_hash)
                continue
            is_known = row < len(offsets)
            offset = int(offsets[row]) if is_known else None
            is_valid = is_known and int(hashes[row]) == key_hash
            yield IndexEntry(offset, None, None, is_valid, row, key_hash)


def _keys_of(dump: SegmentDump) -> tuple[np.ndarray, np.ndarray]:
    """Return the offsets of all rows of a segment, and the hashes of their keys."""
    offsets, hashes = [np.empty(0, np.int64)], [np.empty(0, np.uint32)]
    for batch in dump.batches():
        header, records = batch.header, batch.records
        if header is None or header.is_control:
            continue
        if records is None:  # damaged: rows keep their numbers
            offsets.append(np.full(header.record_count, -1))
            hashes.append(np.zeros(header.record_count, np.uint32))
        else:
            offsets.append(records.offsets)
            hashes.append(murmur2_of_keys(records.records.column("key")))
    return np.concatenate(offsets), np.concatenate(hashes)
