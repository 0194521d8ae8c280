"""The state that the actors of a simulated table share, and one process's view of the table.

There are no Parquet segments yet. Here a merged segment of generation 2 or higher, except each
fourth, and every segment of a compaction stands for one: its bytes are Arrow's and its name ends in
``.log``, while the table calls it ``.parquet``. So a listing tells the kind, as it will, and merges
of either kind cover those of the other, as they will when a table is turned on and off.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from spark_log.delta import DataFile, DeltaLog
from spark_log.errors import AlreadyExistsError, NotFoundError
from spark_log.log.clean import compactor, expired_tombstones
from spark_log.log.clean.delete_horizons import DeleteHorizons
from spark_log.log.clean.log_to_clean import first_dirty_offset
from spark_log.log.directory.log_view import LogView
from spark_log.log.directory.partition_directory import PartitionDirectory
from spark_log.log.files.file_names import (
    MAX_MERGE_GENERATION,
    SegmentName,
    generation_name,
)
from spark_log.log.files.live_segments import live_log
from spark_log.record.batch_header import BatchHeader
from spark_log.storage import FileInfo
from spark_log.table import compaction_end, free_names
from spark_log.table.topic_table import (
    SETTING_PROPERTY,
    CleanupPolicy,
    PartitionTable,
    TableSetting,
    changes,
    parquet_path,
    parse_partition,
)
from tests.simulation.compaction.actors import CompactedWorld
from tests.simulation.faults import DELETE_DELAY_MS
from tests.simulation.log.true_log import DIRECTORY, TOPIC_ID
from tests.simulation.patches import Patch
from tests.simulation.table.profile import TableProfile
from tests.simulation.table.true_table import PARTITION, TABLE, TrueTable

_MIN_PARQUET_GENERATION = 2


def is_parquet(name: SegmentName) -> bool:
    """Return whether a segment stands for a Parquet segment."""
    if name.is_compacted:
        return True
    return name.generation >= _MIN_PARQUET_GENERATION and name.generation % 4 != 0


def parquet_names(files: Iterable[FileInfo]) -> list[SegmentName]:
    """Return the segments in a listing that stand for Parquet segments."""
    names = (SegmentName.parse(file.name) for file in files)
    return [name for name in names if name is not None and is_parquet(name)]


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
        self.log = DeltaLog(world.store, TABLE, world.clock)

    def read(self) -> PartitionTable:
        """Read the newest version."""
        self.log.refresh()
        return parse_partition(self.log.state, TOPIC_ID, 0, PARTITION)

    def history(self, past_ms: float, now_us: int) -> list[PartitionTable] | None:
        """Return the partition in each version since some time ago, up to the one read last.

        Returns:
            The versions, the newest last; None if the first of them was deleted.
        """
        listed = self.log.list_log()
        newest = self.log.state.version
        times_us = {number: us for number, us in listed.versions.items() if number <= newest}
        if newest < 0:
            return []
        first = free_names.first_version_needed(times_us, int(now_us - past_ms * 1000))
        if first < 0:
            return None
        # Versions never change; those that were read are not read again.
        return self._world.table.versions[first : newest + 1]

    def commit(self, before: PartitionTable, after: PartitionTable) -> None:
        """Append the version after the one that was read."""
        files = {
            name: DataFile(parquet_path(PARTITION, name), 1, 1, None, None)
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
            actions.append({"metaData": {"id": TOPIC_ID, "configuration": configuration}})
        append(self.log, actions)
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
    files = tuple(world.store.list(DIRECTORY))
    took_ms = world.clock.monotonic_ms() - began_ms
    if took_ms >= DELETE_DELAY_MS / 2 or live_log(files).base_after_gap is not None:
        return None
    return files


def named_end(world: TableWorld, generation: int) -> int | None:
    """Return the end that a generation names; None if it names none, or its file is deleted."""
    try:
        content = world.store.open_buffer(f"{DIRECTORY}/{generation_name(generation)}")
    except NotFoundError:
        return None
    return compaction_end.decode_compaction_end(content.to_pybytes(), generation)


# --- compactions that know of the table ----------------------------------------------------------


class CompactionsTable:
    """The table as the compactions of one actor see it.

    Attributes:
        limit_offset: the end of the range that they compact, if it is shortened.
        newest: the version that was read last.
        tombstones_from: the offset from which on the running one removes no tombstones.
    """

    def __init__(self, world: TableWorld) -> None:
        self._world = world
        self._table = SimulatedTable(world)
        self.limit_offset = float("inf")
        self.newest = PartitionTable()
        self.tombstones_from = float("inf")

    def take_generation(self, view: LogView, *, keeps_clean: bool) -> int | None:
        """Look which tombstones have to stay; name the end, and take a generation."""
        world = self._world
        generation = view.live.compaction_generation + 1
        passes = generation - view.live.clean_generation if keeps_clean else 0
        content = world.scheduler.random.randbytes(16 + passes)
        self.tombstones_from = self.read_limit()
        if self.newest.setting.policy != CleanupPolicy.NONE:
            own_end = first_dirty_offset(view) if keeps_clean else self._own_end(view)
            end = self._end_to_name(own_end, view)
            content = compaction_end.encode_compaction_end(end, generation, passes)
            world.scheduler.note(f"generation {generation} ends at {own_end}, names {end}")
        try:
            world.store.put_if_absent(f"{DIRECTORY}/{generation_name(generation)}", content)
        except AlreadyExistsError:
            return None
        return generation

    def read_limit(self) -> float:
        """Return the offset from which on no tombstone is removed (protocol B13)."""
        world = self._world
        self.newest = self._table.read()
        now_us = world.storage_time_us()
        history = self._table.history(world.config.delete_retention_ms, now_us)
        return 0 if history is None else free_names.tombstone_limit(history)

    def _own_end(self, view: LogView) -> int:
        """Return the end of the range that `compact` rewrites."""
        end = max(view.log_start_offset, first_dirty_offset(view))
        for segment in view.live.segments[:-1]:
            assert segment.end_offset is not None
            if segment.end_offset > self.limit_offset:
                break
            end = max(end, segment.end_offset)
        return end

    def _end_to_name(self, own_end: int, view: LogView) -> int:
        newest = view.live.compaction_generation
        is_first = newest == MAX_MERGE_GENERATION
        named = None if is_first else named_end(self._world, newest)
        return compaction_end.end_to_name(own_end, named, view.log_end_offset, is_first=is_first)


def compactions_know_the_table(world: TableWorld) -> tuple[Patch, ...]:
    """Return the patches by which the shipped compactions keep the rules of the table."""

    def take_generation(
        directory: PartitionDirectory, view: LogView, *, keeps_clean: bool = False
    ) -> int | None:
        return world.compactions_table().take_generation(view, keeps_clean=keeps_clean)

    class Horizons(DeleteHorizons):
        def has_passed(self, header: BatchHeader, base_offset: int) -> bool:
            limit = world.compactions_table().tombstones_from
            is_below = base_offset + header.last_offset_delta < limit
            return is_below and super().has_passed(header, base_offset)

    return (
        (compactor, "take_generation", take_generation),
        (expired_tombstones, "take_generation", take_generation),
        (compactor, "DeleteHorizons", Horizons),
    )
