"""Runs one simulation of the offsets table and its log; a broken guarantee is an error."""

from __future__ import annotations

from random import Random
from typing import cast

from spark_log.coordinator.offsets.creation import MARKER
from spark_log.coordinator.offsets.store import DIRECTORY
from spark_log.delta.delta_log import DeltaLog
from spark_log.errors import IllegalGenerationError, SparkLogError
from spark_log.storage import Store
from tests.simulation.log.profile import DELETE_DELAY_MS
from tests.simulation.log.simulation import SimulationResult, report_failures, run_to_end
from tests.simulation.log.true_log import TrueLog, ViolationError
from tests.simulation.log.wrong_clocks import WrongClock
from tests.simulation.offsets.profile import draw_offsets_profile
from tests.simulation.offsets.true_offsets import LOG, TrueOffsets
from tests.simulation.offsets.world import (
    OFFSETS_SOUND,
    ListedTableStore,
    OffsetsVariant,
    OffsetsWorld,
    SimulatedTable,
    TableStore,
    small_table,
    write_checkpoint,
)
from tests.simulation.patches import patched
from tests.simulation.scheduler import Scheduler, SimulatedClock
from tests.simulation.store import SimulatedDisk

_MAX_STEPS_TO_END = 20_000


def simulate_offsets(seed: int, variant: OffsetsVariant = OFFSETS_SOUND) -> SimulationResult:
    """Run one simulation to its end.

    Args:
        seed: determines every step of the simulation.
        variant: the shipped table, or one without a safety rule.

    Raises:
        SimulationFailedError: a guarantee did not hold; has the trace.
    """
    profile = draw_offsets_profile(Random(seed))
    scheduler = Scheduler(seed)
    storage_clock = SimulatedClock(scheduler)
    disk = SimulatedDisk(storage_clock)
    for directory in (LOG, DIRECTORY):
        disk.delete_directory(directory)
    disk.delete(MARKER)
    truth = TrueOffsets(disk, storage_clock)
    store_class = ListedTableStore if profile.is_listed else TableStore
    store = store_class(disk, scheduler, cast(TrueLog, truth), profile.faults)
    clock = WrongClock(scheduler, seed, profile.wrong_clocks)
    world = OffsetsWorld(scheduler, clock, store, truth, profile, variant)
    with (
        patched(*small_table(scheduler, profile), *variant.patches),
        report_failures(seed, profile, scheduler),
    ):
        _run(world)
    return SimulationResult(scheduler.steps, truth.next_version, scheduler.trace)


class Committer:
    """A process that commits offsets of groups, reads them, and pauses at times."""

    def __init__(self, world: OffsetsWorld) -> None:
        self._world = world

    def run(self) -> None:
        """Work until the faults end; called again after each crash."""
        world, random = self._world, self._world.scheduler.random
        table = world.open_table()
        while not world.is_ending:
            world.rest(world.profile.think_ms)
            if random.random() < world.profile.idle:
                world.scheduler.note("does nothing for a while")
                world.rest(1.5 * DELETE_DELAY_MS)
            group = f"g{random.randrange(world.profile.groups)}"
            try:
                began = world.truth.moment()
                offset = table.read(group)
                world.truth.check_read(group, offset, began)
                self._commit(table, group)
            except IllegalGenerationError:
                world.scheduler.note(f"{group}: refused")
            except SparkLogError as error:
                world.scheduler.note(f"{type(error).__name__}: {error}")

    def _commit(self, table: SimulatedTable, group: str) -> None:
        world, random = self._world, self._world.scheduler.random
        # Only of some groups: offsets of a group with members do not expire.
        is_fence = group == "g0" and random.random() < world.profile.fence
        generation = table.generation(group) + is_fence
        offset = None if is_fence else random.randrange(1, 1 << 40)
        table.commit(group, offset, generation)
        if offset is not None:
            world.scheduler.note(f"{group}: {offset} acknowledged")
            world.truth.check_acknowledged(group, offset)


class Vandal:
    """A program that cleans up the log by a clock that is days ahead, as delta-rs does.

    It deletes versions before a checkpoint, seconds after they were written.
    """

    def __init__(self, world: OffsetsWorld) -> None:
        self._world = world

    def run(self) -> None:
        """Work until the faults end."""
        world = self._world
        while not world.is_ending:
            world.rest(DELETE_DELAY_MS)
            try:
                self._clean_up(world.store)
            except SparkLogError as error:
                world.scheduler.note(f"{type(error).__name__}: {error}")

    def _clean_up(self, store: Store) -> None:
        world = self._world
        log = DeltaLog(store, DIRECTORY, world.clock)
        log.refresh()
        if log.state.version < 1:
            return
        write_checkpoint(store, log.state)
        world.scheduler.note(f"frees everything before version {log.state.version}")
        for number in sorted(log.list_log().versions):
            if number < log.state.version:
                path = f"{LOG}/{number:020}.json"
                world.truth.vandalized.add(path)
                store.delete(path)


def _run(world: OffsetsWorld) -> None:
    scheduler, profile = world.scheduler, world.profile
    for number in range(profile.committers):
        scheduler.spawn_mortal(f"committer {number}", Committer(world).run)
    for number in range(profile.vandals):
        scheduler.spawn_mortal(f"vandal {number}", Vandal(world).run)
    run_to_end(world, profile.faults, profile.steps, _MAX_STEPS_TO_END)
    _check_end(world)


def _check_end(world: OffsetsWorld) -> None:
    """Check that a new process reads all offsets, before and after maintenance."""
    table = world.open_table()
    for is_tidied in (False, True):
        if is_tidied:
            table.maintenance.run(is_forced=True)
            table = world.open_table()
        table.table.refresh()
        groups = sorted(world.truth.history.keys() | {"g0"})
        found = {group: offset for group in groups if (offset := table.read(group)) >= 0}
        if found != world.truth.positions:
            raise ViolationError(f"in the end {found} is read, and {world.truth.positions} is true")
