"""Detection of a segment file that has the name of another segment.

A plain segment does not contain its base offset (docs/format.md). So if its file is replaced by
another segment of the partition with as many records, the log looks complete. But each segment has
an append id of its own (docs/adr/0003), which snapshots keep, and no two segments of the live log
have the same one.

This concerns plain segments alone: a rewritten segment contains its name. Two mergers may create
the same rewritten segment; then one of the two files gets the name, and both have the same content.
"""

from __future__ import annotations

from collections.abc import Iterable
from threading import Lock
from typing import Final

from spark_log.errors import CorruptRecordError
from spark_log.log.file_names import SegmentName
from spark_log.log.snapshot import SegmentSummary

_MAX_OPENED: Final = 4_096
"""Opened segments whose append ids are kept; older ones are dropped."""


class SegmentIdentities:
    """The known append ids of a partition's live plain segments. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._ids: dict[SegmentName, str] = {}
        self._names: dict[str, SegmentName] = {}
        self._opened: dict[str, SegmentName] = {}

    def load(self, summaries: Iterable[SegmentSummary]) -> None:
        """Load the append ids of a snapshot, which replace those of an older snapshot."""
        ids: dict[SegmentName, str] = {}
        names: dict[str, SegmentName] = {}
        for each in summaries:
            if each.append_id and each.name.last_offset is None:
                ids[each.name] = each.append_id
                names.setdefault(each.append_id, each.name)
        with self._lock:
            self._ids, self._names = ids, names

    def check(self, path: str, name: SegmentName, append_id: str) -> None:
        """Check that a segment of the live log is the one that was appended under its name.

        Args:
            path: of the file.
            name: parsed name of the file.
            append_id: from the file.

        Raises:
            CorruptRecordError: it is another segment.
        """
        if not append_id or name.last_offset is not None:
            return
        with self._lock:
            expected = self._ids.get(name, append_id)
            other = self._names.get(append_id, self._opened.get(append_id, name))
            if expected == append_id and other == name:
                self._opened[append_id] = name
                if len(self._opened) > _MAX_OPENED:
                    del self._opened[next(iter(self._opened))]
                return
        if other != name:
            what = f"holds the same append as {other.log}"
        else:
            what = f"holds the append {append_id}, but a snapshot tells of {expected} at its name"
        raise CorruptRecordError(
            f"{path}: {what}: its file was replaced by a copy of another one. Restore the original "
            f"file, or seek past it",
            path=path,
        )
