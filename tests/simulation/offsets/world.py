"""Processes of a simulated offsets table, which commit and maintain it with the shipped code."""

from __future__ import annotations

import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

from spark_log.coordinator.offsets import commit_times
from spark_log.coordinator.offsets import compaction as offsets_compaction
from spark_log.coordinator.offsets import creation as offsets_creation
from spark_log.coordinator.offsets import store as offsets_store
from spark_log.coordinator.offsets.commit_queue import CommitQueue, CommitRequest
from spark_log.coordinator.offsets.commit_throttle import CommitThrottle
from spark_log.coordinator.offsets.creation import TABLE_PROPERTIES
from spark_log.coordinator.offsets.maintenance import OffsetsMaintenance
from spark_log.coordinator.offsets.rows import PartitionKey, Row
from spark_log.coordinator.offsets.store import OffsetsStore
from spark_log.delta import checkpoint
from spark_log.delta.delta_log import DeltaLog
from spark_log.delta.state import PLAIN_TABLE, TableState
from spark_log.errors import SparkLogError
from spark_log.metadata.image import MetadataImage
from spark_log.metadata.records import PartitionRecord, TopicRecord
from spark_log.storage import OFFSETS_TABLE, Store
from spark_log.util.clock import Clock
from tests.simulation.faults import DELETE_DELAY_MS
from tests.simulation.offsets.profile import RETENTION_MS, OffsetsProfile
from tests.simulation.offsets.true_offsets import LOG, TrueOffsets
from tests.simulation.patches import Patch
from tests.simulation.same_thread import call_at_once
from tests.simulation.scheduler import Scheduler
from tests.simulation.store import DeltaStore, SimulatedStore

KEY = PartitionKey("t", "A" * 21 + "w", 0)


class ListedDeltaStore(DeltaStore):
    """A simulated store on which a listing costs as much as a probe for a name."""

    is_mapped: ClassVar[bool] = False


class Maintenance(OffsetsMaintenance):
    """Maintenance that writes checkpoints often, and retains offsets shortly."""

    tidy_every_us: ClassVar[int] = DELETE_DELAY_MS * 500
    compact_all_every_us: ClassVar[int] = 2 * DELETE_DELAY_MS * 1000
    checkpoint_pause_ms: ClassVar[float] = 0.0

    def retention_us(self) -> int:
        """Return the retention of offsets of groups without members."""
        return RETENTION_MS * 1000


def write_checkpoint(store: Store, state: TableState) -> None:
    """Write a table's checkpoint, and then ``_last_checkpoint``."""
    checkpoint.write_checkpoint(store, LOG, state, PLAIN_TABLE)
    checkpoint.point_to_checkpoint(store, LOG, state)


@dataclass(frozen=True, slots=True)
class OffsetsVariant:
    """The classes that one simulation uses.

    Attributes:
        table: the table in each process.
        log: the table's log.
        maintenance: the maintenance of each process.
        commits: the commits of each process.
        patches: the other attributes that are replaced.
    """

    table: type[OffsetsStore] = OffsetsStore
    log: type[DeltaLog] = DeltaLog
    maintenance: type[Maintenance] = Maintenance
    commits: type[CommitQueue] = CommitQueue
    patches: tuple[Patch, ...] = ()


OFFSETS_SOUND = OffsetsVariant()
"""The shipped code."""


@dataclass(slots=True)
class OffsetsWorld:
    """The storage, the time, the model and the conditions of one simulation."""

    scheduler: Scheduler
    clock: Clock
    store: SimulatedStore
    truth: TrueOffsets
    profile: OffsetsProfile
    variant: OffsetsVariant
    is_ending: bool = False

    def open_table(self) -> OpenOffsetsTable:
        """Return a new handle of the table, as a new process has it."""
        return OpenOffsetsTable(self)

    def end_faults(self) -> None:
        """Let the storage work, and tell the actors to end."""
        self.store.faults = self.profile.faults.without_faults()
        self.is_ending = True

    def rest(self, mean_ms: float) -> None:
        """Let other actors run for a random time with this mean."""
        self.scheduler.pass_time(self.scheduler.random.expovariate(1 / mean_ms))


class OpenOffsetsTable:
    """One process's handle of the table."""

    def __init__(self, world: OffsetsWorld) -> None:
        variant = world.variant
        self.table = variant.table(world.store, world.clock)
        self.table.log = variant.log(world.store, OFFSETS_TABLE, world.clock)
        self.commits = variant.commits(self.table)
        self.maintenance = variant.maintenance(self.table, self.commits, _image)
        self.table.maintain = self._maintain

    def _maintain(self) -> None:
        with suppress(SparkLogError):
            self.maintenance.run()

    def commit(self, group: str, offset: int | None, generation: int) -> None:
        """Commit an offset; None: begin a generation."""
        rows = () if offset is None else (Row(KEY, offset),)
        self.commits.submit(
            CommitRequest(group, generation, "", lambda _: rows, float("inf"), rows)
        )

    def read(self, group: str) -> int:
        """Return the committed offset of a group; -1: none."""
        self.table.refresh()
        found = self.table.committed_offsets(group).present().get(KEY)
        return -1 if found is None else found.offset

    def generation(self, group: str) -> int:
        """Return the group's generation that this process read last."""
        return max(0, self.table.transaction(group).version)


def _image() -> MetadataImage:
    image = MetadataImage()
    image.replay(TopicRecord(name=KEY.topic, topic_id=KEY.topic_id))
    image.replay(PartitionRecord(topic_id=KEY.topic_id, partition_id=KEY.partition))
    return image


def small_table(scheduler: Scheduler, profile: OffsetsProfile) -> tuple[Patch, ...]:
    """Return patches that make the table small, quick to maintain, and dependent on the seed alone.

    They are numbers of pure functions and of every handle of the table's log, which no caller
    chooses, and sources of chance: ids, and a call on another thread. `Maintenance` has the others.
    """
    delay = f"interval {DELETE_DELAY_MS} milliseconds"
    properties = TABLE_PROPERTIES | {
        "delta.checkpointInterval": str(profile.checkpoint_interval),
        "delta.logRetentionDuration": delay,
        "delta.deletedFileRetentionDuration": delay,
    }

    def uuid4() -> uuid.UUID:
        return uuid.UUID(int=scheduler.random.getrandbits(128), version=4)

    return (
        (DeltaLog, "deletion_delay_ms", float(DELETE_DELAY_MS)),
        # Vandals are as fast as other processes here: only a new listing shows their work.
        (DeltaLog, "listing_valid_ms", 0.0 if profile.vandals else DELETE_DELAY_MS / 4),
        (offsets_creation, "TABLE_PROPERTIES", properties),
        (commit_times, "TOLERANCE_US", DELETE_DELAY_MS * 20),
        (CommitQueue, "maintenance_every", profile.versions_per_maintenance),
        (CommitQueue, "max_backoff_ms", 0.0),
        (CommitThrottle, "max_pause_ms", 0.0),
        (offsets_compaction, "FILES_PER_TIER", profile.files_per_tier),
        (offsets_store, "call_beside", call_at_once),
        (uuid, "uuid4", uuid4),
    )
