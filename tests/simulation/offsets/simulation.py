"""The simulation of the offsets table and its log."""

from __future__ import annotations

from random import Random

from spark_log.coordinator.offsets.creation import MARKER
from spark_log.delta.delta_log import DeltaLog
from spark_log.errors import IllegalGenerationError, SparkLogError
from spark_log.storage import OFFSETS_TABLE, Store
from tests.simulation.faults import DELETE_DELAY_MS
from tests.simulation.log.wrong_clocks import WrongClock
from tests.simulation.offsets.profile import OffsetsProfile, draw_offsets_profile
from tests.simulation.offsets.true_offsets import LOG, TrueOffsets
from tests.simulation.offsets.world import (
    OFFSETS_SOUND,
    ListedDeltaStore,
    OffsetsVariant,
    OffsetsWorld,
    OpenOffsetsTable,
    small_table,
    write_checkpoint,
)
from tests.simulation.scheduler import SimulatedClock
from tests.simulation.simulation import Simulation
from tests.simulation.store import DeltaStore, SimulatedDisk
from tests.simulation.violation import ViolationError


class OffsetsCommitter:
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

    def _commit(self, table: OpenOffsetsTable, group: str) -> None:
        world, random = self._world, self._world.scheduler.random
        # Only of some groups: offsets of a group with members do not expire.
        is_fence = group == "g0" and random.random() < world.profile.fence
        generation = table.generation(group) + is_fence
        offset = None if is_fence else random.randrange(1, 1 << 40)
        table.commit(group, offset, generation)
        if offset is not None:
            world.scheduler.note(f"{group}: {offset} acknowledged")
            world.truth.check_acknowledged(group, offset)


class ForeignCleanup:
    """A program that cleans up the log by a clock that is days ahead, as delta-rs does.

    It deletes versions before a checkpoint, seconds after they were written.
    """

    def __init__(self, world: OffsetsWorld) -> None:
        self._world = world

    def run(self) -> None:
        """Work until the faults end."""
        world = self._world
        while not world.is_ending:
            world.rest(world.profile.vandal_rest_ms)
            try:
                self._clean_up(world.store)
            except SparkLogError as error:
                world.scheduler.note(f"{type(error).__name__}: {error}")

    def _clean_up(self, store: Store) -> None:
        world = self._world
        log = DeltaLog(store, OFFSETS_TABLE, world.clock)
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


class OffsetsSimulation(Simulation):
    """Processes that commit offsets to one table, and a program that removes versions of it."""

    profile: OffsetsProfile
    world: OffsetsWorld

    def __init__(self, seed: int, variant: OffsetsVariant = OFFSETS_SOUND) -> None:
        """Return a simulation of the shipped table, or of one without a safety rule."""
        profile = draw_offsets_profile(Random(seed))
        super().__init__(seed, profile, profile.faults, profile.steps)
        storage_clock = SimulatedClock(self.scheduler)
        disk = SimulatedDisk(storage_clock)
        disk.delete(MARKER)
        truth = TrueOffsets(disk, storage_clock)
        store_class = ListedDeltaStore if profile.is_listed else DeltaStore
        store = store_class(disk, self.scheduler, truth, profile.faults)
        clock = WrongClock(self.scheduler, seed, profile.wrong_clocks)
        self.world = OffsetsWorld(self.scheduler, clock, store, truth, profile, variant)
        self.patches = (*small_table(self.scheduler, profile), *variant.patches)

    @property
    def records(self) -> int:
        """Number of versions of the table."""
        return self.world.truth.next_version

    def spawn_actors(self) -> None:
        """Make the actors that the profile has."""
        world, scheduler, profile = self.world, self.scheduler, self.profile
        for number in range(profile.committers):
            scheduler.spawn_mortal(f"committer {number}", OffsetsCommitter(world).run)
        for number in range(profile.vandals):
            scheduler.spawn_mortal(f"vandal {number}", ForeignCleanup(world).run)

    def check_end(self) -> None:
        """Check that a new process reads all offsets, before and after maintenance."""
        world = self.world
        table = world.open_table()
        for is_tidied in (False, True):
            if is_tidied:
                table.maintenance.run(is_forced=True)
                table = world.open_table()
            table.table.refresh()
            groups = sorted(world.truth.history.keys() | {"g0"})
            found = {group: offset for group in groups if (offset := table.read(group)) >= 0}
            if found != world.truth.positions:
                raise ViolationError(
                    f"in the end {found} is read, and {world.truth.positions} is true"
                )
