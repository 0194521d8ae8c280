"""Detection of a segment file that has the name of another segment.

A plain segment does not contain its base offset (docs/format.md). If its file is replaced by
another segment of the partition with the same number of records, the log looks complete. But each
segment has an append id of its own (docs/adr/0003), which snapshots keep, and no two segments of
the live log have the same id.

This concerns plain segments alone: a rewritten segment contains its name. Two mergers may create
the same rewritten segment; then one of the two files gets the name, and both have the same content.
"""

from __future__ import annotations

from collections.abc import Iterable
from threading import Lock
from typing import Final

from spark_log.errors import CorruptRecordError
from spark_log.log.cache_budget import LOG_CACHES, LogCache
from spark_log.log.files import SegmentName
from spark_log.log.segment import SegmentSummary

_ID_BYTES: Final = 250
"""Approximate memory of one append id and its base offset, in a dictionary."""


class SegmentIdentities(LogCache):
    """The known append ids of a partition's live plain segments. Thread-safe.

    These are the ids of the newest snapshot, and of the segments that were opened. If the budget of
    the process has no room for them (`log.cache_budget`), they are forgotten, and fewer copies are
    noticed.

    Attributes:
        snapshot_offset: offset of the snapshot that was loaded; 0 without one.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._share = LOG_CACHES.share(self)
        self._forget()

    def _forget(self) -> None:
        self.snapshot_offset = 0
        self._ids: dict[int, str] = {}
        self._bases: dict[str, int] = {}
        self._opened: dict[str, int] = {}

    def drop(self) -> None:
        """Forget all ids."""
        with self._lock:
            self._forget()

    def load(self, offset: int, summaries: Iterable[SegmentSummary]) -> None:
        """Load the append ids of a snapshot, which replace those of an older snapshot.

        Args:
            offset: the snapshot's offset. If this snapshot is loaded already, nothing is done.
            summaries: the summaries of the snapshot's segments.
        """
        if offset and offset == self.snapshot_offset:
            return
        ids: dict[int, str] = {}
        bases: dict[str, int] = {}
        for each in summaries:
            if each.append_id and each.name.last_offset is None:
                ids[each.name.base_offset] = each.append_id
                bases.setdefault(each.append_id, each.name.base_offset)
        with self._lock:
            self.snapshot_offset, self._ids, self._bases = offset, ids, bases
        self._hold()

    def _hold(self) -> None:
        count = len(self._ids) + len(self._bases) + len(self._opened)
        self._share.hold(count * _ID_BYTES)

    def check(self, path: str, name: SegmentName, append_id: str) -> None:
        """Check that a segment of the live log is the one that was appended under its name.

        Args:
            path: the file's path, relative to the store's root.
            name: parsed name of the file.
            append_id: the append id in the file.

        Raises:
            CorruptRecordError: the file is another segment.
        """
        if not append_id or name.last_offset is not None:
            return
        base_offset = name.base_offset
        with self._lock:
            expected = self._ids.get(base_offset, append_id)
            other = self._bases.get(append_id, self._opened.get(append_id, base_offset))
            is_right = expected == append_id and other == base_offset
            if is_right:
                self._opened[append_id] = base_offset
        if is_right:
            self._hold()
            return
        if other != base_offset:
            what = f"holds the same append as {SegmentName(other).file_name}"
        else:
            what = f"holds the append {append_id}, but by a snapshot this name has {expected}"
        raise CorruptRecordError(
            f"{path}: {what}: its file was replaced by a copy of another one. Restore the original "
            f"file, or seek past it",
            path=path,
        )
