"""Finds exchanged segment files by their indexes.

A plain segment does not contain its name, so two plain segments that were exchanged look complete.
But an offset index ends in a checksum over the append id of the file that it was made for
(docs/format.md).
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from spark_log.errors import CorruptRecordError, NotFoundError
from spark_log.log.directory import PartitionDirectory
from spark_log.log.files import SegmentName
from spark_log.log.segment import OffsetIndex


class IndexOwners:
    """Tells which segment of a partition an offset index was made for."""

    def __init__(self, directory: PartitionDirectory, names: Iterable[SegmentName]) -> None:
        """Open nothing yet.

        Args:
            directory: the partition's directory.
            names: the segments of the live log.
        """
        self._directory = directory
        self._names = [name for name in names if name.last_offset is None]
        self._append_ids: dict[SegmentName, str] | None = None

    def exchanged(self, name: SegmentName, index: pa.Buffer) -> SegmentName | None:
        """Return the segment whose file was exchanged with a segment's file; None without one.

        Args:
            name: the name of a segment whose offset index was not made for its file.
            index: content of this index.

        Returns:
            The segment that now has the file that the index was made for. None if that segment's
            own index fits its file: then the index alone was copied.
        """
        if self._append_ids is None:  # the first time
            self._append_ids = dict(self._read_append_ids())
        for other, append_id in self._append_ids.items():
            if other != name and _fits(index, append_id):
                try:
                    path = self._directory.file_path(other.index)
                    own = self._directory.store.open_buffer(path)
                except NotFoundError:
                    return None
                return None if _fits(own, append_id) else other
        return None

    def _read_append_ids(self) -> Iterable[tuple[SegmentName, str]]:
        for name in self._names:
            try:
                yield name, self._directory.open(name).append_id
            except (NotFoundError, CorruptRecordError):  # deleted since; or another finding
                continue


def _fits(index: pa.Buffer, append_id: str) -> bool:
    try:
        OffsetIndex.from_bytes(0, index, append_id)
    except ValueError:
        return False
    return True
