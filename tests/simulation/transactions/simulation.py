"""The simulation of transactions."""

from __future__ import annotations

from random import Random
from typing import cast

from spark_log.log.verify.finding import LogFindingKind, LogSeverity
from spark_log.log.verify.verifier import Verifier
from spark_log.transaction import TopicIdPartition
from tests.simulation.log.maintenance import Cleaner, Merger, Retention, Vandal
from tests.simulation.log.world import World
from tests.simulation.patches import SHIPPED, PatchVariant
from tests.simulation.scheduler import SimulatedClock
from tests.simulation.simulation import Simulation
from tests.simulation.store import SimulatedDisk, SimulatedStore
from tests.simulation.transactions.jobs import Driver, Executor
from tests.simulation.transactions.maintenance import IdCleaning, PartitionWorld
from tests.simulation.transactions.owners import PlainWriter, TransactionalProducer
from tests.simulation.transactions.profile import TransactionsProfile, draw_transactions_profile
from tests.simulation.transactions.readers import Inspector, PartitionReader
from tests.simulation.transactions.true_transactions import TrueTransactions
from tests.simulation.transactions.world import (
    JOB,
    TOPIC_ID,
    OpenLogs,
    TransactionsWorld,
    open_coordinator,
    small_transactions,
    topic_image,
)
from tests.simulation.violation import ViolationError
from tests.simulation.wall_clocks import WallClocks


class TransactionsSimulation(Simulation):
    """Producers, jobs, readers and cleaners of transactions over several partitions."""

    profile: TransactionsProfile
    world: TransactionsWorld

    def __init__(self, seed: int, variant: PatchVariant = SHIPPED) -> None:
        """Return a simulation of the shipped code, or of one without a safety rule."""
        profile = draw_transactions_profile(Random(seed))
        super().__init__(seed, profile, profile.faults, profile.steps)
        storage_clock, clock = SimulatedClock(self.scheduler), WallClocks(self.scheduler, seed)
        image = topic_image(profile)
        topic = image.find_by_id(TOPIC_ID)
        assert topic is not None
        disk = SimulatedDisk(storage_clock)
        self.ids = [f"producer {number}" for number in range(profile.producers)] + [JOB]
        directories = {
            topic.partition_directory(number): TopicIdPartition(TOPIC_ID, number)
            for number in topic.partitions
        }
        truth = TrueTransactions(disk, directories, self.ids, is_compacted=profile.is_compacted)
        store = SimulatedStore(disk, self.scheduler, truth, profile.faults)
        self.world = TransactionsWorld(self.scheduler, clock, store, truth, profile, image)
        self.patches = (*small_transactions(profile), *variant.patches)

    @property
    def records(self) -> int:
        """Number of transactions that were decided."""
        return len(self.world.truth.decided)

    def spawn_actors(self) -> None:
        """Make the actors that the profile has."""
        world = self.world
        profile, spawn, random = world.profile, world.scheduler.spawn_mortal, world.scheduler.random
        for number in range(profile.producers):
            name = f"producer {number}"
            spawn(name, TransactionalProducer(world, f"p{number}", name).run)
        for number in range(profile.zombies):
            spawn(f"twin {number}", TransactionalProducer(world, f"z{number}", "producer 0").run)
        for number in range(profile.drivers):
            spawn(f"driver {number}", Driver(world).run)
        for number in range(profile.executors):
            spawn(f"executor {number}", Executor(world).run)
        for partition in world.partitions:
            name = f"reader {partition.partition}"
            spawn(name, PartitionReader(world, partition, "read_committed").run)
        for number in range(profile.followers):
            partition = random.choice(world.partitions)
            spawn(f"follower {number}", PartitionReader(world, partition, "read_uncommitted").run)
            spawn(f"inspector {number}", Inspector(world, random.choice(world.partitions)).run)
        for number in range(profile.faults.writers):
            spawn(f"writer {number}", PlainWriter(world, f"w{number}").run)
        for number in range(profile.cleanings):
            spawn(f"cleaning {number}", IdCleaning(world).run)
        faults = profile.faults
        for actor, count in (
            (Merger, faults.mergers),
            (Cleaner, faults.cleaners),
            (Retention, faults.retentions),
            (Vandal, faults.vandals),
        ):
            for number in range(count):
                # A vandal knows the directory of the first partition.
                at = 0 if actor is Vandal else random.randrange(profile.partitions)
                part = PartitionWorld(world, world.partitions[at])
                spawn(f"{actor.__name__.lower()} {number}", actor(cast(World, part)).run)

    def settle(self) -> None:
        """Run to the end, and end transactions that were only registered: they block no reader."""
        self.run_to_end()
        for transactional_id in self.ids:
            coordinator = open_coordinator(self.world.open_cluster(), transactional_id)
            coordinator.initialize(self.profile.timeout_ms)

    def check_end(self) -> None:
        """Check what new handles read, and what ``spark-log verify`` reports."""
        world = self.world
        world.truth.check_end()
        never = {LogFindingKind.LATE_BATCH}
        if not world.profile.faults.vandals:
            never.add(LogFindingKind.WRONG_SNAPSHOT)
        for partition in world.partitions:
            PartitionReader(world, partition, "read_committed").read_all()
            log = OpenLogs(world.open_cluster(), world.image).log(partition)
            for finding in Verifier(log.replica).findings():
                if finding.severity is LogSeverity.ERROR or finding.kind in never:
                    raise ViolationError(f"verify: {finding.message}")
