"""A model of a topic's table: each version is checked at the moment when it appears.

It knows each record that was ever appended and what each segment holds (`CompactedTruth`), and so
which rows a version has. A file that is deleted while a version needs it is found at once.
"""

from __future__ import annotations

from spark_log.delta.parse import parse_version
from spark_log.delta.state import TableState
from spark_log.log.files.file_names import SegmentName, parse_generation_name
from spark_log.storage import Store
from spark_log.table import TABLE_PROTOCOL
from spark_log.table.partition_table import PartitionTable, end_offset, parse_partition
from spark_log.util.clock import Clock
from tests.simulation.compaction.compacted_log import CompactedTruth, is_tombstone, key_of
from tests.simulation.log.true_log import DIRECTORY, TOPIC_ID
from tests.simulation.violation import ViolationError

TABLE, PARTITION = DIRECTORY.rsplit("/", 1)
"""The directory of the topic and its table, and the name of the partition's directory in it."""

LOG = f"{TABLE}/_delta_log"


class TrueTable(CompactedTruth):
    """The model of a topic with one partition, and of its table.

    Attributes:
        file_retention_us: ``table.deleted.file.retention.ms``.
        versions: the partition in each version, in order.
        times_us: when each version appeared, by the storage's clock.
        was_compacted: whether a compaction ever began.
        deleted: the highest offset up to which the deletion of records was acknowledged.
    """

    def __init__(
        self,
        disk: Store,
        clock: Clock,
        expiration_ms: int,
        delete_retention_ms: int,
        file_retention_ms: float,
    ) -> None:
        super().__init__(disk, clock, expiration_ms, delete_retention_ms)
        self.file_retention_us = file_retention_ms * 1000
        self.versions: list[PartitionTable] = []
        self.times_us: list[int] = []
        self.was_compacted = False
        self._state = TableState()
        self._removed: set[SegmentName] = set()
        self._deleted_versions: set[int] = set()
        self.deleted = 0
        self._rows: dict[SegmentName, list[int]] = {}

    @property
    def newest(self) -> PartitionTable:
        """The table at its newest version; empty if it has none."""
        return self.versions[-1] if self.versions else PartitionTable()

    # --- changes of the storage ------------------------------------------------------------------

    def on_file_created(self, path: str) -> None:
        """Handle the creation of a file, which may be a version."""
        file_name = path.rpartition("/")[2]
        if not path.startswith(f"{LOG}/"):
            self.was_compacted |= parse_generation_name(file_name) is not None
            super().on_file_created(path)
            return
        if not file_name.endswith(".json"):
            return  # a checkpoint
        number = int(file_name.removesuffix(".json"))
        if number in self._deleted_versions:
            return  # a put that arrives late, where all readers are beyond
        if number != len(self.versions):
            raise ViolationError(f"version {number} appeared after {len(self.versions) - 1}")
        body = self._disk.open_buffer(path).to_pybytes()
        self._state.apply(parse_version(TABLE, number, body, TABLE_PROTOCOL))
        before, table = self.newest, parse_partition(self._state, TOPIC_ID, 0, PARTITION)
        self._check_version(number, before, table)
        self.versions.append(table)
        self.times_us.append(self._clock.time_us())

    def on_file_deleted(self, path: str) -> None:
        """Handle the deletion of a file, which no reader of the table may need."""
        super().on_file_deleted(path)
        if path.startswith(f"{LOG}/") and path.endswith(".json"):
            self._deleted_versions.add(int(path.rpartition("/")[2].removesuffix(".json")))
            return
        name = SegmentName.parse(path.rpartition("/")[2])
        if name is None or not name.is_parquet:
            return
        for number, table in enumerate(self.versions):
            if name in table.files and self.may_be_read(number):
                raise ViolationError(f"{path} was deleted, and version {number} has it")

    def may_be_read(self, number: int) -> bool:
        """Return whether a version is the newest, or was replaced within the files' retention."""
        replaced = number + 1
        return (
            replaced == len(self.versions)
            or self.times_us[replaced] > self._clock.time_us() - self.file_retention_us
        )

    # --- versions --------------------------------------------------------------------------------

    def _check_version(self, number: int, before: PartitionTable, table: PartitionTable) -> None:
        where = f"version {number}"
        position = table.start
        for index, name in enumerate(table.files):
            if f"{DIRECTORY}/{name.file_name}" not in self._ends:
                raise ViolationError(f"{where} has {name.file_name}, which does not exist")
            begins = name.base_offset <= position if index == 0 else name.base_offset == position
            if not begins or end_offset(name) <= position:
                raise ViolationError(f"{where}: {name.file_name} does not begin at {position}")
            position = end_offset(name)
        if position != table.end:
            raise ViolationError(f"{where} says that it ends at {table.end}, and has {position}")
        if not table.start <= self.start or (self.versions and table.start < before.start):
            raise ViolationError(f"{where} starts at {table.start}, after {before.start}")
        if table.setting.metadata_offset < before.setting.metadata_offset:
            raise ViolationError(f"{where} has an older setting than the version before it")
        self._check_start(table)
        self._check_changes(where, before, table)
        self._check_rows(where, table)

    def _check_changes(self, where: str, before: PartitionTable, table: PartitionTable) -> None:
        if table.setting != before.setting:
            self._removed.clear()
            return
        if table.end < before.end and before.is_compacted:
            raise ViolationError(f"{where} ends at {table.end}, before {before.end}")
        again = self._removed.intersection(table.files).difference(before.files)
        if again:
            raise ViolationError(f"{where} adds {min(each.file_name for each in again)} again")
        self._removed.update(set(before.files).difference(table.files))

    def _check_rows(self, where: str, table: PartitionTable) -> None:
        """Check that a version has every record, or of a compaction the last one of each key."""
        rows = [at for name in table.files for at in self.rows_of(name) if at >= table.start]
        expected = range(table.start, table.end)
        if not any(name.is_compacted for name in table.files):
            if rows != list(expected):
                raise ViolationError(f"{where} has {rows} of {expected}")
            return
        if not table.is_compacted:
            return  # the topic was compacted before, or is not yet
        last = {key_of(self.records[at]): at for at in expected}
        wrong = [at for at in rows if last.get(key_of(self.records[at])) != at]
        if wrong:
            raise ViolationError(f"{where}: {wrong[0]} is not its key's last as of {table.end}")
        missing = set(last.values()).difference(rows)
        for at in sorted(missing):
            if not (is_tombstone(self.records[at]) and self._first_met_us(at) is not None):
                raise ViolationError(f"{where}: {at}, its key's last as of {table.end}, is missing")

    def rows_of(self, name: SegmentName) -> list[int]:
        """Return the offsets of the rows of a segment."""
        return self._rows[name]

    def _check_rewritten(self, path: str, name: SegmentName) -> None:
        super()._check_rewritten(path, name)
        held = self._held.get(path, range(name.base_offset, end_offset(name)))
        self._rows[name] = sorted(held)

    # --- results of actors -----------------------------------------------------------------------

    def check_deleted(self, offset: int) -> None:
        """Check that no version has records before an offset whose deletion is acknowledged.

        A table that has just begun may start before it, without files: whoever adds some lists the
        log first.
        """
        self.deleted = max(self.deleted, offset)
        self._check_start(self.newest)

    def _check_start(self, table: PartitionTable) -> None:
        if table.files and table.start < self.deleted:
            raise ViolationError(
                f"deleted up to {self.deleted}, and the table starts at {table.start}"
            )

    def check_all(self, begin: int, offsets: list[int], end: int) -> None:
        """Check a read of table and log of a topic that was never compacted."""
        if offsets != list(range(begin, end)):
            missing = sorted(set(range(begin, end)).difference(offsets))
            raise ViolationError(
                f"a read of both has {len(offsets)} records from {begin} to {end}; "
                f"missing: {missing[:5]}"
            )
