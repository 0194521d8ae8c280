"""Verifies the logs of a root, and finds directories that belong to no topic.

Each replica of a partition is verified by itself. Then the replicas are compared with the leader's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from spark_log.cluster.cluster import Cluster
from spark_log.cluster.orphans import OrphanedDirectory, OrphanKind, orphaned_directories
from spark_log.config import INTERNAL_LOG_CONFIG
from spark_log.errors import (
    BrokerIdNotRegisteredError,
    CorruptRecordError,
    SparkLogError,
    StorageError,
    UnknownTopicOrPartitionError,
)
from spark_log.log import LocalLog
from spark_log.log.verify import (
    LogFinding,
    LogFindingKind,
    LogSeverity,
    StripeVerifier,
    Verifier,
    first_difference,
)
from spark_log.metadata import (
    METADATA_DIRECTORY,
    METADATA_TOPIC_ID,
    ROOT_BROKER_ID,
    MetadataImage,
    PartitionRecord,
    TopicImage,
)

OnProgress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class _Replica:
    """A log to verify: the log of a replica, or the metadata log.

    Attributes:
        broker_id: the id of the broker that has the log.
        log: the log; None if the broker cannot be reached.
        directory: the log's directory, relative to the broker's root.
        error: the reason why the broker cannot be reached.
    """

    broker_id: int
    log: LocalLog | None
    directory: str
    error: SparkLogError | None = None


class ClusterVerifier:
    """Verifies partitions one after the other.

    Attributes:
        partitions: the number of partitions verified so far.
        segments: the number of segments verified so far.
        objects: the number of objects of stripes verified so far.
        records: the number of records verified so far.
        size_bytes: the size of the files verified so far.
    """

    def __init__(
        self,
        cluster: Cluster,
        topics: Collection[str] | None = None,
        partitions: Collection[int] | None = None,
        *,
        repair: bool = False,
    ) -> None:
        """Return a verifier for some partitions of a root, or for all.

        Args:
            cluster: the opened root.
            topics: the names of topics; None for all, including the metadata log and directories
                that belong to no topic.
            partitions: the numbers of the partitions to verify; None for all.
            repair: repair derived files, and remove leftovers.

        Raises:
            UnknownTopicOrPartitionError: a topic does not exist, or has no such partition.
        """
        self._cluster = cluster
        self._repair = repair
        self._is_whole = topics is None and partitions is None
        self._image, self._metadata_error = self._read_image(topics)
        self._partitions = list(self._choose(topics, partitions))
        self.partitions = self.segments = self.objects = self.records = self.size_bytes = 0

    def total_bytes(self) -> int:
        """Return the size of the files to verify, by listing each partition."""
        return sum(
            file.size_bytes
            for _, _, replicas in self._partitions
            for replica in replicas
            if replica.log is not None
            for file in replica.log.files.store.list(replica.directory)
        ) + sum(
            file.size_bytes
            for topic, numbers in self._stripes()
            for number in numbers
            for file in self._cluster.store.list(self._cluster.stripe(topic, number).directory.path)
        )

    def findings(self, on_progress: OnProgress = lambda done_bytes: None) -> Iterator[LogFinding]:
        """Yield each problem when it is found.

        Args:
            on_progress: called with the number of bytes verified since its last call.

        Raises:
            ClockSkewError: a repair has to remove files, and this process's clock is too far from
                the storage's.
            StorageError: the storage does not answer.
        """
        if self._metadata_error is not None:
            yield LogFinding(
                METADATA_DIRECTORY,
                LogFindingKind.UNREADABLE,
                LogSeverity.ERROR,
                f"the topics cannot be listed: {self._metadata_error}",
            )
        for topic, number, replicas in self._partitions:
            for each in replicas:
                yield from self._verify(each, on_progress)
            if topic is not None and len(replicas) > 1:
                yield from self._compare(topic, number, replicas)
            self.partitions += 1
        for topic, numbers in self._stripes():
            for stripe in numbers:
                yield from self._verify_stripe(topic, stripe, on_progress)
        if self._is_whole and self._metadata_error is None:
            for broker in self._cluster.image().brokers():
                yield from self._orphaned_directories(broker.broker_id)

    def _verify(self, replica: _Replica, on_progress: OnProgress) -> Iterator[LogFinding]:
        """Yield the problems of one replica, and count its segments, records and bytes."""
        if replica.log is None:
            assert replica.error is not None
            yield _unreadable(replica, replica.error)
            return
        verifier = Verifier(
            replica.log,
            repair=self._repair,
            max_clock_skew_ms=self._image.cluster_config().max_clock_skew_ms,
        )
        try:
            for finding in verifier.findings(on_progress):
                yield replace(finding, broker_id=replica.broker_id)
        except StorageError as error:
            if error.retriable and replica.broker_id == ROOT_BROKER_ID:
                raise  # the root does not answer
            yield _unreadable(replica, error)
        self.segments += verifier.segments
        self.records += verifier.records
        self.size_bytes += verifier.size_bytes

    def _stripes(self) -> Iterator[tuple[TopicImage, Sequence[int]]]:
        """Yield the topics with stripes, and the stripes of the chosen partitions."""
        found: dict[str, tuple[TopicImage, set[int]]] = {}
        for topic, partition, _ in self._partitions:
            if topic is not None and (number := topic.stripe_of(partition)) is not None:
                _, numbers = found.setdefault(topic.topic_id, (topic, set()))
                numbers.add(number)
        for topic, numbers in found.values():
            yield topic, sorted(numbers)

    def _verify_stripe(
        self, topic: TopicImage, number: int, on_progress: OnProgress
    ) -> Iterator[LogFinding]:
        """Yield the problems of one stripe, and count its objects, records and bytes."""
        verifier = StripeVerifier(
            self._cluster.stripe(topic, number).directory,
            (
                self._cluster.replica_log(topic, partition, ROOT_BROKER_ID)
                for partition in sorted(topic.partitions)
                if topic.stripe_of(partition) == number
            ),
            repair=self._repair,
            max_clock_skew_ms=self._image.cluster_config().max_clock_skew_ms,
        )
        yield from verifier.findings(on_progress)
        self.objects += verifier.objects
        self.records += verifier.records
        self.size_bytes += verifier.size_bytes

    def _compare(
        self, topic: TopicImage, partition: int, replicas: Sequence[_Replica]
    ) -> Iterator[LogFinding]:
        """Yield the differences of the readable replicas from the first of them, the leader's."""
        before = topic.partitions[partition]
        first, *others = [each for each in replicas if each.log is not None] or [replicas[0]]
        for each in others:
            found = self._difference(first, each, before)
            after = self._cluster.image().find_by_id(topic.topic_id)
            if after is None:  # deleted
                return
            if (
                found is not None
                and after.partitions[partition].leader_epoch == before.leader_epoch
            ):
                yield found

    def _difference(
        self, leading: _Replica, replica: _Replica, state: PartitionRecord
    ) -> LogFinding | None:
        """Return the first difference of a replica from the leader's; None if they are equal."""
        assert leading.log is not None
        assert replica.log is not None
        is_in_sync = replica.broker_id in state.isr
        try:
            # The leader gets each record first, so its end is read last.
            end_offset = replica.log.observe().log_end_offset
            leading_end = leading.log.observe().log_end_offset
            found = first_difference(leading.log, replica.log, min(end_offset, leading_end))
        except (CorruptRecordError, StorageError):
            return None  # another finding reports it, or the log was rewritten meanwhile
        if found is not None:
            offset, what = found.offset, found.what
        elif end_offset > leading_end:
            offset, what = leading_end, "it has records after the end of the other"
        else:
            return None
        remedy = (
            "Find out which of the two has the right records"
            if is_in_sync
            else "It is not in sync: when it is recovered, it gets a new directory"
        )
        return LogFinding(
            replica.directory,
            LogFindingKind.DIFFERENT_REPLICA,
            LogSeverity.ERROR if is_in_sync else LogSeverity.NOTE,
            f"differs from the replica on broker {leading.broker_id} from offset {offset} on: "
            f"{what}. {remedy}",
            broker_id=replica.broker_id,
        )

    def _read_image(
        self, topics: Collection[str] | None
    ) -> tuple[MetadataImage, CorruptRecordError | None]:
        try:
            return self._cluster.image(), None
        except CorruptRecordError as error:
            if topics is not None:
                raise
            return MetadataImage(), error

    def _choose(
        self, topics: Collection[str] | None, partitions: Collection[int] | None
    ) -> Iterator[tuple[TopicImage | None, int, list[_Replica]]]:
        """Yield topic, number and replicas of each partition; the metadata log has no topic."""
        if topics is None and partitions is None:
            log = LocalLog(
                self._cluster.store,
                METADATA_DIRECTORY,
                topic_id=METADATA_TOPIC_ID,
                partition=0,
                config=INTERNAL_LOG_CONFIG,
                clock=self._cluster.clock,
                suppressed=self._cluster.suppressed,
                has_existence_marker=True,
            )
            yield None, 0, [_Replica(ROOT_BROKER_ID, log, METADATA_DIRECTORY)]
        chosen = self._image.topics() if topics is None else map(self._image.topic, topics)
        exists = partitions is None
        for topic in chosen:
            for partition in sorted(topic.partitions) if partitions is None else partitions:
                if topics is None and partition not in topic.partitions:
                    continue
                exists = True
                self._cluster.partition_log(topic, partition)  # raises if there is none
                state = topic.partitions[partition]
                brokers = dict.fromkeys((*state.isr, *state.joining, *state.replicas))
                yield topic, partition, [self._open(topic, partition, each) for each in brokers]
        if not exists:
            raise UnknownTopicOrPartitionError(f"no topic has a partition {partitions}")

    def _open(self, topic: TopicImage, partition: int, broker_id: int) -> _Replica:
        directory = topic.replica_directory(partition, broker_id)
        try:
            if broker_id != ROOT_BROKER_ID:
                self._cluster.check_broker(broker_id)
            log = self._cluster.replica_log(topic, partition, broker_id)
        except (BrokerIdNotRegisteredError, StorageError) as error:
            return _Replica(broker_id, None, directory, error)
        return _Replica(broker_id, log, directory)

    def _orphaned_directories(self, broker_id: int) -> Iterator[LogFinding]:
        """Yield the directories of a broker that no replica uses; none if it cannot be reached."""
        try:
            found = list(orphaned_directories(self._cluster, broker_id))
        except (BrokerIdNotRegisteredError, StorageError):
            if broker_id == ROOT_BROKER_ID:
                raise
            return
        for each in found:
            yield _orphan(each, broker_id)


def _unreadable(replica: _Replica, error: SparkLogError) -> LogFinding:
    is_on_root = replica.broker_id == ROOT_BROKER_ID  # others may be away for a while
    return LogFinding(
        replica.directory,
        LogFindingKind.UNREADABLE,
        LogSeverity.ERROR if is_on_root else LogSeverity.WARNING,
        f"the replica cannot be verified: {error}",
        broker_id=replica.broker_id,
    )


def _orphan(directory: OrphanedDirectory, broker_id: int) -> LogFinding:
    if directory.kind is OrphanKind.REPLICA:
        message = (
            "the directory of a former replica, which clean deletes, or of one being recovered"
        )
        severity = LogSeverity.NOTE
    elif directory.kind is OrphanKind.SCRATCH:
        message = "a running doctor writes in it; remove it by hand if no doctor runs"
        severity = LogSeverity.NOTE
    else:
        reason = {
            OrphanKind.TOPIC: "it belongs to no topic: left over from a deleted one",
            OrphanKind.PARTITION: f"topic {directory.topic} has no such partition",
            OrphanKind.STRIPE: f"topic {directory.topic} has no such stripe",
            OrphanKind.FOREIGN: "it does not belong to spark-log",
        }[directory.kind]
        message, severity = f"{reason}. Check it, and remove it by hand", LogSeverity.WARNING
    return LogFinding(
        directory.path, LogFindingKind.ORPHANED_DIRECTORY, severity, message, broker_id=broker_id
    )
