"""Runs one simulation of stripes; a broken guarantee is an error."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from spark_log.errors import SparkLogError
from tests.simulation.log.profile import DELETE_DELAY_MS, Profile, draw_profile
from tests.simulation.log.simulation import SimulationResult, report_failures, run_to_end
from tests.simulation.log.true_log import ViolationError
from tests.simulation.patches import PatchVariant, patched
from tests.simulation.scheduler import Scheduler, SimulatedClock
from tests.simulation.store import SimulatedDisk, SimulatedStore
from tests.simulation.stripes import stripe as prototype
from tests.simulation.stripes.stripe import (
    HoleError,
    StripeReader,
    StripeWriter,
    partition_directory,
    stripe_directory,
)
from tests.simulation.stripes.stripe_state import Entry, Refusal
from tests.simulation.stripes.true_stripes import TrueStripes

STRIPES_SOUND = PatchVariant()
"""The prototype with all of its rules."""

_MAX_STEPS_TO_END = 20_000


@dataclass(frozen=True, slots=True)
class StripesProfile:
    """The conditions of one simulation.

    Attributes:
        faults: the rates of faults of the storage and of processes.
        stripes: number of stripes.
        partitions: number of partitions; number ``p`` is in stripe ``p`` modulo ``stripes``.
        writers: number of writers, each with a producer id of its own.
        twins: number of pairs of writers that append the same records for one producer.
        epoch_pairs: number of pairs of writers of one producer id, the second with a newer epoch.
        readers, mergers, cleaners: numbers of actors.
        think_ms: mean time between two appends of a writer.
        rest_ms: mean time between two rounds of a merger or a cleaner.
    """

    faults: Profile
    stripes: int
    partitions: int
    writers: int
    twins: int
    epoch_pairs: int
    readers: int
    mergers: int
    cleaners: int
    think_ms: float
    rest_ms: float

    def __str__(self) -> str:
        own = (
            f"stripes={self.stripes} partitions={self.partitions} writers={self.writers} "
            f"twins={self.twins} epoch_pairs={self.epoch_pairs} readers={self.readers} "
            f"mergers={self.mergers} cleaners={self.cleaners} think_ms={self.think_ms:g} "
            f"rest_ms={self.rest_ms:g}"
        )
        names = (
            *("latency_ms", "pause", "crash", "failed", "lost_request", "lost_answer"),
            *("resent", "late_copy", "torn_listing", "slow_listing", "steps"),
        )
        return own + "".join(f" {name}={getattr(self.faults, name):g}" for name in names)


def draw_stripes_profile(random: Random) -> StripesProfile:
    """Draw the conditions of a simulation."""
    stripes = random.choice((1, 1, 2))
    profile = StripesProfile(
        faults=replace(
            draw_profile(random),
            latency_ms=DELETE_DELAY_MS / random.choice((10, 40, 200)),
            slow_listing=random.choice((0.0, 0.0, 0.2)),
            steps=random.choice((200, 400, 800)),
        ),
        stripes=stripes,
        partitions=stripes * random.choice((1, 2, 4)),
        writers=random.choice((1, 2, 3)),
        twins=random.choice((0, 0, 1)),
        epoch_pairs=random.choice((0, 0, 1)),
        readers=random.choice((1, 2)),
        mergers=random.choice((1, 1, 2)),
        cleaners=random.choice((1, 1, 2)),
        think_ms=DELETE_DELAY_MS * random.choice((0.02, 0.1, 0.5, 2)),
        rest_ms=DELETE_DELAY_MS * random.choice((0.1, 0.3, 1.0)),
    )
    if random.random() < 0.6:
        return profile
    # Writers stand still while others take home and free what they are about to put.
    return replace(
        profile,
        faults=replace(profile.faults, latency_ms=DELETE_DELAY_MS / 100, pause=0.1, steps=1000),
        writers=3,
        mergers=2,
        cleaners=2,
        think_ms=DELETE_DELAY_MS * 0.1,
        rest_ms=DELETE_DELAY_MS * 0.1,
    )


@dataclass
class StripesWorld:
    """The store, the time, the model and the conditions of one simulation."""

    scheduler: Scheduler
    clock: SimulatedClock
    store: SimulatedStore
    truth: TrueStripes
    profile: StripesProfile
    is_ending: bool = False
    producers: int = 0

    def rest(self, mean_ms: float) -> None:
        """Let other actors run for a random time with this mean."""
        self.scheduler.pass_time(self.scheduler.random.expovariate(1 / mean_ms))

    def next_producer_id(self) -> int:
        """Return a producer id that nobody has."""
        self.producers += 1
        return self.producers

    def stripe_of(self, partition: int) -> int:
        """Return the stripe that a partition belongs to."""
        return partition % self.profile.stripes


class Writer:
    """A process that appends batches of some partitions at once, for one producer."""

    def __init__(
        self,
        world: StripesWorld,
        producer_id: int | None = None,
        epoch: int = 0,
        after_ms: float = 0,
    ) -> None:
        """Return a writer; without a producer id it takes a new one whenever it starts."""
        self._world = world
        self._producer_id = producer_id
        self._epoch = epoch
        self._after_ms = after_ms

    def run(self) -> None:
        """Work until the faults end and all is acknowledged; called again after each crash."""
        world = self._world
        if self._after_ms:
            world.scheduler.pass_time(self._after_ms)
        producer_id = self._producer_id or world.next_producer_id()
        writers = {
            stripe: StripeWriter(world.store, stripe, world.clock)
            for stripe in range(world.profile.stripes)
        }
        waiting: dict[int, Entry] = {}
        sequences = dict.fromkeys(range(world.profile.partitions), 0)
        while waiting or not world.is_ending:
            world.rest(world.profile.think_ms)
            stripe = world.scheduler.random.randrange(world.profile.stripes)
            if not world.is_ending:
                for partition in range(stripe, world.profile.partitions, world.profile.stripes):
                    if partition not in waiting and world.scheduler.random.random() < 0.6:
                        sequence = sequences[partition]
                        waiting[partition] = self._entry(partition, producer_id, sequence)
            entries = [entry for at, entry in waiting.items() if world.stripe_of(at) == stripe]
            if not entries:
                continue
            try:
                outcomes = writers[stripe].append(entries)
            except SparkLogError as error:
                world.scheduler.note(f"{type(error).__name__}: {error}")
                continue
            for entry, outcome in outcomes.items():
                world.scheduler.note(f"{entry.partition}, sequence {entry.sequence}: {outcome}")
                world.truth.check_outcome(entry, outcome)
                del waiting[entry.partition]
                sequences[entry.partition] += len(entry.values)
                if outcome is Refusal.FENCED:
                    return

    def _entry(self, partition: int, producer_id: int, sequence: int) -> Entry:
        """Return the batch with a sequence number; of equal producers, the same one."""
        of_batch = Random(f"{producer_id}-{self._epoch}-{partition}-{sequence}")
        values = tuple(
            f"{producer_id}.{self._epoch}:{partition}:{number}"
            for number in range(sequence, sequence + of_batch.choice((1, 1, 3)))
        )
        return Entry(partition, producer_id, self._epoch, sequence, values)


class Reader:
    """A process that reads a partition from its beginning."""

    def __init__(self, world: StripesWorld) -> None:
        self._world = world

    def run(self) -> None:
        """Read until the faults end; called again after each crash."""
        world = self._world
        partition = world.scheduler.random.randrange(world.profile.partitions)
        reader = StripeReader(world.store, world.stripe_of(partition), world.clock)
        offset = 0
        while not world.is_ending:
            world.rest(world.profile.think_ms)
            end = world.truth.end(partition)
            try:
                values = reader.read(partition, offset)
            except HoleError as error:
                raise ViolationError(str(error)) from None
            except SparkLogError as error:
                world.scheduler.note(f"{type(error).__name__}: {error}")
                continue
            world.truth.check_read(partition, offset, values, end)
            offset += len(values)


class Maintainer:
    """A process that takes entries home, or frees numbers."""

    def __init__(self, world: StripesWorld, *, merges: bool) -> None:
        self._world = world
        self._merges = merges

    def run(self) -> None:
        """Work until the faults end; called again after each crash."""
        world = self._world
        while not world.is_ending:
            world.rest(world.profile.rest_ms)
            stripe = world.scheduler.random.randrange(world.profile.stripes)
            try:
                if self._merges:
                    prototype.take_home(world.store, stripe, world.clock)
                else:
                    prototype.clean_stripe(world.store, stripe)
            except SparkLogError as error:
                world.scheduler.note(f"{type(error).__name__}: {error}")


def simulate_stripes(seed: int, variant: PatchVariant = STRIPES_SOUND) -> SimulationResult:
    """Run one simulation to its end.

    Args:
        seed: determines every step of the simulation.
        variant: the prototype, or what is replaced to leave out a safety rule.

    Raises:
        SimulationFailedError: a guarantee did not hold; has the trace.
    """
    profile = draw_stripes_profile(Random(seed))
    scheduler = Scheduler(seed)
    clock = SimulatedClock(scheduler)
    disk = SimulatedDisk(clock, "stripes")
    for number in range(profile.partitions):
        disk.delete_directory(stripe_directory(number))
        disk.delete_directory(partition_directory(number))
    truth = TrueStripes(disk)
    store = SimulatedStore(disk, scheduler, truth, profile.faults)
    world = StripesWorld(scheduler, clock, store, truth, profile)
    with patched(*variant.patches), report_failures(seed, profile, scheduler):
        _spawn_all(world)
        run_to_end(world, profile.faults, profile.faults.steps, _MAX_STEPS_TO_END)
        _check_end(world)
    records = sum(map(len, truth.records.values()))
    return SimulationResult(scheduler.steps, records, scheduler.trace)


def _spawn_all(world: StripesWorld) -> None:
    spawn, profile = world.scheduler.spawn_mortal, world.profile
    for number in range(profile.writers):
        spawn(f"writer {number}", Writer(world).run)
    for _ in range(profile.twins):
        producer_id = world.next_producer_id()
        for which in ("left", "right"):
            spawn(f"twin {which}", Writer(world, producer_id).run)
    for _ in range(profile.epoch_pairs):
        producer_id = world.next_producer_id()
        after_ms = DELETE_DELAY_MS * world.scheduler.random.choice((0.1, 0.5, 1))
        spawn("old epoch", Writer(world, producer_id).run)
        spawn("new epoch", Writer(world, producer_id, 1, after_ms).run)
    for number in range(profile.readers):
        spawn(f"reader {number}", Reader(world).run)
    for number in range(profile.mergers):
        spawn(f"merger {number}", Maintainer(world, merges=True).run)
    for number in range(profile.cleaners):
        spawn(f"cleaner {number}", Maintainer(world, merges=False).run)


def _check_end(world: StripesWorld) -> None:
    """Check that a new process reads all records, before and after all went home."""
    for is_at_home in (False, True):
        for stripe in range(world.profile.stripes):
            if is_at_home:
                prototype.take_home(world.store, stripe, world.clock)
        for partition in range(world.profile.partitions):
            reader = StripeReader(world.store, world.stripe_of(partition), world.clock)
            found: list[str] = []
            while values := reader.read(partition, len(found)):
                found += values
            world.truth.check_whole(partition, found)
