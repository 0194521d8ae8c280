"""The topic as one process knows it: it opens what the metadata name, and again after a change."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

from spark_log.cluster import Cluster, broker_stores
from spark_log.cluster import cluster as cluster_module
from spark_log.config import TopicConfig
from spark_log.errors import SparkLogError, StorageError, StripesChangedError
from spark_log.log import BatchAppend, LogBatch, LogView, PartitionLog
from spark_log.log.producers import TransactionIndex
from spark_log.log.stripe import AppendResult, Stripe, StripeDirectory, StripeEntry
from spark_log.metadata import MetadataRecord, TopicImage, metadata_log, partition_states
from spark_log.metadata.records import ConfigRecord, PartitionRecord, TopicRecord
from spark_log.record import EndTransactionMarker
from tests.simulation.faults import DELETE_DELAY_MS
from tests.simulation.patches import Patch
from tests.simulation.store import SimulatedStore
from tests.simulation.stripe_changes.true_topic import TrueTopic
from tests.simulation.stripes.true_stripes import TOPIC_ID
from tests.simulation.stripes.world import StripesWorld
from tests.simulation.wall_clocks import UNLIMITED_MS

ROOT: Final = "memory://cluster"
NAME: Final = "flights"
LEASE_MS: Final = DELETE_DELAY_MS / 10

_Answer = TypeVar("_Answer")


class OpenTopic:
    """The topic in one process.

    Attributes:
        cluster: the opened root.
        topic: the topic, as the process knows it.
    """

    def __init__(self, world: ChangesWorld) -> None:
        """Open the root, which takes several steps."""
        self._world = world
        self.cluster = world.open_cluster()
        self.topic: TopicImage = self._read()
        self._logs: dict[int, PartitionLog] = {}
        self._stripes: dict[int, Stripe] = {}

    @property
    def appends(self) -> OpenTopic:
        """The object that appends for the process: this one."""
        return self

    def refresh(self) -> None:
        """Read the metadata, and open the logs again."""
        self.topic = self._read()
        self._logs.clear()
        self._world.scheduler.note(f"knows stripes {self.topic.stripes}")

    def _read(self) -> TopicImage:
        while True:
            try:
                return self.cluster.image().topic(NAME)
            except StorageError:
                self._world.scheduler.pass_time(1.0)

    def log(self, number: int) -> PartitionLog:
        """Return the log of a partition."""
        found = self._logs.get(number)
        if found is None:
            found = self._logs[number] = self.cluster.partition_log(self.topic, number)
        return found

    def append(self, entries: Sequence[StripeEntry]) -> Sequence[AppendResult]:
        """Append entries where their partitions are, and return the result of each."""
        topic = self.topic
        results: list[AppendResult] = [None] * len(entries)
        by_stripe: dict[int, list[int]] = {}
        by_log: dict[int, list[int]] = {}
        for index, entry in enumerate(entries):
            number = topic.stripe_of(entry.partition)
            if number is None:
                by_log.setdefault(entry.partition, []).append(index)
            else:
                by_stripe.setdefault(number, []).append(index)
        for partition, indexes in by_log.items():
            appended = self._append_to_log(partition, [entries[index] for index in indexes])
            for index, result in zip(indexes, appended, strict=True):
                results[index] = result
        for number, indexes in by_stripe.items():
            stripe = self._stripes[number] = self.cluster.stripe(topic, number)  # stays in memory
            appended = stripe.appends.append([entries[index] for index in indexes])
            for index, result in zip(indexes, appended, strict=True):
                results[index] = result
        if any(isinstance(each, StripesChangedError) for each in results):
            self.refresh()
        return [_as_storage_error(each) for each in results]

    def _append_to_log(
        self, partition: int, entries: Sequence[StripeEntry]
    ) -> Sequence[AppendResult]:
        """Append entries of one partition: batches together, and others one after the other."""
        log = self.log(partition)
        batches = [entry.content for entry in entries if isinstance(entry.content, BatchAppend)]
        try:
            if len(batches) == len(entries) and all(each.producer for each in batches):
                return log.append_batches(batches)
            return [self._append_one(log, entry) for entry in entries]
        except SparkLogError as error:
            return [error] * len(entries)

    @staticmethod
    def _append_one(log: PartitionLog, entry: StripeEntry) -> AppendResult:
        content, expected = entry.content, entry.expected_end_offset
        try:
            if isinstance(content, EndTransactionMarker):
                return log.append_markers([content])
            assert isinstance(content, BatchAppend)
            return log.append(content.records, expected_end_offset=expected)
        except SparkLogError as error:
            return error


def _as_storage_error(result: AppendResult) -> AppendResult:
    """Return a refusal by a change of stripes as an error after which an actor tries again."""
    if isinstance(result, StripesChangedError):
        return StorageError(str(result), path=NAME)
    return result


class OpenLog:
    """The log of one partition in one process, with the methods that a reader uses."""

    def __init__(self, opened: OpenTopic, partition: int) -> None:
        """Open nothing yet."""
        self._opened = opened
        self._partition = partition

    @property
    def epoch(self) -> int:
        """The leader epoch of the place that the process reads."""
        return self._opened.topic.partitions[self._partition].leader_epoch

    def read(self, *where: Any, **how: Any) -> tuple[list[LogBatch], int]:
        """Read (`PartitionLog.read`)."""
        return self._do(lambda log: log.read(*where, **how))

    def scan(self, *where: Any, **how: Any) -> Iterator[LogBatch]:
        """Scan (`PartitionLog.scan`)."""
        return self._do(lambda log: iter(list(log.scan(*where, **how))))

    def observe(self, **how: Any) -> LogView:
        """List the log (`PartitionLog.observe`)."""
        return self._do(lambda log: log.observe(**how))

    def tail_ends_at(self, offset: int) -> bool:
        """Return whether the log ends at an offset (`PartitionLog.tail_ends_at`)."""
        return self._do(lambda log: log.tail_ends_at(offset))

    def transactions(self) -> TransactionIndex:
        """Return the transactions (`PartitionLog.transactions`)."""
        return self._do(lambda log: log.transactions())

    def _do(self, read: Callable[[PartitionLog], _Answer]) -> _Answer:
        try:
            return read(self._opened.log(self._partition))
        except StripesChangedError as error:
            self._opened.refresh()
            raise StorageError(str(error), path=NAME) from error


class ChangesWorld(StripesWorld):
    """The state that the actors share; each process opens the root by itself."""

    truth: TrueTopic

    def open_cluster(self) -> Cluster:
        """Open the root, as a new process does."""
        while True:
            try:
                return Cluster(ROOT, clock=self.clock)
            except StorageError:
                self.scheduler.pass_time(1.0)

    def open_stripes(self) -> dict[int, Any]:
        """Return the topic as a new process has it, for each group of partitions of a writer."""
        return dict.fromkeys(range(self.profile.stripes), OpenTopic(self))

    def open_log(self, stripes: dict[int, Any], partition: int) -> Any:
        """Return the log of a partition, as a thread of a process opens it."""
        return OpenLog(stripes[self.stripe_of(partition)], partition)

    def present_stripes(self) -> list[StripeDirectory]:
        """Return the stripes that the topic has now, and those that it has had."""
        opened = OpenTopic(self)
        return [
            opened.cluster.stripe(opened.topic, number).directory
            for number in range(opened.topic.stripes.stop)
        ]

    def store_at(self, *_: object, **__: object) -> SimulatedStore:
        """Return the store of the root (`open_store`)."""
        return self.store

    def create_topic(self) -> None:
        """Create the root and the topic."""
        cluster = Cluster(ROOT, clock=self.clock, create=True)
        configs = {
            "file.delete.delay.ms": DELETE_DELAY_MS,
            "flush.on.append": "false",
            "index.interval.bytes": 0,
            "merge.tail.segments": self.scheduler.random.choice((0, 3)),
            "producer.id.expiration.ms": 1000 * DELETE_DELAY_MS,
            "message.timestamp.before.max.ms": UNLIMITED_MS,
            "message.timestamp.after.max.ms": UNLIMITED_MS,
        }
        records: list[MetadataRecord] = [
            TopicRecord(name=NAME, topic_id=TOPIC_ID),
            *(
                PartitionRecord(topic_id=TOPIC_ID, partition_id=number)
                for number in range(self.profile.partitions)
            ),
            *(
                ConfigRecord(resource_type="topic", resource_name=NAME, name=name, value=str(value))
                for name, value in configs.items()
            ),
        ]
        cluster.metadata.commit(lambda _: records)


def small_changes(world: ChangesWorld) -> tuple[Patch, ...]:
    """Return patches that open the simulated store, and keep the metadata log short of merges."""
    metadata_config = TopicConfig.parse(
        {
            "flush.on.append": False,
            "merge.tail.segments": 0,
            "message.timestamp.before.max.ms": UNLIMITED_MS,
            "message.timestamp.after.max.ms": UNLIMITED_MS,
        }
    )
    return (
        (cluster_module, "open_store", world.store_at),
        (broker_stores, "open_store", world.store_at),
        (metadata_log, "INTERNAL_LOG_CONFIG", metadata_config),
        (partition_states, "METADATA_LEASE_MS", LEASE_MS),
    )
