"""`TopicTable`: reads the Delta table of a topic, its newest version and earlier ones.

On storage: ``_delta_log`` in the topic's directory in the cluster's root. The files of the table
are Parquet segments in the directories of the partitions beside it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from spark_log.config import TopicConfig
from spark_log.delta import DataFile, DeltaLog, LogListing, TableState, Version
from spark_log.errors import StorageError
from spark_log.log.files import SegmentName
from spark_log.metadata import ROOT_BROKER_ID, TopicImage, parse_replica_directory
from spark_log.storage import Store
from spark_log.table.free_names import first_version_needed
from spark_log.table.partition_table import (
    CleanupPolicy,
    PartitionTable,
    TableSetting,
    first_gap,
    parquet_path,
    parse_partitions,
    parse_setting,
    partition_history,
    table_file,
)
from spark_log.table.schema import TABLE_PROTOCOL
from spark_log.util import Clock

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TableVersion:
    """One version of a topic's table.

    Attributes:
        number: its number; -1 if the topic has no table.
        setting: the topic's setting.
        partitions: partition → its start, end and files.
        directories: partition → its directory, relative to the table's.
        data_files: path relative to the table's directory → the file, with its statistics.
        former_paths: the paths of files in directories that the partitions had before their
            replicas in the cluster's root got others. They do not count.
        foreign_paths: the paths of files that are no segments of the topic.
        is_outdated: whether the version has files of partitions, or in directories, that are not in
            the metadata which this process knows. It must change nothing then.
    """

    number: int = -1
    setting: TableSetting = field(default_factory=TableSetting)
    partitions: Mapping[int, PartitionTable] = field(default_factory=dict)
    directories: Mapping[int, str] = field(default_factory=dict)
    data_files: Mapping[str, DataFile] = field(default_factory=dict)
    former_paths: tuple[str, ...] = ()
    foreign_paths: tuple[str, ...] = ()
    is_outdated: bool = False

    @property
    def is_on(self) -> bool:
        """Whether the topic is a table in this version."""
        return self.setting.policy != CleanupPolicy.NONE

    @property
    def size_bytes(self) -> int:
        """Size of all files."""
        return sum(file.size_bytes for file in self.data_files.values())

    def ends(self) -> dict[int, int]:
        """Return the end of each partition: the table has the records before it."""
        return {partition: table.end for partition, table in self.partitions.items()}

    def path_of(self, partition: int, name: SegmentName) -> str:
        """Return the path of a file, relative to the table's directory."""
        return parquet_path(self.directories[partition], name)

    def file_of(self, partition: int, name: SegmentName) -> DataFile:
        """Return a file of this version, with its statistics."""
        return self.data_files[self.path_of(partition, name)]

    def check_is_whole(self, topic: TopicImage, partition: int) -> None:
        """Check that the files have all offsets from the start to the end of a partition.

        Raises:
            StorageError: another program has removed a file.
        """
        table = self.partitions.get(partition, PartitionTable())
        gap = first_gap(table)
        if gap is not None:
            raise StorageError(
                f"{topic.directory}: version {self.number} of the table has no file with offset "
                f"{gap} of partition {partition}, though it ends at {table.end}: another program "
                f"has removed a file; make its Delta log anew: spark-log table rebuild "
                f"{topic.name}",
                path=topic.directory,
            )


class TopicTable:
    """Reads the table of one topic. Thread-safe.

    Attributes:
        store: the store of the cluster's root.
        topic: the topic, in the metadata that this process knows.
        log: the Delta log; use it only while you hold `lock`.
        lock: the lock of `log`.
    """

    def __init__(self, store: Store, topic: TopicImage, clock: Clock) -> None:
        """Return the table of a topic; nothing is read yet.

        Args:
            store: the store of the cluster's root.
            topic: the topic.
            clock: dates versions for users, and measures the validity of listings.
        """
        self.store = store
        self.topic = topic
        self.clock = clock
        self.log = DeltaLog(store, topic.directory, clock, TABLE_PROTOCOL)
        self.lock = threading.RLock()
        self._known = TableVersion()
        self._versions: dict[int, Version] = {}

    def __repr__(self) -> str:
        return f"<TopicTable topic={self.topic.name!r} version={self._known.number}>"

    @property
    def directory(self) -> str:
        """The table's directory, relative to the root."""
        return self.topic.directory

    @property
    def url(self) -> str:
        """The table's URL, without credentials, for Delta's readers."""
        return self.store.directory_url(self.directory)

    @property
    def known(self) -> TableVersion:
        """The version that was read last; number -1 before the first `refresh`."""
        return self._known

    def refresh(self) -> TableVersion:
        """Read the newest version, and return it.

        Raises:
            StorageError: the table cannot be read, or is damaged.
        """
        with self.lock:
            self.log.refresh()
            if self._known.number != self.log.state.version or not self._known.directories:
                self.update()
            return self._known

    def update(self) -> None:
        """Take over the state of `log`, after a version was appended to it."""
        self._known = self._version_of(self.log.state)

    def at(self, number: int) -> TableVersion | None:
        """Return a version; None if it does not exist, or was deleted.

        Raises:
            StorageError: the table cannot be read, or is damaged.
        """
        with self.lock:
            if number == self._known.number:
                return self._known
            state = self.log.state_at(number, self.log.list_log())
            return None if state is None else self._version_of(state)

    def history(
        self, partition: int, past_ms: float, now_us: int, listed: LogListing | None = None
    ) -> list[PartitionTable] | None:
        """Return a partition in all versions that were the newest at a moment of some past time.

        The newest version is the one that `refresh` has read last.

        Args:
            partition: the partition's number.
            past_ms: the length of the time.
            now_us: the storage's time, or earlier, microseconds since the epoch.
            listed: a listing of the Delta log that was made after `refresh`; None lists it.

        Returns:
            Without what is the same, the newest last; None if the first of these versions was
            deleted, or one is damaged, so that they are not known. Empty if the topic has no table.

        Raises:
            StorageError: the table cannot be read, or is damaged.
        """
        with self.lock:
            newest = self._known.number
            if newest < 0:
                return []
            listed = listed or self.log.list_log()
            times_us = {number: us for number, us in listed.versions.items() if number <= newest}
            first = first_version_needed(times_us, int(now_us - past_ms * 1000))
            try:
                state = None if first < 0 else self.log.state_at(first, listed)
                versions = self._read_versions(first + 1, newest)
            except StorageError as error:
                if error.retriable:
                    raise
                return None  # damaged, and followed by the first version of a rebuilt log
            if state is None:
                return None
            return partition_history(
                state,
                versions,
                self.topic.topic_id,
                partition,
                self._known.directories[partition],
            )

    def _read_versions(self, first: int, last: int) -> list[Version]:
        """Return versions. They never change, and those that were read are not read again."""
        known = self._versions
        unread = next((each for each in range(first, last + 1) if each not in known), last + 1)
        known.update((each.number, each) for each in self.log.versions(unread, last))
        self._versions = {number: known[number] for number in range(first, last + 1)}
        return list(self._versions.values())

    def _version_of(self, state: TableState) -> TableVersion:
        directories = partition_directories(self.topic)
        partitions = parse_partitions(state, self.topic.topic_id, directories)
        former, foreign, is_outdated = [], [], False
        for path in state.files:
            parent, _, file_name = path.rpartition("/")
            found = parse_replica_directory(parent)
            if found is None or table_file(file_name) is None:
                foreign.append(path)
            elif directories.get(found[0]) != parent:
                present = parse_replica_directory(directories.get(found[0], ""))
                is_former = present is not None and present > found
                former += [path] if is_former else []
                is_outdated |= not is_former
        return TableVersion(
            state.version,
            parse_setting(state),
            partitions,
            directories,
            dict(state.files),
            tuple(former),
            tuple(foreign),
            is_outdated,
        )


def partition_directories(topic: TopicImage) -> dict[int, str]:
    """Return the directories of the partitions in the cluster's root, relative to the topic's.

    A partition without a replica there has none.
    """
    skipped = len(topic.directory) + 1
    return {
        number: topic.replica_directory(number, ROOT_BROKER_ID)[skipped:]
        for number, state in sorted(topic.partitions.items())
        if ROOT_BROKER_ID in state.replicas
    }


def table_setting(config: TopicConfig, metadata_offset: int) -> TableSetting:
    """Return the setting of a topic.

    Args:
        config: the topic's config.
        metadata_offset: the offset of the metadata log up to which the config is known.
    """
    if config.table_format == "none":
        return TableSetting(CleanupPolicy.NONE, metadata_offset)
    is_compacted = "compact" in config.cleanup_policy
    policy = CleanupPolicy.COMPACT if is_compacted else CleanupPolicy.DELETE
    if config.table_value_format == "none":
        return TableSetting(policy, metadata_offset)
    return TableSetting(policy, metadata_offset, config.table_value_format, config.table_schema)
