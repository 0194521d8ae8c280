"""The state that the actors of a simulated replicated partition share: roots, time, and model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from random import Random
from typing import Any, Final

from spark_log.cluster import Cluster, broker_stores, cleaner
from spark_log.cluster import cluster as cluster_module
from spark_log.cluster.broker_registration import register_broker
from spark_log.config import TopicConfig
from spark_log.errors import (
    AlreadyExistsError,
    AuthorizationError,
    InvalidRootError,
    NotFoundError,
    RootNotFoundError,
    StorageError,
    StorageFullError,
    StorageTimeoutError,
    StorageUnavailableError,
    UnsupportedStoreError,
)
from spark_log.log import (
    LocalLog,
    PartitionLog,
)
from spark_log.log.append.appender import Appender
from spark_log.log.clean import PartitionCleaner
from spark_log.metadata import metadata_log, partition_states
from spark_log.metadata.partition_states import MetadataPartitionStates
from spark_log.metadata.records import (
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    TopicRecord,
)
from spark_log.metadata.topic_image import TopicImage
from spark_log.replication import replica_recovery
from spark_log.storage import FileInfo, StagedFile
from spark_log.util.clock import Clock
from tests.simulation.faults import DELETE_DELAY_MS, Faults
from tests.simulation.patches import Patch
from tests.simulation.replication.profile import ReplicationProfile
from tests.simulation.replication.true_replicas import TOPIC, TOPIC_ID, BrokerObserver, TrueReplicas
from tests.simulation.scheduler import Scheduler
from tests.simulation.segment_files import SegmentFiles
from tests.simulation.store import SimulatedDisk, SimulatedStore, StorageObserver
from tests.simulation.wall_clocks import WallClocks

ROOT: Final = "memory://cluster"

LEASE_MS: Final = DELETE_DELAY_MS / 10
"""The writers' lease (`METADATA_LEASE_MS`): shorter than a listing is valid, as the real one."""


class BrokerDisk(SimulatedDisk):
    """The files of one root."""

    def __init__(self, clock: Clock, name: str) -> None:
        super().__init__(clock, name)
        self.wipe()

    def wipe(self) -> None:
        """Lose all files."""
        for path in sorted(self._files.data):
            self.delete(path)


FAILURES: Final = (
    StorageUnavailableError,
    StorageError,
    AuthorizationError,
    InvalidRootError,
    RootNotFoundError,
    StorageFullError,
    StorageTimeoutError,
    UnsupportedStoreError,
)
"""The errors with which a failing root may answer a request."""


class BrokerStore(SimulatedStore):
    """The store of one root, which may not answer, or answer slowly.

    The errors of a failing root are drawn from a random source of their own, so that a seed has the
    same steps for each kind of error.

    Attributes:
        is_down: whether each request fails.
        lag_ms: mean time that each request takes longer.
    """

    is_down: bool = False
    lag_ms: float = 0.0

    def __init__(
        self,
        disk: SimulatedDisk,
        scheduler: Scheduler,
        observer: StorageObserver,
        faults: Faults,
        seed: int,
    ) -> None:
        """Return the store of a disk; ``seed`` determines the kinds of its errors."""
        super().__init__(disk, scheduler, observer, faults)
        self._kinds = Random(f"{seed} {disk.url}")
        self._outage: type[StorageError] = StorageUnavailableError

    def take_down(self) -> None:
        """Let every request fail, all with one kind of error."""
        self._outage = self._kinds.choice((*FAILURES, NotFoundError))
        self.is_down = True
        self._scheduler.note(f"{self.url} answers {self._outage.__name__}")

    def stage(self, directory: str) -> StagedFile:
        """Stage a file; local to the actor, but for the root's directories."""
        self._check_up(directory)
        return super().stage(directory)

    def list(self, directory: str, start_after: str | None = None) -> Iterator[FileInfo]:
        """List a directory; raise an error while the root is down."""
        self._check_up(directory)
        listed = super().list(directory, start_after)
        self._check_up(directory)
        return listed

    def list_directories(self, directory: str) -> Iterator[str]:
        """Yield the names of the directories in a directory; sorted, as the disk has sets."""
        self._check_up(directory)
        return iter(sorted(super().list_directories(directory)))

    def _write(
        self, what: str, path: str, effect: Callable[[], None], *, can_be_resent: bool = False
    ) -> None:
        def checked() -> None:
            self._check_up(path)
            effect()

        super()._write(what, path, checked, can_be_resent=can_be_resent)

    def _deliver_late(self, what: str, path: str, effect: Callable[[], None]) -> None:
        was_down = self.is_down  # then it was refused at once, with an error

        def unless_down() -> None:
            if was_down:
                return
            try:
                effect()
            except AlreadyExistsError:
                raise
            except StorageError:
                return  # it never arrives
            self._note(what, path, "takes effect late")

        super()._deliver_late(what, path, unless_down)

    def _read(self, what: str, path: str, read: Callable[[], Any]) -> Any:
        def checked() -> Any:
            self._check_up(path)
            return read()

        return super()._read(what, path, checked)

    def _check_up(self, path: str) -> None:
        if self.is_down:
            raise self._outage(f"{self.url} is down", path=path)

    def _failure(self, path: str) -> StorageError:
        return self._kinds.choice(FAILURES)(f"{path}: the simulated store fails", path=path)

    def pass_time(self) -> None:
        """Let other actors run, for longer while the root lags."""
        if self.lag_ms:
            self._scheduler.pass_time(self._scheduler.random.expovariate(1 / self.lag_ms))
        super().pass_time()

    def _note(self, what: str, path: str, outcome: str) -> None:
        super()._note(f"{self.url.rpartition('/')[2]}: {what}", path, outcome)


@dataclass(slots=True)
class ReplicationWorld:
    """The storage, the time, the model and the conditions of one simulation.

    Attributes:
        scheduler: runs the actors.
        clock: the actors' clock; the storage has its own.
        disks: by broker id.
        stores: by broker id; 0 is the root of the cluster, which does not fail.
        truth: the model that results are checked against.
        profile: the conditions.
        is_ending: faults have ended, and actors begin no new work.
        values: numbers of the values of records, which are unique.
        producer_ids: numbers of producer ids.
        lost: the broker whose disk is lost, until it is registered with an empty one.
    """

    scheduler: Scheduler
    clock: WallClocks
    disks: dict[int, BrokerDisk]
    stores: dict[int, BrokerStore]
    truth: TrueReplicas
    profile: ReplicationProfile
    is_ending: bool = False
    values: count[int] = field(default_factory=count)
    producer_ids: count[int] = field(default_factory=count)
    lost: set[int] = field(default_factory=set)

    @property
    def brokers(self) -> range:
        """The ids of the brokers with replicas."""
        return range(1, self.profile.brokers + 1)

    def store_at(self, url: str, *_: object, **__: object) -> BrokerStore:
        """Return the store at a URL (`open_store`)."""
        return next(store for store in self.stores.values() if store.url == url)

    def rest(self, mean_ms: float) -> None:
        """Let other actors run for a random time with this mean."""
        self.scheduler.pass_time(self.scheduler.random.expovariate(1 / mean_ms))

    def wait(self, mean_ms: float) -> None:
        """Let other actors run for a random time with this mean, or until the faults end."""
        until_ms = self.scheduler.now_ms + self.scheduler.random.expovariate(1 / mean_ms)
        while self.scheduler.now_ms < until_ms and not self.is_ending:
            self.scheduler.pass_time(DELETE_DELAY_MS / 10)

    def chance(self, probability: float) -> bool:
        """Draw whether something with this probability happens."""
        return probability > 0 and self.scheduler.random.random() < probability

    def draw_values(self, name: str) -> list[bytes]:
        """Return the values of a few new records."""
        records = self.scheduler.random.choice((1, 1, 2, 3))
        return [f"{name}/{next(self.values)}".encode() for _ in range(records)]

    def set_faults(self, faults: Faults) -> None:
        """Set the faults of all brokers. The root of the cluster is slow at most."""
        for broker_id, store in self.stores.items():
            pauses = replace(faults.without_faults(), pause=faults.pause)
            store.faults = faults if broker_id else pauses

    def end_faults(self) -> None:
        """Let every process and every root work from now on."""
        self.is_ending = True
        self.scheduler.crash_chance = 0.0
        self.set_faults(self.profile.faults.without_faults())
        for store in self.stores.values():
            store.lag_ms = 0.0


class OpenPartition:
    """The cluster and the partition that one process has open.

    Attributes:
        cluster: the cluster.
        topic: the topic in the state that was read first.
        states: the source of the partition's state.
        log: the partition's log.
    """

    def __init__(self, world: ReplicationWorld) -> None:
        """Open the cluster and the partition, which takes several steps."""
        self.cluster = Cluster(ROOT, clock=world.clock)
        self.topic: TopicImage = self.cluster.topic(TOPIC)
        self.states = MetadataPartitionStates(self.cluster.metadata, self.topic, 0)
        log = self.cluster.partition_log(self.topic, 0)
        assert isinstance(log, PartitionLog)
        self.log: PartitionLog = log

    def replica(self, broker_id: int, number: int) -> LocalLog:
        """Return a replica in a directory that the partition's state may not have."""
        return LocalLog(
            self.cluster.broker_store(broker_id),
            self.topic.numbered_directory(0, number),
            topic_id=TOPIC_ID,
            partition=0,
            config=self.topic.config(),
            clock=self.cluster.clock,
            has_existence_marker=True,
            has_leader_epochs=True,
        )


def create_world(
    scheduler: Scheduler,
    clock: WallClocks,
    storage_clock: Clock,
    profile: ReplicationProfile,
    seed: int,
) -> ReplicationWorld:
    """Return a world with empty disks; ``seed`` determines the kinds of errors."""
    names = ["cluster", *(f"broker{number}" for number in range(1, profile.brokers + 1))]
    disks = {number: BrokerDisk(storage_clock, name) for number, name in enumerate(names)}
    truth = TrueReplicas(disks)
    without = profile.faults.without_faults()
    stores = {
        number: BrokerStore(disk, scheduler, BrokerObserver(truth, number), without, seed)
        for number, disk in disks.items()
    }
    return ReplicationWorld(scheduler, clock, disks, stores, truth, profile)


def create_partition(world: ReplicationWorld) -> None:
    """Create the cluster, its brokers, and the topic."""
    cluster = Cluster(ROOT, clock=world.clock, create=True)
    for broker_id in world.brokers:
        register_broker(cluster, broker_id, world.stores[broker_id].url)
    replicas = list(world.brokers)
    world.scheduler.random.shuffle(replicas)
    partition = PartitionRecord(
        topic_id=TOPIC_ID,
        partition_id=0,
        replicas=tuple(replicas),
        isr=tuple(replicas),
        leader=replicas[0],
    )
    faults = world.profile.faults
    configs = {
        "file.delete.delay.ms": DELETE_DELAY_MS,
        "flush.on.append": "false",
        "index.interval.bytes": 0,
        "merge.tail.segments": faults.tail_segments,
        "min.insync.replicas": world.profile.min_insync,
        "producer.id.expiration.ms": faults.expiration_ms,
        "retention.ms": -1,
        "snapshot.interval.segments": faults.snapshot_interval,
        # An actor whose clock is wrong may append all the same.
        "message.timestamp.before.max.ms": 2**63 - 1,
        "message.timestamp.after.max.ms": 2**63 - 1,
    }
    records: list[MetadataRecord] = [TopicRecord(name=TOPIC, topic_id=TOPIC_ID), partition]
    records += (
        ConfigRecord(resource_type="topic", resource_name=TOPIC, name=name, value=str(value))
        for name, value in configs.items()
    )
    cluster.metadata.commit(lambda _: records)


def small_replication(world: ReplicationWorld) -> tuple[Patch, ...]:
    """Return patches that open simulated stores, and keep the metadata log short of merges.

    They belong to constants and functions that no caller chooses.
    """
    metadata_config = TopicConfig.parse(
        {
            "flush.on.append": False,
            "merge.tail.segments": 0,
            "message.timestamp.before.max.ms": 2**63 - 1,
            "message.timestamp.after.max.ms": 2**63 - 1,
        }
    )
    return (
        (cluster_module, "open_store", world.store_at),
        (broker_stores, "open_store", world.store_at),
        (metadata_log, "INTERNAL_LOG_CONFIG", metadata_config),
        (partition_states, "METADATA_LEASE_MS", LEASE_MS),
        (replica_recovery, "METADATA_LEASE_MS", LEASE_MS),
        (
            cleaner,
            "PartitionCleaner",
            partial(PartitionCleaner, fan_in=world.profile.faults.fan_in),
        ),
        (Appender, "races_per_listing", world.profile.faults.races_per_listing),
        *SegmentFiles().patches,
    )
