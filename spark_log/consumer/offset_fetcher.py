"""Looks up log start and end offsets, and offsets of timestamps (Kafka's OffsetFetcher)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

from spark_log.consumer.offset_reset import ResetPolicy, start_offset
from spark_log.errors import RootNotFoundError, SparkLogError, StorageError
from spark_log.log import IsolationLevel, LogView, PartitionLog
from spark_log.metadata import META_PROPERTIES, Cluster, TopicImage
from spark_log.storage import call_beside
from spark_log.types import OffsetAndTimestamp, TopicPartition

_MAX_AT_ONCE: Final = 16
"""Partitions that are listed at once."""

Views = dict[TopicPartition, LogView | SparkLogError]


class OffsetFetcher:
    """Looks up offsets, with log handles that the fetching thread does not use. For one thread."""

    def __init__(self, cluster: Cluster, isolation_level: IsolationLevel) -> None:
        """Prepare for a cluster.

        Args:
            cluster: the opened root.
            isolation_level: with ``read_committed`` a log's end is its last stable offset.
        """
        self._cluster = cluster
        self._isolation_level = isolation_level
        self._logs: dict[str, PartitionLog] = {}

    def views(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, LogView]:
        """Return the current log start and end offsets, by one listing for each partition.

        Raises:
            UnknownTopicOrPartitionError: a topic or partition does not exist.
        """
        image = self._cluster.image()
        return {tp: self.view(image.topic(tp.topic), tp.partition) for tp in partitions}

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset before which this consumer may read each partition.

        Raises:
            UnknownTopicOrPartitionError: a topic or partition does not exist.
        """
        image = self._cluster.image()
        ends: dict[TopicPartition, int] = {}
        for tp in partitions:
            topic = image.topic(tp.topic)
            with self._cluster.detecting_deletion(topic):
                log = self._log(topic, tp.partition)
                ends[tp] = log.end_offset(isolation_level=self._isolation_level)
        return ends

    def view(self, topic: TopicImage, partition: int) -> LogView:
        """Return the current log start and end offset of one partition.

        Raises:
            UnknownTopicOrPartitionError: the topic was deleted.
        """
        with self._cluster.detecting_deletion(topic):
            return self._log(topic, partition).observe()

    def offsets_for_times(
        self, times_us: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record at or after a time, by partition; None if there is none.

        Args:
            times_us: microseconds since the epoch, by partition.

        Raises:
            UnknownTopicOrPartitionError: a topic or partition does not exist.
        """
        image = self._cluster.image()
        answer: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        for tp, time_us in times_us.items():
            topic = image.topic(tp.topic)
            log = self._log(topic, tp.partition)
            with self._cluster.detecting_deletion(topic):
                found = log.offset_for_time(time_us, isolation_level=self._isolation_level)
            epoch = topic.partitions[tp.partition].leader_epoch
            answer[tp] = found and OffsetAndTimestamp(found[0], found[1] // 1000, epoch)
        return answer

    def views_beside(self, topics: Mapping[TopicPartition, TopicImage]) -> Callable[[], Views]:
        """Start to list partitions of a remote store, many at once.

        What is listed is read again neither by `reset_offset` nor by who takes the log.

        Args:
            topics: by partition, its topic.

        Returns:
            A function that waits, and returns the views, or errors, by partition; none of a local
            store. Until then none of these partitions may be looked up.
        """
        waits: list[Callable[[], Views]] = []
        if not self._cluster.store.is_mapped:
            logs = [(tp, self._log(topic, tp.partition)) for tp, topic in topics.items()]
            # Of many partitions the last segments are not kept until they are read.
            reads_on = len(logs) <= _MAX_AT_ONCE
            for number in range(min(len(logs), _MAX_AT_ONCE)):
                part = logs[number::_MAX_AT_ONCE]
                waits.append(call_beside(partial(_views, part, reads_on=reads_on)))
        return lambda: {tp: view for wait in waits for tp, view in wait().items()}

    def take_log(self, topic: TopicImage, partition: int) -> PartitionLog:
        """Return the log handle of a partition, for another thread; it is not used here again."""
        log = self._log(topic, partition)
        self.forget(topic, partition)
        return log

    def reset_offset(
        self,
        topic: TopicImage,
        partition: int,
        policy: ResetPolicy,
        view: LogView | SparkLogError | None = None,
    ) -> int:
        """Return the current offset of a reset policy in a partition.

        Args:
            topic: that the partition is of.
            partition: its number.
            policy: the reset policy.
            view: what `views_beside` found; None lists the log.

        Raises:
            NoOffsetForPartitionError: the policy is ``none``.
            UnknownTopicOrPartitionError: the topic was deleted.
        """
        tp = TopicPartition(topic.name, partition)
        log = self._log(topic, partition)
        with self._cluster.detecting_deletion(topic):
            if isinstance(view, SparkLogError):
                raise view
            return start_offset(
                tp,
                log,
                None,
                policy,
                self._cluster.clock.time_us(),
                isolation_level=self._isolation_level,
                view=view,
            )

    def forget(self, topic: TopicImage, partition: int) -> None:
        """Drop the log handle of a partition."""
        self._logs.pop(topic.partition_directory(partition), None)

    def check_root_beside(self) -> Callable[[], None]:
        """Check that the root exists, before and after what is read meanwhile.

        On an object store one check, at once with the reads, is enough: it has no mount that comes
        and goes.

        Returns:
            A function to call after the reads. It raises as `check_root`, and so does this call.
        """
        if not self._cluster.store.is_mapped:
            return call_beside(self.check_root)
        self.check_root()
        return self.check_root

    def check_root(self) -> None:
        """Check that the root exists, because an unmounted root looks like one without records.

        Raises:
            StorageError: the root does not exist or cannot be reached.
        """
        try:
            self._cluster.store.head(META_PROPERTIES)
        except StorageError as error:
            raise RootNotFoundError(
                f"the root {self._cluster.root} cannot be found: {error}",
                path=self._cluster.root,
            ) from error

    def _log(self, topic: TopicImage, partition: int) -> PartitionLog:
        directory = topic.partition_directory(partition)
        log = self._logs.get(directory)
        if log is None:
            log = self._logs[directory] = self._cluster.partition_log(topic, partition)
        return log


def _views(logs: Iterable[tuple[TopicPartition, PartitionLog]], *, reads_on: bool) -> Views:
    found: Views = {}
    for tp, log in logs:
        try:
            found[tp] = log.observe(reads_on=reads_on)
        except SparkLogError as error:
            found[tp] = error
    return found
