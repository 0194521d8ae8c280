"""Verifies the logs of a root, and finds directories that belong to no topic."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator

from spark_log.config import INTERNAL_LOG_CONFIG
from spark_log.errors import CorruptRecordError, UnknownTopicOrPartitionError
from spark_log.log import WITNESSES, Finding, FindingKind, PartitionLog, Severity, Verifier
from spark_log.metadata.cluster import Cluster
from spark_log.metadata.image import MetadataImage
from spark_log.metadata.metadata_log import METADATA_DIRECTORY, METADATA_TOPIC_ID
from spark_log.metadata.topics import DELETION_MARKERS

_TOPIC_DIRECTORY = re.compile(r".+\.[\w-]{22}")
_INTERNAL = (
    METADATA_DIRECTORY,
    "__consumer_offsets",
    "__consumer_groups",
    "__transaction_state",
    DELETION_MARKERS,
    WITNESSES,
)

OnProgress = Callable[[int], None]


class ClusterVerifier:
    """Verifies partitions one after the other.

    Attributes:
        partitions: number of partitions verified so far.
        segments: number of their segments.
        records: number of their records.
        size_bytes: size of their files.
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
            topics: names of topics; None for all, for the metadata log, and for directories that
                belong to no topic.
            partitions: only partitions with these numbers; None for all.
            repair: repair derived files, and remove leftovers.

        Raises:
            UnknownTopicOrPartitionError: a topic does not exist, or has no such partition.
        """
        self._cluster = cluster
        self._repair = repair
        self._is_whole = topics is None and partitions is None
        self._image, self._metadata_error = self._read_image(topics)
        self._logs = list(self._choose(topics, partitions))
        self.partitions = self.segments = self.records = self.size_bytes = 0

    def total_bytes(self) -> int:
        """Return the size of the files to verify; lists each partition."""
        return sum(
            file.size_bytes
            for log in self._logs
            for file in self._cluster.store.list(log.directory)
        )

    def findings(self, on_progress: OnProgress = lambda done_bytes: None) -> Iterator[Finding]:
        """Yield each problem when it is found.

        Args:
            on_progress: called with the number of bytes verified since its last call.

        Raises:
            ClockSkewError: a repair has to remove files, and this process's clock is too far from
                the storage's.
            StorageError: the storage does not answer.
        """
        if self._metadata_error is not None:
            yield Finding(
                METADATA_DIRECTORY,
                FindingKind.UNREADABLE,
                Severity.ERROR,
                f"the topics cannot be listed: {self._metadata_error}",
            )
        for log in self._logs:
            verifier = Verifier(
                log,
                repair=self._repair,
                max_clock_skew_ms=self._image.cluster_config().max_clock_skew_ms,
            )
            yield from verifier.findings(on_progress)
            self.partitions += 1
            self.segments += verifier.segments
            self.records += verifier.records
            self.size_bytes += verifier.size_bytes
        if self._is_whole and self._metadata_error is None:
            yield from self._orphaned_directories()

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
    ) -> Iterator[PartitionLog]:
        if topics is None and partitions is None:
            yield PartitionLog(
                self._cluster.store,
                METADATA_DIRECTORY,
                topic_id=METADATA_TOPIC_ID,
                partition=0,
                config=INTERNAL_LOG_CONFIG,
                clock=self._cluster.clock,
                suppressed=self._cluster.suppressed,
                has_witness=True,
            )
        chosen = self._image.topics() if topics is None else map(self._image.topic, topics)
        is_there = partitions is None
        for topic in chosen:
            for partition in sorted(topic.partitions) if partitions is None else partitions:
                if topics is None and partition not in topic.partitions:
                    continue
                is_there = True
                yield self._cluster.partition_log(topic, partition)
        if not is_there:
            raise UnknownTopicOrPartitionError(f"no topic has a partition {partitions}")

    def _orphaned_directories(self) -> Iterator[Finding]:
        store = self._cluster.store
        found = {name: set(store.list_directories(name)) for name in store.list_directories("")}
        # Read the metadata after the listing, so that a topic created meanwhile is known.
        topics = {topic.directory: topic for topic in self._cluster.image().topics()}
        if not topics.keys() >= found.keys() - set(_INTERNAL):
            # List again: a directory that is just being deleted is not orphaned.
            found = {name: found[name] for name in store.list_directories("") if name in found}
        for name in sorted(found):
            if name in topics:
                topic = topics[name]
                expected = set(map(topic.partition_directory, topic.partitions))
                for partition in sorted(found[name]):
                    path = f"{name}/{partition}"
                    if path not in expected:
                        yield _orphan(path, f"topic {topic.name} has no such partition")
            elif _TOPIC_DIRECTORY.fullmatch(name):
                yield _orphan(name, "it belongs to no topic: left over from a deleted one")
            elif name not in _INTERNAL:
                yield _orphan(name, "it does not belong to spark-log")


def _orphan(path: str, reason: str) -> Finding:
    message = f"{reason}. Check it, and remove it by hand"
    return Finding(path, FindingKind.ORPHANED_DIRECTORY, Severity.WARNING, message)
