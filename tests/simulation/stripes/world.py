"""The state that the actors of one simulation of stripes share."""

from __future__ import annotations

from dataclasses import dataclass, field

from spark_log.config import TopicConfig
from spark_log.log import LocalLog, PartitionDirectory
from spark_log.log.stripe import Stripe, StripeDirectory, StripedLog, stripe_of, stripe_path
from spark_log.storage import Store
from tests.simulation.faults import DELETE_DELAY_MS
from tests.simulation.scheduler import Scheduler
from tests.simulation.store import SimulatedStore
from tests.simulation.stripes.profile import StripesProfile
from tests.simulation.stripes.true_stripes import TOPIC, TOPIC_ID, TrueStripes, partition_path
from tests.simulation.wall_clocks import UNLIMITED_MS, WallClocks


class SimulatedCondition:
    """A condition of the threads of one simulated process; waiting lets other actors run."""

    def __init__(self, scheduler: Scheduler) -> None:
        """Return the condition of a scheduler's actors."""
        self._scheduler = scheduler

    def __enter__(self) -> None:
        """Enter: between two steps no other actor runs."""

    def __exit__(self, *error: object) -> None:
        """Leave."""

    def wait(self) -> None:
        """Let other actors run."""
        self._scheduler.pass_time(1.0)

    def notify_all(self) -> None:
        """Do nothing: who waits looks by itself."""


class SimulatedLock:
    """A lock of the threads of one simulated process; waiting lets other actors run."""

    def __init__(self, scheduler: Scheduler) -> None:
        """Return a lock that nobody holds."""
        self._scheduler = scheduler
        self._is_held = False

    def __enter__(self) -> None:
        """Wait until nobody holds the lock, and hold it."""
        self.acquire()

    def __exit__(self, *error: object) -> None:
        """Release the lock."""
        self.release()

    def acquire(self) -> None:
        """Wait until nobody holds the lock, and hold it."""
        while self._is_held:
            self._scheduler.pass_time(1.0)
        self._is_held = True

    def release(self) -> None:
        """Release the lock."""
        self._is_held = False

    def locked(self) -> bool:
        """Return whether a thread holds the lock."""
        return self._is_held


@dataclass
class KnownTransaction:
    """A transaction as its state log would have it: shared by all processes, changed at once.

    Attributes:
        producer_id: the producer's id.
        epoch: the epoch of its records.
        partitions: the partitions that were registered.
        is_committed: the decision; None before it.
        is_complete: whether all markers were acknowledged.
    """

    producer_id: int
    epoch: int
    partitions: set[int] = field(default_factory=set)
    is_committed: bool | None = None
    is_complete: bool = False


@dataclass
class StripesWorld:
    """The storage, the time, the model and the conditions of one simulation.

    Attributes:
        scheduler: runs the actors.
        clock: the actors' clock; the storage has its own.
        store: the store that actors use.
        truth: the model that results are checked against.
        profile: the conditions.
        is_ending: faults have ended, and actors begin no new work.
        producer_ids: number of producer ids that were assigned.
        transactions: producer id → its transaction.
        config: the topic's config.
    """

    scheduler: Scheduler
    clock: WallClocks
    store: SimulatedStore
    truth: TrueStripes
    profile: StripesProfile
    is_ending: bool = False
    producer_ids: int = 0
    transactions: dict[int, KnownTransaction] = field(default_factory=dict)
    config: TopicConfig = field(init=False)

    def __post_init__(self) -> None:
        self.config = TopicConfig.parse(
            {
                "file.delete.delay.ms": DELETE_DELAY_MS,
                "stripes": self.profile.stripes,
                "flush.on.append": False,
                "producer.id.expiration.ms": 1000 * DELETE_DELAY_MS,
                "message.timestamp.before.max.ms": UNLIMITED_MS,
                "message.timestamp.after.max.ms": UNLIMITED_MS,
            }
        )

    def open_store(self) -> Store:
        """Return the store, as a new process opens it."""
        return self.store

    def directory(self, stripe: int) -> StripeDirectory:
        """Return a new handle of a stripe, as a new process has it."""
        return StripeDirectory(
            self.open_store(),
            stripe_path(TOPIC, stripe),
            topic_id=TOPIC_ID,
            stripe=stripe,
            config=self.config,
            clock=self.clock,
            has_existence_marker=True,
        )

    def open_stripes(self) -> dict[int, Stripe]:
        """Return the stripes as the threads of a new process share them."""
        return {
            stripe: Stripe(self.directory(stripe), self.partition_directory)
            for stripe in range(self.profile.stripes)
        }

    def open_log(self, stripes: dict[int, Stripe], partition: int) -> StripedLog:
        """Return the log of a partition, as a thread of a process opens it."""
        return StripedLog(
            stripes[self.stripe_of(partition)],
            self.open_store(),
            partition_path(partition),
            topic_id=TOPIC_ID,
            partition=partition,
            config=self.config,
            clock=self.clock,
        )

    def open_home(self, partition: int) -> LocalLog:
        """Return a new handle of a partition's records at home."""
        return LocalLog(
            self.open_store(),
            partition_path(partition),
            topic_id=TOPIC_ID,
            partition=partition,
            config=self.config,
            clock=self.clock,
        )

    def partition_directory(self, partition: int) -> PartitionDirectory:
        """Return a new handle of a partition's directory."""
        return self.open_home(partition).files

    def stripe_of(self, partition: int) -> int:
        """Return the stripe that a partition is in."""
        return stripe_of(partition, self.profile.stripes)

    def partitions_of(self, stripe: int) -> range:
        """Return the partitions of a stripe."""
        return range(stripe, self.profile.partitions, self.profile.stripes)

    def end_faults(self) -> None:
        """Let the storage work, and tell the actors to end."""
        self.store.faults = self.profile.without_faults()
        self.is_ending = True

    def rest(self, mean_ms: float) -> None:
        """Let other actors run for a random time with this mean."""
        self.scheduler.pass_time(self.scheduler.random.expovariate(1 / mean_ms))

    def next_producer_id(self) -> int:
        """Assign a new producer id."""
        self.producer_ids += 1
        return self.producer_ids


class SharedProcess:
    """The state that the threads of one process share: what they append by, and read.

    Attributes:
        stripes: the stripes.
        appends: what each stripe is appended to by.
    """

    def __init__(self, world: StripesWorld) -> None:
        """Return a process that has started."""
        self.stripes = world.open_stripes()
        self.appends = {number: each.appends for number, each in self.stripes.items()}
