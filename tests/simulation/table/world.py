"""The state that the actors of a simulated table share, and one process's view of the table.

A merged segment of generation 2 or higher, except each fourth, and every segment of a compaction
stands for a Parquet segment: its bytes are Arrow's and its name ends in ``.log``, while the table
calls it ``.parquet``. Arrow files are written faster. So a listing tells the kind, and merges of
either kind cover those of the other, as they do when a table is turned on and off.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from spark_log.delta import DataFile, DeltaLog
from spark_log.log.clean.log_table import CompactionLimits
from spark_log.log.files.file_names import (
    SegmentName,
)
from spark_log.log.files.live_segments import live_log
from spark_log.metadata import PartitionRecord, TopicImage
from spark_log.storage import FileInfo
from spark_log.table import TopicTable, free_names
from spark_log.table.partition_table import (
    SETTING_PROPERTY,
    CleanupPolicy,
    PartitionTable,
    TableSetting,
    changes,
    parquet_path,
)
from tests.simulation.compaction.actors import CompactedWorld
from tests.simulation.faults import DELETE_DELAY_MS
from tests.simulation.log.true_log import DIRECTORY, TOPIC_ID
from tests.simulation.table.profile import TableProfile
from tests.simulation.table.true_table import PARTITION, TABLE, TrueTable

_MIN_PARQUET_GENERATION = 2


def is_parquet(name: SegmentName) -> bool:
    """Return whether a segment stands for a Parquet segment."""
    if name.is_compacted:
        return True
    return name.generation >= _MIN_PARQUET_GENERATION and name.generation % 4 != 0


def table_name(name: SegmentName) -> SegmentName:
    """Return the name that the table has for a segment."""
    return replace(name, is_parquet=is_parquet(name))


def stored_name(name: SegmentName) -> SegmentName:
    """Return the name of the file that stands for a segment of the table."""
    return replace(name, is_parquet=False)


def as_listed(file: FileInfo) -> FileInfo:
    """Return a file with the name that a listing of Parquet segments would show."""
    name = SegmentName.parse(file.name)
    if name is None:
        return file
    return replace(file, path=f"{DIRECTORY}/{table_name(name).file_name}")


@dataclass(slots=True)
class TableWorld(CompactedWorld):
    """A world whose topic may have a table.

    Attributes:
        conditions: the conditions of the table.
        topic_settings: the topic's settings over time, the present one last.
        compactions: by actor, the table as its compaction sees it.
        histories: by actor, the versions that its last cleaning has read.
    """

    conditions: TableProfile = field(kw_only=True)
    topic_settings: list[TableSetting] = field(default_factory=list)
    compactions: dict[str, CompactionsTable] = field(default_factory=dict)
    histories: dict[str, list[PartitionTable]] = field(default_factory=dict)

    @property
    def table(self) -> TrueTable:
        """The model of the table."""
        assert isinstance(self.truth, TrueTable)
        return self.truth

    def known_setting(self) -> TableSetting:
        """Return the topic's setting as a process knows it, which may be an older one."""
        random = self.scheduler.random
        if not self.is_ending and random.random() < self.conditions.stale:
            return random.choice(self.topic_settings)
        return self.topic_settings[-1]

    def stand_still(self) -> None:
        """Stand still at times, until all listings that the actor knows are outdated."""
        random = self.scheduler.random
        if not self.is_ending and random.random() < self.conditions.still:
            self.scheduler.note("stands still")
            self.scheduler.pass_time(DELETE_DELAY_MS * random.choice((1, 3, 8)))

    def compactions_table(self) -> CompactionsTable:
        """Return the table as the running actor's compactions see it."""
        return self.compactions.setdefault(self.actor_name(), CompactionsTable(self))

    def actor_name(self) -> str:
        """Return the name of the running actor."""
        actor = self.scheduler.current
        return "" if actor is None else actor.name


class SimulatedTable:
    """One process's handle of the table."""

    def __init__(self, world: TableWorld) -> None:
        self._world = world
        partition = PartitionRecord(topic_id=TOPIC_ID, partition_id=0)
        topic = TopicImage(TABLE.removesuffix(f".{TOPIC_ID}"), TOPIC_ID, {0: partition})
        self._table = TopicTable(world.store, topic, world.clock)
        self.log = self._table.log

    def read(self) -> PartitionTable:
        """Read the newest version."""
        return self._table.refresh().partitions[0]

    def history(self, past_ms: float, now_us: int) -> list[PartitionTable] | None:
        """Return the partition in each version since some time ago, up to the one read last.

        Returns:
            The versions, the newest last; None if the first of them was deleted.
        """
        return self._table.history(0, past_ms, now_us)

    def commit(self, before: PartitionTable, after: PartitionTable) -> None:
        """Append the version after the one that was read."""
        files = {
            name: DataFile(parquet_path(PARTITION, name), 1, 1)
            for name in (*before.files, *after.files)
        }
        actions = list(
            changes(
                before,
                after,
                topic_id=TOPIC_ID,
                partition=0,
                directory=PARTITION,
                data_files=files,
                time_ms=0,
            )
        )
        if after.setting != before.setting:
            configuration = {SETTING_PROPERTY: after.setting.to_property()}
            metadata = {"partitionColumns": ["partition"], "configuration": configuration}
            actions.append({"metaData": {"id": TOPIC_ID, **metadata}})
        append(self.log, actions)
        self._table.update()
        self._world.scheduler.note(
            f"committed version {self.log.state.version}: {after.setting.policy}, "
            f"{len(after.files)} files from {after.start} to {after.end}"
        )


def append(log: DeltaLog, actions: list[Any]) -> None:
    """Append a version at exactly the state that was read (protocol B1)."""
    log.append(actions, "WRITE")


def list_partition(world: TableWorld) -> tuple[FileInfo, ...] | None:
    """Return a listing of the partition that shows the log; None if it took too long."""
    began_ms = world.clock.monotonic_ms()
    files = tuple(map(as_listed, world.store.list(DIRECTORY)))
    took_ms = world.clock.monotonic_ms() - began_ms
    if took_ms >= DELETE_DELAY_MS / 2 or live_log(files).base_after_gap is not None:
        return None
    return files


# --- compactions that know of the table ----------------------------------------------------------


class CompactionsTable:
    """The table as the compactions of one actor see it.

    Attributes:
        newest: the version that was read last.
    """

    def __init__(self, world: TableWorld) -> None:
        self._world = world
        self._table = SimulatedTable(world)
        self.newest = PartitionTable()

    def allows(self, name: SegmentName, now_us: int) -> bool:
        """Return whether a name may be freed; the simulated cleaner asks for all names at once."""
        return True

    def move_start(self, offset: int) -> None:
        """Leave the start to the simulated cleaner."""

    def compaction_limits(self, now_us: int) -> CompactionLimits:
        """Look which tombstones have to stay, and whether the compaction has to name its end."""
        limit = self.read_limit()
        known = self._world.known_setting()
        names_end = {self.newest.setting.policy, known.policy} != {CleanupPolicy.NONE}
        self._world.scheduler.note(
            f"compacts; tombstones stay from {limit}, names end: {names_end}"
        )
        return CompactionLimits(names_end, limit)

    def read_limit(self) -> float:
        """Return the offset from which on no tombstone is removed (protocol B13)."""
        world = self._world
        self.newest = self._table.read()
        now_us = world.storage_time_us()
        history = self._table.history(world.config.delete_retention_ms, now_us)
        return 0 if history is None else free_names.tombstone_limit(history)
