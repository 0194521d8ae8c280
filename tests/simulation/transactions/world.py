"""The state that the actors of simulated transactions share: a cluster, its time, and the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final, cast

from spark_log.cluster import Cluster
from spark_log.config import TopicConfig
from spark_log.errors import StorageError
from spark_log.log import PartitionLog, StateLog
from spark_log.log import state_log as state_log_module
from spark_log.log.append.appender import Appender
from spark_log.metadata.image import MetadataImage
from spark_log.metadata.metadata_log import MetadataLog
from spark_log.metadata.producer_ids import ProducerIds
from spark_log.metadata.records import ConfigRecord, PartitionRecord, TopicRecord
from spark_log.record import RECORD_SCHEMA, ProducerAppend, ProducerIdAndEpoch
from spark_log.transaction import TopicIdPartition, TransactionCoordinator, decisions
from spark_log.transaction import coordinator as coordinator_module
from spark_log.transaction import state as state_module
from spark_log.util.suppressed import SuppressedErrors
from tests.simulation.faults import DELETE_DELAY_MS
from tests.simulation.log.records import Record, record_batch
from tests.simulation.patches import Patch
from tests.simulation.scheduler import START_US, Scheduler
from tests.simulation.store import SimulatedStore
from tests.simulation.transactions.profile import TransactionsProfile
from tests.simulation.transactions.true_transactions import TrueTransactions
from tests.simulation.wall_clocks import WallClocks

TOPIC_ID: Final = "BAmGwfbUQVSsLzdzBSFxhA"
JOB: Final = "job"
"""The transactional id of the job."""


@dataclass(frozen=True, slots=True)
class TaskOffer:
    """A task attempt that an executor is to run.

    Attributes:
        owner: the owner of the driver's transaction.
        batch_id: the micro-batch.
        task: number of the task.
        attempt: number of the attempt.
    """

    owner: ProducerIdAndEpoch
    batch_id: int
    task: int
    attempt: int


@dataclass(frozen=True, slots=True)
class TaskResult:
    """An executor's message to the driver: an attempt has written all of its records."""

    offer: TaskOffer
    participant: ProducerIdAndEpoch


@dataclass(slots=True)
class Job:
    """The messages between drivers and executors, and the checkpoint of the query.

    Attributes:
        batch_id: the next micro-batch; drivers find it in the checkpoint after a crash.
        offers: the attempts that no executor has taken.
        results: the results of attempts.
        attempts: the number of attempts so far.
    """

    batch_id: int = 0
    offers: list[TaskOffer] = field(default_factory=list)
    results: list[TaskResult] = field(default_factory=list)
    attempts: count[int] = field(default_factory=count)


@dataclass(slots=True)
class TransactionsWorld:
    """The storage, the time, the model and the conditions of one simulation.

    Attributes:
        scheduler: the scheduler that runs the actors.
        clock: the actors' clock; the storage has its own.
        store: the store that actors use.
        truth: the model that results are checked against.
        profile: the conditions.
        image: the metadata: one topic.
        job: the job of the drivers and executors.
        is_ending: whether faults have ended, and actors begin no new work.
        values: the numbers of the values of records, which are unique.
        producer_ids: the numbers of producer ids.
    """

    scheduler: Scheduler
    clock: WallClocks
    store: SimulatedStore
    truth: TrueTransactions
    profile: TransactionsProfile
    image: MetadataImage
    job: Job = field(default_factory=Job)
    is_ending: bool = False
    values: count[int] = field(default_factory=count)
    producer_ids: count[int] = field(default_factory=count)

    @property
    def partitions(self) -> list[TopicIdPartition]:
        """All partitions."""
        return [TopicIdPartition(TOPIC_ID, number) for number in range(self.profile.partitions)]

    def open_cluster(self) -> Cluster:
        """Return a new handle of the cluster, as a new process has it."""
        return SimulatedCluster(self)

    def end_faults(self) -> None:
        """Let the storage work, and tell the actors to end."""
        self.store.faults = self.profile.faults.without_faults()
        self.is_ending = True

    def rest(self, mean_ms: float) -> None:
        """Let other actors run for a random time with this mean."""
        self.scheduler.pass_time(self.scheduler.random.expovariate(1 / mean_ms))

    def draw_values(self, name: str) -> list[bytes]:
        """Return the values of a few new records."""
        records = self.scheduler.random.choice((1, 1, 2, 3))
        return [f"{name}/{next(self.values)}".encode() for _ in range(records)]

    def append(
        self,
        log: PartitionLog,
        partition: TopicIdPartition,
        values: Sequence[bytes],
        producer: ProducerAppend | None = None,
    ) -> None:
        """Append records, and check the acknowledgement.

        Raises:
            SparkLogError: it was not acknowledged.
        """
        records = record_batch([Record(value, START_US) for value in values])
        # Each record has a key of its own: a compaction removes only what is aborted.
        records = records.set_column(0, RECORD_SCHEMA.field("key"), records.column("value"))
        info = log.append(records, producer=producer)
        self.scheduler.note(f"append {values[0]!r}: at {info.base_offset} to {info.last_offset}")
        self.truth.check_appended(partition, values, info)


class SimulatedCluster(Cluster):
    """A root whose metadata do not change, and cost no request."""

    def __init__(self, world: TransactionsWorld) -> None:
        """Return a handle of a new process; accesses no storage."""
        self.store = world.store
        self.clock = world.clock
        self.suppressed = SuppressedErrors()
        self.cluster_id = "simulated"
        self._world = world
        self._producer_ids = cast(ProducerIds, _SimulatedIds(world))
        self._metadata = cast(MetadataLog, _KnownMetadata(world))
        self._client_rack = ""

    def image(self) -> MetadataImage:
        """Return the metadata; a step."""
        self._world.rest(self._world.store.faults.latency_ms)
        return self._world.image


class _KnownMetadata:
    """The metadata log of a root whose metadata do not change."""

    def __init__(self, world: TransactionsWorld) -> None:
        self._world = world

    def known_image(self) -> MetadataImage:
        return self._world.image

    def image(self) -> MetadataImage:
        return self._world.image


class _SimulatedIds:
    """Allocates producer ids by a step that may fail, or take effect without an answer."""

    def __init__(self, world: TransactionsWorld) -> None:
        self._world = world

    def next_id(self) -> int:
        """Return a new producer id."""
        world = self._world
        producer_id = next(world.producer_ids)
        world.rest(world.store.faults.latency_ms)
        if world.scheduler.random.random() < world.store.faults.failed:
            raise StorageError("no producer id could be allocated")
        return producer_id


class OpenLogs:
    """The partitions' logs that one process has open."""

    def __init__(self, cluster: Cluster, image: MetadataImage) -> None:
        self._cluster = cluster
        self._image = image
        self._logs: dict[TopicIdPartition, PartitionLog] = {}

    def log(self, partition: TopicIdPartition) -> PartitionLog:
        """Return a log, opened on its first use."""
        if partition not in self._logs:
            topic = self._image.find_by_id(partition.topic_id)
            assert topic is not None
            self._logs[partition] = self._cluster.partition_log(topic, partition.partition)
        return self._logs[partition]

    def find(self, partition: TopicIdPartition) -> PartitionLog | None:
        """Return a log that is open; None otherwise."""
        return self._logs.get(partition)


def open_coordinator(
    cluster: Cluster, transactional_id: str, logs: OpenLogs | None = None
) -> TransactionCoordinator:
    """Return a new coordinator that works in the actor's own thread."""
    return TransactionCoordinator(
        cluster,
        transactional_id,
        open_log=None if logs is None else logs.find,
        markers_at_once=1,
    )


def topic_image(profile: TransactionsProfile) -> MetadataImage:
    """Return the metadata of one topic with short delays."""
    image = MetadataImage()
    image.replay(TopicRecord(name="flights", topic_id=TOPIC_ID))
    for number in range(profile.partitions):
        image.replay(PartitionRecord(topic_id=TOPIC_ID, partition_id=number))
    configs = {
        "cleanup.policy": "compact" if profile.is_compacted else "delete",
        "delete.retention.ms": DELETE_DELAY_MS // 2,
        "file.delete.delay.ms": DELETE_DELAY_MS,
        "flush.on.append": "false",
        "min.cleanable.dirty.ratio": 0,
        "index.interval.bytes": 0,
        "merge.tail.segments": profile.faults.tail_segments,
        "retention.ms": -1,
        "producer.id.expiration.ms": profile.faults.expiration_ms,
        "snapshot.interval.segments": profile.faults.snapshot_interval,
        # An actor whose clock is wrong may append all the same.
        "message.timestamp.before.max.ms": 2**63 - 1,
        "message.timestamp.after.max.ms": 2**63 - 1,
    }
    for name, value in configs.items():
        image.replay(_config("topic", "flights", name, value))
    image.replay(_config("broker", "", "transactional.id.expiration.ms", profile.expiration_ms))
    return image


def _config(resource_type: str, resource_name: str, name: str, value: object) -> ConfigRecord:
    return ConfigRecord(
        resource_type=resource_type, resource_name=resource_name, name=name, value=str(value)
    )


def small_transactions(profile: TransactionsProfile) -> tuple[Patch, ...]:
    """Return patches that make state logs short, and epochs few.

    They belong to constants that no caller chooses.
    """
    state_log_config = TopicConfig.parse(
        {
            "file.delete.delay.ms": DELETE_DELAY_MS,
            "flush.on.append": False,
            "merge.tail.segments": 0,
            "message.timestamp.before.max.ms": 2**63 - 1,
            "message.timestamp.after.max.ms": 2**63 - 1,
            "snapshot.interval.segments": 5,
        }
    )
    return (
        (state_log_module, "INTERNAL_LOG_CONFIG", state_log_config),
        (StateLog, "trim_every", profile.trim_every),
        (Appender, "races_per_listing", profile.faults.races_per_listing),
        *(
            (module, "LAST_EPOCH", profile.last_epoch)
            for module in (decisions, coordinator_module, state_module)
        ),
    )
