"""The simulation of a topic whose number of stripes changes."""

from __future__ import annotations

from random import Random
from typing import ClassVar

from spark_log.errors import StorageTimeoutError
from spark_log.log.read import IsolationLevel
from spark_log.log.stripe import home as stripe_home
from spark_log.log.stripe import reader as stripe_reader
from spark_log.log.stripe.group_commit import GroupCommit
from spark_log.log.stripe.reader import StripeReader
from tests.simulation.patches import SHIPPED, PatchVariant
from tests.simulation.replication.world import BrokerDisk
from tests.simulation.scheduler import SimulatedClock
from tests.simulation.segment_files import SegmentFiles
from tests.simulation.simulation import Simulation
from tests.simulation.store import SimulatedStore
from tests.simulation.stripe_changes.actors import (
    Changer,
    ChangesCleaner,
    ChangesReader,
    ChangesTaker,
)
from tests.simulation.stripe_changes.true_topic import TrueTopic
from tests.simulation.stripe_changes.world import ChangesWorld, small_changes
from tests.simulation.stripes.maintenance import Merger
from tests.simulation.stripes.profile import draw_stripes_profile
from tests.simulation.stripes.readers import Reader
from tests.simulation.stripes.world import SimulatedCondition, SimulatedLock
from tests.simulation.stripes.writers import (
    Finisher,
    PlainWriter,
    ProducerWriter,
    TransactionalWriter,
)
from tests.simulation.violation import ViolationError
from tests.simulation.wall_clocks import WallClocks

_LEVELS: tuple[IsolationLevel, ...] = ("read_uncommitted", "read_committed")


class StripeChangesSimulation(Simulation):
    """Writers and readers of a topic, and processes that change its number of stripes."""

    MAX_STEPS_TO_END: ClassVar[int] = 20_000
    world: ChangesWorld

    def __init__(self, seed: int, variant: PatchVariant = SHIPPED) -> None:
        """Return a simulation of the shipped code, or of that without a safety rule."""
        profile = draw_stripes_profile(Random(seed))
        super().__init__(seed, profile, profile, 2 * profile.steps)
        disk = BrokerDisk(SimulatedClock(self.scheduler), "cluster")
        truth = TrueTopic(disk)
        store = SimulatedStore(disk, self.scheduler, truth, profile.without_faults())
        clock = WallClocks(self.scheduler, seed)
        self.world = ChangesWorld(self.scheduler, clock, store, truth, profile)
        scheduler = self.scheduler

        def condition() -> SimulatedCondition:
            return SimulatedCondition(scheduler)

        def lock() -> SimulatedLock:
            return SimulatedLock(scheduler)

        self.patches = (
            *small_changes(self.world),
            (GroupCommit, "condition_class", staticmethod(condition)),
            (StripeReader, "lock_class", staticmethod(lock)),
            (stripe_reader, "OBJECTS_PER_LISTING", profile.objects_per_listing),
            (stripe_home, "GATHERED_BYTES", 1000),
            *SegmentFiles().patches,
            *variant.patches,
        )

    @property
    def records(self) -> int:
        """Number of records that were appended."""
        return self.world.truth.records

    def spawn_actors(self) -> None:
        """Create the topic, and make the actors that the profile has."""
        world, profile = self.world, self.world.profile
        world.create_topic()
        spawn, random = world.scheduler.spawn_mortal, world.scheduler.random
        for number in range(max(1, profile.writers)):
            spawn(f"writer {number}", ProducerWriter(world).run)
        for number in range(profile.plain_writers):
            spawn(f"plain {number}", PlainWriter(world, f"w{number}").run)
        for _ in range(profile.twins):
            producer_id = world.next_producer_id()
            for which in ("left", "right"):
                spawn(f"twin {which}", ProducerWriter(world, producer_id=producer_id).run)
        for number in range(profile.transactional):
            spawn(f"transactional {number}", TransactionalWriter(world).run)
        for number in range(profile.finishers if profile.transactional else 0):
            spawn(f"finisher {number}", Finisher(world).run)
        for number in range(profile.readers):
            reader = ChangesReader(world, random.choice(_LEVELS))
            spawn(f"reader {number}", reader.run)
        for number in range(random.choice((1, 1, 2))):
            spawn(f"changer {number}", Changer(world).run)
        spawn("taker", ChangesTaker(world).run)
        spawn("cleaner", ChangesCleaner(world).run)
        for number in range(profile.mergers):
            spawn(f"merger {number}", Merger(world).run)
        world.store.faults = profile

    def check_end(self) -> None:
        """Check that a new process reads all records of each partition, in a limited time."""
        self.scheduler.spawn("reader of the end", self._read_all, is_mortal=False)
        self.run_to_end()

    def _read_all(self) -> None:
        world = self.world
        opened = world.open_stripes()
        for partition in range(world.profile.partitions):
            for level in _LEVELS:
                true, reader = world.truth.partitions[partition], Reader(world, level)
                log = world.open_log(opened, partition)
                end = true.stable if level == "read_committed" else true.end
                offset = 0
                while True:
                    try:
                        batches, next_offset = log.read(offset, isolation_level=level)
                    except StorageTimeoutError:  # requests take as long as a listing is valid
                        continue
                    reader.check(partition, offset, batches, next_offset, end)
                    if next_offset == offset:
                        break
                    offset = next_offset
                if offset != end:
                    raise ViolationError(f"{offset} of {partition} can be read of {end}")
