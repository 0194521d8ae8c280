"""Which file has which name: so that a segment under another's name is noticed.

A plain segment does not hold its base offset (DESIGN.md, 3.1): who puts another segment of the
partition under its name, of as many records, makes a log that looks whole. But each has an append
id of its own (ADR 3), which a snapshot keeps; and no two segments of the live log have the same.

Plain segments only. A rewritten one holds its name; and of two mergers that make the same one, one
puts it, and both know what it holds.
"""

from __future__ import annotations

from collections.abc import Iterable
from threading import Lock
from typing import Final

from spark_log.errors import CorruptRecordError
from spark_log.log.file_names import SegmentName
from spark_log.log.snapshot.snapshot import SegmentSummary

_REMEMBERED: Final = 4_096
"""Segments that were opened; those before them are forgotten."""


class SegmentIdentities:
    """The append ids of a partition's live plain segments, as far as known. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._ids: dict[SegmentName, str] = {}
        self._names: dict[str, SegmentName] = {}
        self._opened: dict[str, SegmentName] = {}

    def load(self, summaries: Iterable[SegmentSummary]) -> None:
        """Take in what a snapshot says of segments; what an older one said is forgotten."""
        ids: dict[SegmentName, str] = {}
        names: dict[str, SegmentName] = {}
        for each in summaries:
            if each.append_id and each.name.last_offset is None:
                ids[each.name] = each.append_id
                names.setdefault(each.append_id, each.name)
        with self._lock:
            self._ids, self._names = ids, names

    def check(self, path: str, name: SegmentName, append_id: str) -> None:
        """Check that a segment of the live log is the one that got this name.

        Args:
            path: of its file.
            name: of its file.
            append_id: that it holds.

        Raises:
            CorruptRecordError: it is another.
        """
        if not append_id or name.last_offset is not None:
            return
        with self._lock:
            expected = self._ids.get(name, append_id)
            other = self._names.get(append_id, self._opened.get(append_id, name))
            if expected == append_id and other == name:
                self._opened[append_id] = name
                if len(self._opened) > _REMEMBERED:
                    del self._opened[next(iter(self._opened))]
                return
        if other != name:
            what = f"holds the same append as {other.log}"
        else:
            what = f"holds the append {append_id}, and a snapshot tells of {expected} at its name"
        raise CorruptRecordError(
            f"{path}: {what}: a file was copied to another's name. Restore the one that was there, "
            f"or read past it by seeking",
            path=path,
        )
