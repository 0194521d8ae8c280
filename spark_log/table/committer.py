"""Appends versions to the table of a topic, as its logs allow (docs/protocol/table.md).

Whoever merges or cleans calls this afterwards. It reads the newest version, lists the logs of the
partitions, decides, and appends the next version at exactly the state that it has read (protocol
B1). If another process was faster, it begins again. It may stop at any point: the next one finds
the same work.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Final

from spark_log.delta import DataFile, DeltaCleanup, point_to_checkpoint, write_checkpoint
from spark_log.errors import (
    LogEndOffsetMismatchError,
    StorageError,
    StorageTimeoutError,
    StorageUnavailableError,
)
from spark_log.log import SegmentReader
from spark_log.log.clean import named_end
from spark_log.log.files import MAX_MERGE_GENERATION, SegmentName, live_log
from spark_log.metadata import TopicImage, check_table_requirements
from spark_log.storage import (
    FileInfo,
    Store,
    is_listing_valid,
    listing_validity_ms,
    map_requests,
)
from spark_log.table.listing import LogFiles, log_files
from spark_log.table.next_version import next_partition, with_setting, with_start
from spark_log.table.partition_table import (
    COLUMNS_TAG,
    CleanupPolicy,
    PartitionTable,
    TableSetting,
    changes,
)
from spark_log.table.schema import (
    CHECKPOINT_INTERVAL,
    PARTITION_COLUMN,
    PARTITION_FOLDER_PREFIX,
    TABLE_PROTOCOL,
    table_metadata,
    typed_columns,
)
from spark_log.table.skipping_columns import SKIPPING_PROPERTY, columns_of_all, skipping_columns
from spark_log.table.statistics import time_text, typed_statistics
from spark_log.table.topic_table import (
    TableVersion,
    TopicTable,
    table_setting,
)
from spark_log.util import IN_PROCESS, Clock

_MAX_VERSIONS: Final = 100
"""Maximum number of tries of one call. Others make versions, too, so each try may lose."""

_MAX_LISTINGS: Final = 10

_log = logging.getLogger(__name__)


class TableCommitter:
    """Appends versions to one topic's table. Several threads and processes may do so at once.

    Attributes:
        table: the table.
        has_written_checkpoint: whether this committer has written a checkpoint.
    """

    def __init__(self, table: TopicTable, metadata_offset: int) -> None:
        """Return a committer; nothing is read yet.

        Args:
            table: the table, with the topic as this process knows it.
            metadata_offset: the offset of the metadata log up to which it knows the topic.
        """
        self.table = table
        self.has_written_checkpoint = False
        self._config = table.topic.config()
        self._setting = table_setting(self._config, metadata_offset)

    @property
    def topic(self) -> TopicImage:
        """The topic, as this process knows it."""
        return self.table.topic

    def commit(self, partitions: Collection[int] | None = None) -> TableVersion:
        """Append versions until the table has all that it may have.

        A table that was never begun, and shall not be, stays away.

        Args:
            partitions: the partitions whose logs are listed; None for all. A change of the setting
                lists all.

        Returns:
            The newest version.

        Raises:
            InvalidConfigurationError: a partition has no replica in the cluster's root.
            CorruptRecordError: a segment is damaged.
            StorageError: the storage does not answer, or the table is damaged or was changed by
                another program.
        """
        table = self.table
        for _ in range(_MAX_VERSIONS):
            version = table.refresh()
            setting = self._setting_for(version)
            if setting.policy == CleanupPolicy.NONE == version.setting.policy:
                return version
            if setting.policy != CleanupPolicy.NONE:
                check_table_requirements(self.topic)
            _check_files(table, version)
            if version.is_outdated:
                _log.debug("%s: this process knows an older state of the topic", table.directory)
                return version
            after = self.decide(version, setting, partitions)
            if after == dict(version.partitions) and not version.former_paths:
                return version
            try:
                self.append(version, after, "WRITE")
            except LogEndOffsetMismatchError:
                _log.debug("%s: another process was faster", table.directory)
        return table.refresh()

    def move_start(self, partition: int, offset: int) -> None:
        """Move the start of a partition up to an offset that the log's start has reached.

        Nothing is done without a table, or for a partition without a replica in the root.

        Raises:
            StorageError: the storage does not answer, or the table is damaged.
        """
        while True:
            version = self.table.refresh()
            if version.is_outdated:
                raise StorageUnavailableError(
                    f"{self.table.directory}: the topic has changed since this process has read "
                    f"the metadata; delete the records again",
                    path=self.table.directory,
                )
            _check_files(self.table, version)
            before = version.partitions.get(partition)
            if before is None:
                return
            after = with_start(before, offset)
            if after == before:
                return
            try:
                self.append(version, {partition: after}, "DELETE")
            except LogEndOffsetMismatchError:
                continue
            return

    def delete_versions(self, now_us: int) -> None:
        """Delete versions that are past their retention.

        Args:
            now_us: the storage's time, or earlier, microseconds since the epoch.

        Raises:
            StorageError: some files were not deleted; the next call continues.
        """
        table, config = self.table, self._config
        if table.refresh().number < 0:
            return
        retention_ms = max(
            config.table_deleted_file_retention_ms, config.delete_retention_ms, VERSION_RETENTION_MS
        )
        cleanup = DeltaCleanup(table.store, table.directory, table.clock, TABLE_PROTOCOL)
        cleanup.delete_versions(now_us - retention_ms * 1000)

    def delete_left_files(self, now_us: int) -> None:
        """Delete data files that other programs left a day ago, when the table refused them.

        Args:
            now_us: the storage's time, or earlier, microseconds since the epoch.

        Raises:
            StorageError: some files were not deleted; the next call continues.
        """
        table = self.table
        if table.refresh().number < 0:
            return
        for file in left_data_files(table):
            if file.modified_us <= now_us - _ORPHANS_US:
                table.store.delete(file.path)
                _log.info("%s: deleted a data file that no version has", file.path)

    # --- the next version ------------------------------------------------------------------------

    def _setting_for(self, version: TableVersion) -> TableSetting:
        """Return the topic's setting; the version's own if it says the same."""
        is_same = version.setting.says_the_same_as(self._setting)
        return version.setting if is_same and version.number >= 0 else self._setting

    def decide(
        self, version: TableVersion, setting: TableSetting, partitions: Collection[int] | None
    ) -> dict[int, PartitionTable]:
        """Return what the next version may say of the partitions.

        The logs are listed here: after the version was read (protocol B4).

        Args:
            version: the newest version.
            setting: the topic's setting, as this process knows it.
            partitions: the partitions whose logs are listed; None for all.
        """
        if partitions is None or setting != version.setting:
            partitions = version.partitions
        reads_ends = CleanupPolicy.COMPACT in (setting.policy, version.setting.policy)
        # A version without files needs only a log start offset, which no listing shows too high.
        is_end = setting.policy == CleanupPolicy.NONE
        delay_ms = math.inf if is_end else self._config.file_delete_delay_ms

        def listed(number: int) -> LogFiles:
            directory = f"{self.table.directory}/{version.directories[number]}"
            return self._list(directory, delay_ms, reads_ends=reads_ends)

        numbers = sorted(set(partitions) & version.partitions.keys())
        logs = dict(zip(numbers, map_requests(self.table.store, listed, numbers), strict=True))
        if setting != version.setting:
            after = {
                number: with_setting(before, setting, logs[number].log_start_offset)
                for number, before in version.partitions.items()
            }
            # An older setting than the version's changes nothing, and the version's holds.
            if after != dict(version.partitions):
                return after
            setting = version.setting
        return {
            number: next_partition(before, setting, logs[number]) if number in logs else before
            for number, before in version.partitions.items()
        }

    def _list(self, directory: str, delay_ms: float, *, reads_ends: bool) -> LogFiles:
        store, clock = self.table.store, self.table.clock
        files = list_partition(store, directory, clock, delay_ms)
        generation = live_log(files).compaction_generation
        end = None
        if reads_ends and generation > MAX_MERGE_GENERATION:
            end = named_end(store, directory, generation)
        return log_files(files, end)

    # --- appending -------------------------------------------------------------------------------

    def append(
        self, version: TableVersion, after: Mapping[int, PartitionTable], operation: str
    ) -> None:
        """Append the version after the one that was read.

        Args:
            version: the version that was read.
            after: the partitions that change, as the next version has them.
            operation: the version's operation in Delta's history.

        Raises:
            LogEndOffsetMismatchError: another process was faster; nothing was changed.
            StorageError: nothing was changed, or it is not known.
        """
        table = self.table
        time_ms = table.clock.time_us() // 1000  # wall clock: Delta's history, for users
        actions: list[Mapping[str, object]] = []
        files, added = dict(version.data_files), []
        for number, partition in sorted(after.items()):
            before = version.partitions[number]
            if partition == before:
                continue
            changed = self.data_files(version, number, before, partition)
            for name, file in changed.items():
                if name in partition.files:
                    files[file.path] = file
                    added.append(file)
                else:
                    del files[file.path]
            actions += changes(
                before,
                partition,
                topic_id=self.topic.topic_id,
                partition=number,
                directory=version.directories[number],
                data_files=changed,
                time_ms=time_ms,
            )
        for path in version.former_paths:
            actions.append(files.pop(path).to_remove(time_ms, is_change=True))
        actions[:0] = self._definition(version, after, files.values(), added, time_ms)
        with table.lock:
            if table.log.state.version != version.number:
                raise LogEndOffsetMismatchError(
                    f"{table.directory}: another thread was faster",
                    expected=version.number + 1,
                    actual=table.log.state.version + 1,
                )
            made = table.log.append(actions, operation)
            table.update()
            _log.debug(
                "%s: version %d, %s: %d files added, %d removed, ends %s",
                table.directory,
                made.number,
                table.known.setting.policy,
                len(made.added),
                len(made.removed),
                {number: each.end for number, each in sorted(after.items())},
            )
            self._checkpoint_if_due()

    def _definition(
        self,
        version: TableVersion,
        after: Mapping[int, PartitionTable],
        files: Collection[DataFile],
        added: Collection[DataFile],
        time_ms: int,
    ) -> Iterator[dict[str, object]]:
        """Yield the actions that begin a table, or that change its setting or its properties.

        Args:
            version: the version that was read.
            after: the partitions that change, as the next version has them.
            files: the files of the next version.
            added: those of them that the next version adds.
            time_ms: the time that Delta's history shows.
        """
        if version.number < 0:
            yield TABLE_PROTOCOL.to_action()
        settings = {each.setting for each in after.values()}
        is_known = version.number >= 0 and settings <= {version.setting}
        (setting,) = settings or {version.setting}
        metadata = self.table.log.state.metadata
        properties = {} if metadata is None else metadata.configuration
        before = [name for name in properties.get(SKIPPING_PROPERTY, "").split(",") if name]
        if is_known and not self._has_checkpoint(version.number + 1):
            skipping = columns_of_all(before, added)
        else:  # looks at all files, as a checkpoint does
            skipping = skipping_columns(typed_columns(setting), files)
        if not is_known or skipping != before:
            action = {} if metadata is None else metadata.action
            yield table_metadata(self.topic.name, setting, time_ms, action, skipping)

    def data_files(
        self,
        version: TableVersion,
        partition: int,
        before: PartitionTable,
        after: PartitionTable,
    ) -> dict[SegmentName, DataFile]:
        """Return size and statistics of the files that are removed or added."""
        found = {
            name: version.file_of(partition, name)
            for name in before.files
            if name not in after.files
        }
        new = [name for name in after.files if name not in before.files]
        directory = version.directories[partition]

        def read(name: SegmentName) -> DataFile:
            return read_data_file(self.table, partition, directory, name)

        return found | dict(zip(new, map_requests(self.table.store, read, new), strict=True))

    def _has_checkpoint(self, version: int) -> bool:
        """Return whether a version gets a checkpoint."""
        interval = self.table.log.state.configuration.get(CHECKPOINT_INTERVAL, "")
        is_number = interval.isdecimal() and int(interval) > 0
        return version > 0 and not version % (int(interval) if is_number else 10)

    def _checkpoint_if_due(self) -> None:
        """Write a checkpoint; a failure is only counted, since the versions say the same."""
        log, state = self.table.log, self.table.log.state
        if not self._has_checkpoint(state.version):
            return
        with IN_PROCESS.suppress("checkpoint", self.table.directory, StorageError):
            write_checkpoint(self.table.store, log.log_directory, state, TABLE_PROTOCOL)
            point_to_checkpoint(self.table.store, log.log_directory, state)
            self.has_written_checkpoint = True


_ORPHANS_US: Final = 86_400_000_000
"""Age of data files in no version, at which the program that wrote them has certainly given up."""

VERSION_RETENTION_MS: Final = 30 * 86_400_000
"""Time for which versions can be read: Delta's default of ``delta.logRetentionDuration``."""


def list_partition(
    store: Store, directory: str, clock: Clock, delete_delay_ms: float
) -> list[FileInfo]:
    """Return a listing of a partition's directory that shows the log, without a hole.

    Raises:
        StorageTimeoutError: all listings took too long, or showed a hole.
        StorageError: the storage does not answer.
    """
    for _ in range(_MAX_LISTINGS):
        began_ms = clock.monotonic_ms()
        files = list(store.list(directory))
        is_valid = is_listing_valid(clock, began_ms, listing_validity_ms(delete_delay_ms))
        live = live_log(files)
        if is_valid and live.base_after_gap is None and live.last_before_start is None:
            return files
    raise StorageTimeoutError(
        f"{directory}: {_MAX_LISTINGS} listings took longer than half of file.delete.delay.ms "
        f"({delete_delay_ms} ms), or showed a hole in the log: look at it with spark-log verify",
        path=directory,
    )


def left_data_files(table: TopicTable) -> Iterator[FileInfo]:
    """Yield the data files that other programs left when the table refused their versions.

    They lie in the table's directory, or in directories of a partition column. Those of partitions
    have only files of the log.

    Args:
        table: the table, whose newest version was read.

    Raises:
        StorageError: the storage does not answer.
    """
    store, directory = table.store, table.directory
    folders = [
        f"{directory}/{name}"
        for name in store.list_directories(directory)
        if name.startswith(PARTITION_FOLDER_PREFIX)
    ]
    for folder in (directory, *folders):
        for file in store.list(folder):
            path = file.path[len(directory) + 1 :]
            if file.name.endswith(".parquet") and path not in table.known.data_files:
                yield file


def read_data_file(
    table: TopicTable, partition: int, directory: str, name: SegmentName
) -> DataFile:
    """Return a Parquet segment as a file of the table, with the statistics in its footer.

    Args:
        table: the table.
        partition: the partition's number.
        directory: the partition's directory, relative to the table's.
        name: the segment's name.

    Raises:
        CorruptRecordError: the file is damaged, or is no segment of this partition.
        StorageError: the file is missing, or the storage does not answer.
    """
    reader = SegmentReader(
        table.store,
        f"{table.directory}/{directory}",
        name,
        topic_id=table.topic.topic_id,
        partition=partition,
    )
    found = reader.row_statistics()
    file = DataFile(
        f"{directory}/{name.file_name}",
        reader.size_bytes,
        found.num_rows,
        partition_values={PARTITION_COLUMN: str(partition)},
        tags={COLUMNS_TAG: found.typed_columns} if found.typed_columns else {},
    )
    if not found.num_rows:
        return file
    least: dict[str, object] = {"offset": found.min_offset}
    most: dict[str, object] = {"offset": found.max_offset}
    least_time = time_text(found.min_timestamp_us // 1000)
    most_time = time_text(-(-found.max_timestamp_us // 1000))
    if least_time and most_time:
        least["timestamp"], most["timestamp"] = least_time, most_time
    nulls: dict[str, object] = dict.fromkeys(least, 0)
    typed = typed_statistics(reader.column_statistics())
    return replace(
        file,
        min_values=least | typed[0],
        max_values=most | typed[1],
        null_counts=nulls | typed[2],
    )


def _check_files(table: TopicTable, version: TableVersion) -> None:
    """Check that no other program has added files to a version, or removed some.

    Raises:
        StorageError: one has.
    """
    for partition in version.partitions:
        version.check_is_whole(table.topic, partition)
    if version.foreign_paths:
        raise StorageError(
            f"{table.directory}: another program has added {version.foreign_paths[0]} to the "
            f"table; make its Delta log anew: spark-log table rebuild {table.topic.name}",
            path=table.directory,
        )
