"""The simulation of the stripes of one topic."""

from __future__ import annotations

from random import Random
from typing import ClassVar

from spark_log.log.read import IsolationLevel
from spark_log.log.segment import file as segment_file
from spark_log.log.stripe import home as stripe_home
from spark_log.log.stripe import reader as stripe_reader
from spark_log.log.stripe import tail as stripe_tail
from spark_log.log.stripe import take_home
from spark_log.log.stripe.group_commit import GroupCommit
from spark_log.log.stripe.reader import StripeReader
from tests.simulation.faults import DELETE_DELAY_MS
from tests.simulation.patches import SHIPPED, PatchVariant
from tests.simulation.scheduler import SimulatedClock
from tests.simulation.simulation import Simulation
from tests.simulation.store import RangedSimulatedStore, SimulatedDisk, SimulatedStore
from tests.simulation.stripes.maintenance import Cleaner, Merger, Taker
from tests.simulation.stripes.profile import StripesProfile, draw_stripes_profile
from tests.simulation.stripes.readers import Reader
from tests.simulation.stripes.true_stripes import TOPIC, TrueStripes
from tests.simulation.stripes.world import (
    SharedProcess,
    SimulatedCondition,
    SimulatedLock,
    StripesWorld,
)
from tests.simulation.stripes.writers import (
    Finisher,
    PlainWriter,
    ProducerWriter,
    TransactionalWriter,
)
from tests.simulation.violation import ViolationError
from tests.simulation.wall_clocks import WallClocks

_LEVELS: tuple[IsolationLevel, ...] = ("read_uncommitted", "read_committed")


class StripesSimulation(Simulation):
    """Writers, readers, processes that take home, mergers and cleaners of stripes."""

    MAX_STEPS_TO_END: ClassVar[int] = 20_000
    draw_profile = staticmethod(draw_stripes_profile)
    world: StripesWorld

    def __init__(self, seed: int, variant: PatchVariant = SHIPPED) -> None:
        """Return a simulation of the shipped stripes, or of those without a safety rule."""
        profile = self.draw_profile(Random(seed))
        super().__init__(seed, profile, profile, profile.steps)
        disk = SimulatedDisk(SimulatedClock(self.scheduler), "stripes")
        disk.delete_directory(TOPIC)
        self.world = self.make_world(disk, WallClocks(self.scheduler, seed), profile)
        scheduler = self.scheduler

        def condition() -> SimulatedCondition:
            return SimulatedCondition(scheduler)

        def lock() -> SimulatedLock:
            return SimulatedLock(scheduler)

        self.patches = (
            (GroupCommit, "condition_class", staticmethod(condition)),
            (StripeReader, "lock_class", staticmethod(lock)),
            (stripe_reader, "OBJECTS_PER_LISTING", profile.objects_per_listing),
            (stripe_reader, "MAX_OPEN_OBJECTS", 2),
            (stripe_home, "GATHERED_BYTES", 1000),
            (stripe_tail, "OBJECTS_AHEAD", profile.objects_ahead),
            (stripe_tail, "OBJECTS_ONE_BY_ONE", 1),
            *(
                ((segment_file, name, 2048) for name in ("WHOLE_BYTES", "TAIL_BYTES"))
                if profile.is_ranged
                else ()
            ),
            *variant.patches,
        )

    def make_world(
        self, disk: SimulatedDisk, clock: WallClocks, profile: StripesProfile
    ) -> StripesWorld:
        """Return the world, whose store is on a disk."""
        truth = TrueStripes(disk)
        store_class = RangedSimulatedStore if profile.is_ranged else SimulatedStore
        store = store_class(disk, self.scheduler, truth, profile)
        return StripesWorld(self.scheduler, clock, store, truth, profile)

    @property
    def records(self) -> int:
        """Number of records that were appended."""
        return self.world.truth.records

    def spawn_actors(self) -> None:
        """Make the actors that the profile has."""
        world, profile = self.world, self.world.profile
        spawn, random = world.scheduler.spawn_mortal, world.scheduler.random
        for number in range(profile.writers):
            process = SharedProcess(world)
            for thread in range(random.choice((1, 2))):
                spawn(f"writer {number}.{thread}", ProducerWriter(world, process).run)
            self._spawn_readers(f"reader of writer {number}", process)
        for number in range(profile.plain_writers):
            spawn(f"plain {number}", PlainWriter(world, f"w{number}").run)
        for _ in range(profile.twins):
            producer_id = world.next_producer_id()
            for which in ("left", "right"):
                writer = ProducerWriter(world, producer_id=producer_id)
                spawn(f"twin {which}", writer.run)
        for _ in range(profile.epoch_pairs):
            producer_id = world.next_producer_id()
            after_ms = DELETE_DELAY_MS * random.choice((0.1, 0.5, 1))
            spawn("old epoch", ProducerWriter(world, producer_id=producer_id).run)
            newer = ProducerWriter(world, None, producer_id, 1, after_ms)
            spawn("new epoch", newer.run)
        for number in range(profile.transactional):
            spawn(f"transactional {number}", TransactionalWriter(world).run)
        for number in range(profile.finishers if profile.transactional else 0):
            spawn(f"finisher {number}", Finisher(world).run)
        for number in range(profile.readers):
            self._spawn_readers(f"reader {number}")
        for number in range(profile.takers):
            spawn(f"taker {number}", Taker(world).run)
        for number in range(profile.cleaners):
            spawn(f"cleaner {number}", Cleaner(world).run)
        for number in range(profile.mergers):
            spawn(f"merger {number}", Merger(world).run)

    def _spawn_readers(self, name: str, writing: SharedProcess | None = None) -> None:
        """Make the threads of one process that reads.

        Args:
            name: a name for the threads.
            writing: the process, if it appends, too, as a gateway.
        """
        world = self.world
        process = writing or SharedProcess(world)
        for thread in range(world.scheduler.random.choice((1,) if writing else (1, 2))):
            reader = Reader(world, world.scheduler.random.choice(_LEVELS), process)
            world.scheduler.spawn_mortal(f"{name}.{thread}", reader.run)

    def check_end(self) -> None:
        """Check that a new process reads all records, before and after all went home."""
        world = self.world
        for is_at_home in (False, True):
            for stripe in range(world.profile.stripes):
                if is_at_home:
                    self._take_home(stripe)
            for partition in range(world.profile.partitions):
                for level in _LEVELS:
                    self._check_whole(partition, level)

    def _take_home(self, stripe: int) -> None:
        directory = self.world.directory(stripe)
        for _ in range(2):
            if take_home(directory, self.world.partition_directory) is None:
                return
        raise ViolationError(f"stripe {stripe} does not come home")

    def _check_whole(self, partition: int, level: IsolationLevel) -> None:
        true, reader = self.world.truth.partitions[partition], Reader(self.world, level)
        log = self.world.open_log(self.world.open_stripes(), partition)
        end = true.stable if level == "read_committed" else true.end
        offset = 0
        while True:
            batches, next_offset = log.read(offset, isolation_level=level)
            reader.check(partition, offset, batches, next_offset, end)
            if next_offset == offset:
                break
            offset = next_offset
        if offset != end:
            raise ViolationError(f"{offset} records of {partition} can be read of {end}")
