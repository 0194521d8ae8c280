"""Questions about partitions' ends and times, with logs of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from spark_log.consumer.offset_reset import ResetPolicy, reset_offset
from spark_log.errors import RootNotFoundError, StorageError
from spark_log.log import LogView, PartitionLog
from spark_log.metadata import Cluster
from spark_log.metadata.cluster import META_PROPERTIES
from spark_log.metadata.image import TopicImage
from spark_log.types import OffsetAndTimestamp, TopicPartition


class LogLookup:
    """Looks offsets up, for one thread."""

    def __init__(self, cluster: Cluster) -> None:
        """Args: cluster: the opened root."""
        self._cluster = cluster
        self._logs: dict[str, PartitionLog] = {}

    def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, LogView]:
        """Return what each partition holds now: one listing each.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic or partition.
        """
        image = self._cluster.image()
        return {named: self.view(image.topic(named.topic), named.partition) for named in partitions}

    def view(self, topic: TopicImage, partition: int) -> LogView:
        """Return what a partition holds now.

        Raises:
            UnknownTopicOrPartitionError: the topic was deleted.
        """
        with self._cluster.detecting_deletion(topic):
            return self._log(topic, partition).observe()

    def offsets_for_times(
        self, times_us: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record at or after a time in each partition, None where there is none.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic or partition.
        """
        image = self._cluster.image()
        answer: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        for named, time_us in times_us.items():
            topic = image.topic(named.topic)
            log = self._log(topic, named.partition)
            with self._cluster.detecting_deletion(topic):
                found = log.offset_for_time(time_us)
            epoch = topic.partitions[named.partition].leader_epoch
            answer[named] = found and OffsetAndTimestamp(found[0], found[1] // 1000, epoch)
        return answer

    def reset(self, topic: TopicImage, partition: int, policy: ResetPolicy) -> int:
        """Return the offset that a reset policy means in a partition now.

        Raises:
            UnknownTopicOrPartitionError: the topic was deleted.
        """
        assert policy != "none"
        log = self._log(topic, partition)
        with self._cluster.detecting_deletion(topic):
            return reset_offset(log, policy, self._cluster.clock.time_us())

    def forget(self, topic: TopicImage, partition: int) -> None:
        """Let go of what is known of a partition."""
        self._logs.pop(topic.partition_directory(partition), None)

    def check_root(self) -> None:
        """Check that the root is there: one that is unmounted looks like one without records.

        Raises:
            StorageError: it is not, or cannot be reached.
        """
        try:
            self._cluster.store.head(META_PROPERTIES)
        except StorageError as error:
            raise RootNotFoundError(
                f"the root {self._cluster.root} is not there just now: {error}",
                path=self._cluster.root,
            ) from error

    def _log(self, topic: TopicImage, partition: int) -> PartitionLog:
        directory = topic.partition_directory(partition)
        log = self._logs.get(directory)
        if log is None:
            log = self._logs[directory] = self._cluster.partition_log(topic, partition)
        return log
