"""The state of a partition in one version of its topic's table: files, start and end.

In the Delta log: an ``add`` for each file, whose path is ``<partition directory>/<name>.parquet``;
three ``txn`` actions for each partition, whose ``version`` is its start, its end, and the
generation of its compaction; and the setting, in the table's properties. The API of every reader
has them, and checkpoints keep them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from spark_log.delta import DataFile, SetTransaction, TableState, Version
from spark_log.log.files import SegmentName

SETTING_PROPERTY: Final = "sparkLog.setting"
"""The table property with the setting, as JSON: policy, typed columns, the offset that set it."""

COLUMNS_TAG: Final = "sparkLog.columns"
"""The tag of a file that identifies its typed columns; without it the file has none."""

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
        value_format: ``table.value.format`` of the topic; ``none`` without typed columns.
        value_schema: ``table.schema`` of the topic; empty without typed columns.
    """

    policy: CleanupPolicy = CleanupPolicy.NONE
    metadata_offset: int = -1
    value_format: str = "none"
    value_schema: str = ""

    def to_property(self) -> str:
        """Return the value of `SETTING_PROPERTY`."""
        found = {"policy": self.policy.value, "metadataOffset": self.metadata_offset}
        if self.value_format != "none":
            found |= {"valueFormat": self.value_format, "valueSchema": self.value_schema}
        return json.dumps(found)

    def says_the_same_as(self, other: TableSetting) -> bool:
        """Return whether two settings differ at most in the record that set them."""
        return replace(self, metadata_offset=other.metadata_offset) == other

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
    return f"{directory}/{name.file_name}"


def parse_setting(state: TableState) -> TableSetting:
    """Return the setting in a table's properties; the one before the first if there is none."""
    return setting_of(state.configuration)


def setting_of(configuration: Mapping[str, str]) -> TableSetting:
    """Return the setting in table properties; the one before the first if there is none."""
    text = configuration.get(SETTING_PROPERTY)
    if text is None:
        return TableSetting()
    found = json.loads(text)
    return TableSetting(
        CleanupPolicy(found["policy"]),
        int(found["metadataOffset"]),
        found.get("valueFormat", "none"),
        found.get("valueSchema", ""),
    )


def parse_partition(
    state: TableState, topic_id: str, partition: int, directory: str
) -> PartitionTable:
    """Return what a state of a table says of a partition.

    Args:
        state: the state of the table.
        topic_id: the topic's id.
        partition: the partition's number.
        directory: the partition's directory, relative to the topic's. Files in another one, which
            the partition had before, do not count.
    """
    return parse_partitions(state, topic_id, {partition: directory})[partition]


def parse_partitions(
    state: TableState, topic_id: str, directories: Mapping[int, str]
) -> dict[int, PartitionTable]:
    """Return what a state of a table says of partitions, by their numbers.

    Args:
        state: the state of the table.
        topic_id: the topic's id.
        directories: the partitions' directories, relative to the topic's.
    """
    files: dict[str, list[SegmentName]] = {directory: [] for directory in directories.values()}
    for path in state.files:
        directory, _, file_name = path.rpartition("/")
        if directory in files and (name := table_file(file_name)) is not None:
            files[directory].append(name)
    setting = parse_setting(state)
    return {
        partition: _partition(setting, files[directory], state.transaction, topic_id, partition)
        for partition, directory in directories.items()
    }


def table_file(file_name: str) -> SegmentName | None:
    """Return the Parquet segment that a file name in a partition's directory is; None if none."""
    name = SegmentName.parse(file_name)
    return name if name is not None and name.is_parquet else None


def _partition(
    setting: TableSetting,
    files: Iterable[SegmentName],
    transaction: Callable[[str], SetTransaction | None],
    topic_id: str,
    partition: int,
) -> PartitionTable:
    start, end, compaction = (
        0 if found is None else found.version
        for what in _TRANSACTIONS
        for found in [transaction(app_id(topic_id, partition, what))]
    )
    names = tuple(sorted(files, key=lambda name: name.base_offset))
    if not names:
        # The partition's replica has got another directory: what lies in it is added anew.
        end, compaction = start, 0
    return PartitionTable(setting, start, end, names, compaction)


def partition_history(
    state: TableState,
    versions: Iterable[Version],
    topic_id: str,
    partition: int,
    directory: str,
) -> list[PartitionTable]:
    """Return what versions of a table say of a partition, without repeating what is the same.

    Args:
        state: the state after the version before the others. It counts, too.
        versions: the next versions, in order.
        topic_id: the topic's id.
        partition: the partition's number.
        directory: the partition's directory, relative to the topic's.
    """
    history = [parse_partition(state, topic_id, partition, directory)]
    names = {parquet_path(directory, name): name for name in history[0].files}
    app_ids = [app_id(topic_id, partition, what) for what in _TRANSACTIONS]
    known = {app: state.transaction(app) for app in app_ids}
    setting = history[0].setting
    for version in versions:
        for path in version.removed:
            names.pop(path, None)
        for file in version.added:
            parent, _, file_name = file.path.rpartition("/")
            if parent == directory and (name := table_file(file_name)) is not None:
                names[file.path] = name
        known.update((each.app_id, each) for each in version.transactions if each.app_id in known)
        if version.metadata is not None:
            setting = setting_of(version.metadata.configuration)
        table = _partition(setting, names.values(), known.get, topic_id, partition)
        if table != history[-1]:
            history.append(table)
    return history


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
    same = _with_same_rows(removed, added, data_files)
    return [
        *(data_files[name].to_remove(time_ms, is_change=name not in same) for name in removed),
        *(data_files[name].to_add(time_ms, is_new=name not in same) for name in added),
        *(
            SetTransaction(
                app_id(topic_id, partition, what), getattr(after, what), time_ms
            ).to_action()
            for what in _TRANSACTIONS
        ),
    ]


def _with_same_rows(
    removed: Sequence[SegmentName],
    added: Sequence[SegmentName],
    data_files: Mapping[SegmentName, DataFile],
) -> set[SegmentName]:
    """Return the files whose rows other files take over, or were in others: Delta's ``dataChange``.

    A merge has the rows of the merges that it replaces, if it covers the same offsets and has the
    same typed columns. One that ends behind them has new rows, and those that it replaces are
    changed like it: a stream of the table must see that rows come again. A compaction leaves rows
    out.
    """
    same: set[SegmentName] = set()
    for name in added:
        replaced = [
            each
            for each in removed
            if name.base_offset <= each.base_offset and end_offset(each) <= end_offset(name)
        ]
        if not replaced or any(each.is_compacted for each in (name, *replaced)):
            continue
        covered = replaced[0].base_offset, replaced[-1].last_offset
        columns = {data_files[each].tags.get(COLUMNS_TAG) for each in (name, *replaced)}
        if covered == (name.base_offset, name.last_offset) and len(columns) == 1:
            same |= {name, *replaced}
    return same


def app_id(topic_id: str, partition: int, what: str) -> str:
    """Return the ``appId`` of a ``txn`` action of a partition.

    Args:
        topic_id: the topic's id.
        partition: the partition's number.
        what: the meaning of its ``version``: ``start``, ``end``, or ``compaction``.
    """
    return f"spark_log/{topic_id}/{partition}/{what}"


def first_gap(table: PartitionTable) -> int | None:
    """Return the first offset between start and end that no file has (protocol B2), or None."""
    position = table.start
    for name in table.files:
        if name.base_offset > position:
            break
        position = max(position, end_offset(name))
    return position if position < table.end else None
