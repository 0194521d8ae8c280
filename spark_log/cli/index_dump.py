"""An index file, entry by entry, checked against the segment that it belongs to."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from spark_log.cli.segment_dump import SegmentDump
from spark_log.errors import CorruptRecordError
from spark_log.log.file_names import INDEX_SUFFIX, SegmentName
from spark_log.log.index_entries import read_entries
from spark_log.storage import open_store

_OFFSET_ENTRY: Final = np.dtype([("relative_offset", "<u4"), ("position", "<u4")])
_TIME_ENTRY: Final = np.dtype([("timestamp", "<i8"), ("relative_offset", "<u4")])


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """An entry of an offset index (``position``) or of a time index (``timestamp_us``).

    Attributes:
        offset: absolute.
        position: of a block in the segment file; None in a time index.
        timestamp_us: the largest up to the offset; None in an offset index.
        is_valid: whether the segment agrees; None without a segment.
    """

    offset: int
    position: int | None
    timestamp_us: int | None
    is_valid: bool | None


def read_index(path: Path, name: SegmentName) -> list[IndexEntry]:
    """Return the entries of an index file.

    Args:
        path: the ``.index`` or ``.timeindex`` file.
        name: of the segment it belongs to; the segment file is looked for beside it.

    Raises:
        CorruptRecordError: its size or its order shows that it is damaged.
    """
    is_offset_index = path.suffix == INDEX_SUFFIX
    data = open_store(path.absolute().parent).open_buffer(path.name)
    try:
        rows = read_entries(data, _OFFSET_ENTRY if is_offset_index else _TIME_ENTRY).tolist()
    except ValueError as error:
        raise CorruptRecordError(
            f"{path}: {error}. Delete it: indexes are derived", path=str(path)
        ) from None
    segment = path.with_name(name.log)
    headers = list(SegmentDump(segment, name).headers()) if segment.exists() else None
    if is_offset_index:
        starts = {position: header.base_offset_delta for position, header in headers or ()}
        return [
            IndexEntry(
                offset=name.base_offset + relative_offset,
                position=position,
                timestamp_us=None,
                is_valid=None if headers is None else starts.get(position) == relative_offset,
            )
            for relative_offset, position in rows
        ]
    bases = [header.base_offset_delta for _, header in headers or ()]
    latest = [header.max_timestamp_us for _, header in headers or ()]
    return [
        IndexEntry(
            offset=name.base_offset + relative_offset,
            position=None,
            timestamp_us=timestamp_us,
            is_valid=None
            if headers is None
            else latest[bisect_right(bases, relative_offset) - 1] == timestamp_us,
        )
        for timestamp_us, relative_offset in rows
    ]
