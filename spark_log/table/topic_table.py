"""The state of a partition in one version of its topic's table: files, start and end.

In the Delta log: an ``add`` for each file, whose path is ``<partition directory>/<name>.parquet``;
three ``txn`` actions for each partition, whose ``version`` is its start, its end, and the
generation of its compaction; and the setting, in the table's properties. The API of every reader
has them, and checkpoints keep them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from spark_log.delta import DataFile, SetTransaction, TableState
from spark_log.log.files import SegmentName

PARQUET_SUFFIX: Final = ".parquet"

SETTING_PROPERTY: Final = "sparkLog.setting"
"""The table property with the setting, as JSON: the policy, and the offset that set it."""

_TRANSACTIONS: Final = ("start", "end", "compaction")


class CleanupPolicy(StrEnum):
    """The way in which a table follows its log; ``NONE`` (``table.format=none``): not at all."""

    NONE = "none"
    DELETE = "delete"
    COMPACT = "compact"


@dataclass(frozen=True, slots=True)
class TableSetting:
    """The topic's settings, as a version of its table has them.

    Attributes:
        policy: ``NONE`` without a table; else ``cleanup.policy`` of the topic.
        metadata_offset: offset of the metadata log's record that set it; -1 for the default. A
            setting replaces those with a lower offset.
    """

    policy: CleanupPolicy = CleanupPolicy.NONE
    metadata_offset: int = -1

    def to_property(self) -> str:
        """Return the value of `SETTING_PROPERTY`."""
        return json.dumps({"policy": self.policy.value, "metadataOffset": self.metadata_offset})

    def is_newer_than(self, known: TableSetting) -> bool:
        """Return whether this setting replaces another one (protocol B8)."""
        return self.metadata_offset > known.metadata_offset


@dataclass(frozen=True, slots=True)
class PartitionTable:
    """The state of a partition in one version.

    Attributes:
        setting: the table's setting.
        start: the first offset of the table. The first file may begin before it.
        end: the offset after the table's last. The table has every record of the log from its start
            to its end; of a compacted topic, the last record of each key before its end.
        files: the Parquet segments, in offset order. They do not overlap and leave nothing out.
        compaction: the generation of the compaction that ``files`` are all files of; 0 without one.
    """

    setting: TableSetting = TableSetting()
    start: int = 0
    end: int = 0
    files: tuple[SegmentName, ...] = ()
    compaction: int = 0

    @property
    def is_compacted(self) -> bool:
        """Whether the table has one row for each key."""
        return bool(self.compaction) or not self.files

    def with_file(self, name: SegmentName, replaced: Sequence[SegmentName]) -> PartitionTable:
        """Return the partition with one more file, in place of others."""
        files = [*(each for each in self.files if each not in replaced), name]
        files.sort(key=lambda each: each.base_offset)
        return replace(self, files=tuple(files), end=max(self.end, end_offset(name)))

    def fits(self, name: SegmentName, overlapped: Sequence[SegmentName]) -> bool:
        """Return whether a segment overlaps files as a whole, and leaves no gap before it.

        Args:
            name: the segment.
            overlapped: the files of this version that it overlaps, in offset order (protocol B2).
        """
        first, end = max(name.base_offset, self.start), end_offset(name)
        if not overlapped:
            return first == self.end
        begins = max(overlapped[0].base_offset, self.start) == first
        ends = end_offset(overlapped[-1]) == end or end > self.end
        return begins and ends

    def has_compaction(self, generation: int) -> bool:
        """Return whether the files are of this compaction or a later one (protocol B7)."""
        return generation <= self.compaction


def end_offset(name: SegmentName) -> int:
    """Return the offset after the last that a rewritten segment covers."""
    assert name.last_offset is not None
    return name.last_offset + 1


def parquet_path(directory: str, name: SegmentName) -> str:
    """Return the path of a Parquet segment in the table.

    Args:
        directory: the partition's directory, relative to the topic's.
        name: the segment's name.
    """
    return f"{directory}/{name.stem}{PARQUET_SUFFIX}"


def parse_setting(state: TableState) -> TableSetting:
    """Return the setting in a table's properties; the default without one."""
    text = state.configuration.get(SETTING_PROPERTY)
    if text is None:
        return TableSetting()
    found = json.loads(text)
    return TableSetting(CleanupPolicy(found["policy"]), int(found["metadataOffset"]))


def parse_partition(
    state: TableState, topic_id: str, partition: int, directory: str
) -> PartitionTable:
    """Return a partition in a state of its table.

    Args:
        state: the state of the table.
        topic_id: the topic's id.
        partition: the partition's number.
        directory: the partition's directory, relative to the topic's.
    """
    files = [
        name
        for path in state.files
        if path.startswith(f"{directory}/") and path.endswith(PARQUET_SUFFIX)
        if (name := SegmentName.parse(f"{path[len(directory) + 1 : -len(PARQUET_SUFFIX)]}.log"))
        if name.generation
    ]
    start, end, compaction = (
        0 if found is None else found.version
        for what in _TRANSACTIONS
        for found in [state.transaction(app_id(topic_id, partition, what))]
    )
    files.sort(key=lambda name: name.base_offset)
    return PartitionTable(parse_setting(state), start, end, tuple(files), compaction)


def changes(
    before: PartitionTable,
    after: PartitionTable,
    *,
    topic_id: str,
    partition: int,
    directory: str,
    data_files: Mapping[SegmentName, DataFile],
    time_ms: int,
) -> Sequence[Mapping[str, object]]:
    """Return the actions that turn one version of a partition into the next.

    The setting is a property of the whole table, so its action is the caller's.

    Args:
        before: the partition in the newest version.
        after: the partition in the next version.
        topic_id: the topic's id.
        partition: the partition's number.
        directory: the partition's directory, relative to the topic's.
        data_files: size and statistics of the files that only one of the two has.
        time_ms: the time that Delta's history shows.
    """
    removed = [name for name in before.files if name not in after.files]
    added = [name for name in after.files if name not in before.files]
    # Merges that replace merges hold the same rows; a compaction leaves rows out.
    is_same = not any(name.is_compacted for name in (*removed, *added))
    is_change = not is_same or (before.start, before.end) != (after.start, after.end)
    return [
        *(data_files[name].to_remove(time_ms, is_change=is_change) for name in removed),
        *(data_files[name].to_add(time_ms, is_new=is_change) for name in added),
        *(
            SetTransaction(
                app_id(topic_id, partition, what), getattr(after, what), time_ms
            ).to_action()
            for what in _TRANSACTIONS
        ),
    ]


def app_id(topic_id: str, partition: int, what: str) -> str:
    """Return the ``appId`` of a ``txn`` action of a partition.

    Args:
        topic_id: the topic's id.
        partition: the partition's number.
        what: the meaning of its ``version``: ``start``, ``end``, or ``compaction``.
    """
    return f"spark_log/{topic_id}/{partition}/{what}"
