"""The state that the actors of a simulated table share, and what one process knows of the table.

The log, its Parquet segments, the table, its committers and cleaners are the shipped ones. A
process knows the topic's settings, which may be older ones, and stands still at times.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from spark_log.delta import DataFile
from spark_log.log import LocalLog
from spark_log.log.files import SegmentName
from spark_log.metadata import ROOT_BROKER_ID, PartitionRecord, TopicImage
from spark_log.table import TableCommitter, TableOfLog, TableVersion, TopicTable
from spark_log.table.listing import LogFiles
from spark_log.table.partition_table import CleanupPolicy, PartitionTable, TableSetting
from tests.simulation.compaction.actors import CompactedWorld
from tests.simulation.faults import DELETE_DELAY_MS
from tests.simulation.log.true_log import DIRECTORY, TOPIC_ID
from tests.simulation.table.profile import TableProfile
from tests.simulation.table.true_table import TABLE, TrueTable


@dataclass(slots=True)
class TableWorld(CompactedWorld):
    """A world whose topic may have a table.

    Attributes:
        conditions: the conditions of the table.
        topic_settings: the topic's settings over time, the present one last.
        histories: by actor, the versions that it has read first; only without a rule.
    """

    conditions: TableProfile = field(kw_only=True)
    topic_settings: list[TableSetting] = field(default_factory=list)
    histories: dict[str, list[PartitionTable] | None] = field(default_factory=dict)

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


def topic_of(world: TableWorld, setting: TableSetting) -> TopicImage:
    """Return the topic with its configs."""
    conditions = world.conditions
    overrides = {
        "table.format": "none" if setting.policy == CleanupPolicy.NONE else "delta",
        "cleanup.policy": "compact" if setting.policy == CleanupPolicy.COMPACT else "delete",
        "file.delete.delay.ms": str(DELETE_DELAY_MS),
        "delete.retention.ms": str(world.config.delete_retention_ms),
        "table.deleted.file.retention.ms": str(int(conditions.file_retention_ms)),
    }
    partition = PartitionRecord(topic_id=TOPIC_ID, partition_id=0)
    return TopicImage(TABLE.removesuffix(f".{TOPIC_ID}"), TOPIC_ID, {0: partition}, overrides)


def open_table(world: TableWorld) -> TopicTable:
    """Return the table, as a reader opens it."""
    return TopicTable(world.store, topic_of(world, world.topic_settings[-1]), world.clock)


class TableProcess:
    """One process that commits, cleans or compacts, and what it knows of the topic and its table.

    Attributes:
        setting: the topic's setting, as the process has read it last.
        committer: its committer of the table.
    """

    def __init__(self, world: TableWorld) -> None:
        self._world = world
        self.setting = TableSetting()
        self.committer = self._committer()
        self.read_metadata()

    def read_metadata(self) -> TableCommitter:
        """Read the topic's settings; return the committer, a new one if they have changed."""
        setting = self._world.known_setting()
        if setting != self.setting:
            self.setting = setting
            self.committer = self._committer()
        return self.committer

    def open_log(self) -> LocalLog:
        """Return the log, with the topic's configs."""
        log = self._world.open_log()
        self.configure(log)
        return log

    def configure(self, log: LocalLog) -> None:
        """Give a log the topic's configs that decide how it is rewritten."""
        is_table = self.setting.policy != CleanupPolicy.NONE
        is_compacted = self.setting.policy == CleanupPolicy.COMPACT
        policies: tuple[str, ...] = ("compact",) if is_compacted else ("delete",)
        retention = max(self._world.profile.retention_ms, self._world.profile.retention_bytes)
        if retention >= 0 and "delete" not in policies:
            policies = (*policies, "delete")
        log.config = self._world.config.model_copy(
            update={
                "cleanup_policy": policies,
                "table_format": "delta" if is_table else "none",
                "table_commit_interval_ms": 0,
            }
        )

    def table_of(self, log: LocalLog) -> TableOfLog:
        """Return the table of the log, as its cleaners see it after they have listed the log."""
        names = [file.name for file in log.files.store.list(DIRECTORY)]
        return TableOfLog(self.committer, 0, ROOT_BROKER_ID, file_names=names)

    def _committer(self) -> SimulatedCommitter:
        return SimulatedCommitter(self._world, self.setting)


class SimulatedCommitter(TableCommitter):
    """The shipped committer, which stands still at times before each of its steps.

    Attributes:
        world: the world of the simulation.
    """

    def __init__(self, world: TableWorld, setting: TableSetting) -> None:
        self.world = world
        table = TopicTable(world.store, topic_of(world, setting), world.clock)
        super().__init__(table, setting.metadata_offset)

    def list_log(self) -> LogFiles:
        """Return the files that a listing of the log offers at this moment."""
        return self._list(DIRECTORY, DELETE_DELAY_MS, reads_ends=True)

    def decide(
        self, version: TableVersion, setting: TableSetting, partitions: Collection[int] | None
    ) -> dict[int, PartitionTable]:
        """Decide, some time after the version was read."""
        self.world.stand_still()
        return super().decide(version, setting, partitions)

    def data_files(
        self, version: TableVersion, partition: int, before: PartitionTable, after: PartitionTable
    ) -> dict[SegmentName, DataFile]:
        """Read the files to add; between this and the append everything may happen."""
        self.world.stand_still()
        found = super().data_files(version, partition, before, after)
        self.world.stand_still()
        return found

    def append(
        self, version: TableVersion, after: Mapping[int, PartitionTable], operation: str
    ) -> None:
        """Append, and note it."""
        super().append(version, after, operation)
        made = self.table.known
        partition = made.partitions[0]
        self.world.scheduler.note(
            f"committed version {made.number}: {made.setting.policy}, "
            f"{len(partition.files)} files from {partition.start} to {partition.end}"
        )
