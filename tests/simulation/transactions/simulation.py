"""Runs one simulation of transactions; a broken guarantee is an error."""

from __future__ import annotations

from random import Random
from typing import cast

from spark_log.log.verify.finding import FindingKind, Severity
from spark_log.log.verify.verifier import Verifier
from spark_log.storage import TRANSACTIONS_DIRECTORY
from spark_log.transaction import TopicIdPartition
from tests.simulation.log.maintenance import Cleaner, Merger, Retention, Vandal
from tests.simulation.log.simulation import SimulationResult, report_failures, run_to_end
from tests.simulation.log.true_log import ViolationError
from tests.simulation.log.world import World
from tests.simulation.patches import PatchVariant, patched
from tests.simulation.scheduler import Scheduler, SimulatedClock
from tests.simulation.store import SimulatedDisk, SimulatedStore
from tests.simulation.transactions.jobs import Driver, Executor
from tests.simulation.transactions.maintenance import IdCleaning, PartitionWorld
from tests.simulation.transactions.owners import PlainWriter, TransactionalProducer
from tests.simulation.transactions.profile import draw_transactions_profile
from tests.simulation.transactions.readers import Inspector, Reader
from tests.simulation.transactions.rules import TRANSACTIONS_SOUND
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
from tests.simulation.wall_clocks import WallClocks

_MAX_STEPS_TO_END = 20_000


def simulate_transactions(
    seed: int, variant: PatchVariant = TRANSACTIONS_SOUND
) -> SimulationResult:
    """Run one simulation to its end.

    Args:
        seed: determines every step of the simulation.
        variant: the shipped code, or without a safety rule.

    Raises:
        SimulationFailedError: a guarantee did not hold; has the trace.
    """
    profile = draw_transactions_profile(Random(seed))
    scheduler = Scheduler(seed)
    storage_clock, clock = SimulatedClock(scheduler), WallClocks(scheduler, seed)
    image = topic_image(profile)
    topic = image.find_by_id(TOPIC_ID)
    assert topic is not None
    disk = SimulatedDisk(storage_clock)
    for directory in (topic.directory, TRANSACTIONS_DIRECTORY):
        disk.delete_directory(directory)
    ids = [f"producer {number}" for number in range(profile.producers)] + [JOB]
    directories = {
        topic.partition_directory(number): TopicIdPartition(TOPIC_ID, number)
        for number in topic.partitions
    }
    truth = TrueTransactions(disk, directories, ids, is_compacted=profile.is_compacted)
    store = SimulatedStore(disk, scheduler, truth, profile.faults)
    world = TransactionsWorld(scheduler, clock, store, truth, profile, image)
    with (
        patched(*small_transactions(profile), *variant.patches),
        report_failures(seed, profile, scheduler),
    ):
        _spawn_all(world)
        _run(world, ids)
    return SimulationResult(scheduler.steps, len(truth.decided), scheduler.trace)


def _spawn_all(world: TransactionsWorld) -> None:
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
        spawn(name, Reader(world, partition, "read_committed").run)
    for number in range(profile.followers):
        partition = random.choice(world.partitions)
        spawn(f"follower {number}", Reader(world, partition, "read_uncommitted").run)
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


def _run(world: TransactionsWorld, ids: list[str]) -> None:
    run_to_end(world, world.profile.faults, world.profile.steps, _MAX_STEPS_TO_END)
    for transactional_id in ids:
        # What only registered holds no reader up: the next owner ends it.
        coordinator = open_coordinator(world.open_cluster(), transactional_id)
        coordinator.initialize(world.profile.timeout_ms)
    world.truth.check_end()
    _check_files(world)


def _check_files(world: TransactionsWorld) -> None:
    """Check what new handles read, and what ``spark-log verify`` tells."""
    never = {FindingKind.LATE_BATCH}
    if not world.profile.faults.vandals:
        never.add(FindingKind.WRONG_SNAPSHOT)
    for partition in world.partitions:
        Reader(world, partition, "read_committed").read_all()
        log = OpenLogs(world.open_cluster(), world.image).log(partition)
        for finding in Verifier(log.replica).findings():
            if finding.severity is Severity.ERROR or finding.kind in never:
                raise ViolationError(f"verify: {finding.message}")
