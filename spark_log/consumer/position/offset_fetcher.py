"""Looks up log start and end offsets, and offsets of timestamps (Kafka's OffsetFetcher)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from spark_log.cluster import META_PROPERTIES, Cluster
from spark_log.consumer.position.offset_reset import ResetPolicy, start_offset
from spark_log.errors import RootNotFoundError, SparkLogError, StorageError
from spark_log.log import IsolationLevel, LogView, PartitionLog
from spark_log.metadata import MetadataImage, TopicImage
from spark_log.storage import map_requests
from spark_log.threads import call_beside
from spark_log.types import OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    from spark_log.log.stripe import Stripe

_MAX_AT_ONCE: Final = 16
"""Maximum number of partitions that are read at once."""

_Answer = TypeVar("_Answer")

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
        self._image: MetadataImage | None = None
        self._logs: dict[tuple[str, int], PartitionLog] = {}  # by topic id and partition

    def views(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, LogView]:
        """Return the current log start and end offsets, by one listing for each partition.

        Partitions of a stripe share the request at its end.

        Raises:
            UnknownTopicOrPartitionError: a topic or partition does not exist.
        """
        topics = self._topics(partitions)
        self._poll_stripes(topics)
        return self._read_each(topics, lambda _, log: log.observe_polled())

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset before which this consumer may read each partition.

        A stripe tells the ends of all of its partitions, by one request.

        Raises:
            UnknownTopicOrPartitionError: a topic or partition does not exist.
        """
        topics, level = self._topics(partitions), self._isolation_level
        self._poll_stripes(topics)

        def read(tp: TopicPartition, log: PartitionLog) -> int:
            if log.stripe is not None:
                end_offset, first_open = log.stripe.reader.known_end(tp.partition)
                if level == "read_uncommitted" or first_open is None:
                    return end_offset
            return log.end_offset(log.observe_polled(), isolation_level=level)

        return self._read_each(topics, read)

    def bounds(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """Return the first offset of each partition, and the one before which it may be read.

        Raises:
            UnknownTopicOrPartitionError: a topic or partition does not exist.
        """
        topics, level = self._topics(partitions), self._isolation_level
        self._poll_stripes(topics)

        def read(_: TopicPartition, log: PartitionLog) -> tuple[int, int]:
            view = log.observe_polled()
            return view.log_start_offset, log.end_offset(view, isolation_level=level)

        return self._read_each(topics, read)

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
            times_us: partition → the time, in microseconds since the epoch.

        Raises:
            UnknownTopicOrPartitionError: a topic or partition does not exist.
        """
        topics, level = self._topics(times_us), self._isolation_level
        found = self._read_each(
            topics, lambda tp, log: log.offset_for_time(times_us[tp], isolation_level=level)
        )
        return {
            tp: each
            and OffsetAndTimestamp(
                each[0], each[1] // 1000, topics[tp].partitions[tp.partition].leader_epoch
            )
            for tp, each in found.items()
        }

    def views_beside(self, topics: Mapping[TopicPartition, TopicImage]) -> Callable[[], Views]:
        """Start to list partitions of a remote store, many at once.

        Neither `reset_offsets` nor the user of a log that `take_log` returns lists it again.

        Returns:
            A function that waits, and returns the view, or the error, of each partition; empty for
            a local store. Until it has returned, none of these partitions may be looked up.
        """
        if self._cluster.store.is_local:
            return dict
        logs = {tp: self._log(topic, tp.partition) for tp, topic in topics.items()}
        # With many partitions, their last segments are not kept in memory until they are read.
        keeps_for_next_read = len(logs) <= _MAX_AT_ONCE
        stripes = {log.stripe for log in logs.values() if log.stripe is not None}
        begun = {stripe: stripe.reader.polls_begun for stripe in stripes}

        def observe(_: TopicPartition, log: PartitionLog) -> LogView:
            if log.stripe is None:
                return log.observe(keeps_for_next_read=keeps_for_next_read)
            log.stripe.reader.poll(since=begun[log.stripe])  # once for all of its partitions
            return log.observe_polled()

        return _begin(logs, observe)

    def take_log(self, topic: TopicImage, partition: int) -> PartitionLog:
        """Return the log handle of a partition, for another thread; it is not used here again."""
        log = self._log(topic, partition)
        self.forget(topic, partition)
        return log

    def reset_offsets(
        self,
        topics: Mapping[TopicPartition, TopicImage],
        policies: Mapping[TopicPartition, ResetPolicy],
        views: Views,
    ) -> dict[TopicPartition, int | SparkLogError]:
        """Return the current offsets of reset policies, or the error of each that cannot be read.

        Args:
            topics: partition → its topic.
            policies: the reset policy of each of these partitions.
            views: the result of `views_beside`; a partition without a view is listed.
        """
        now_us = self._cluster.clock.time_us()

        def read(tp: TopicPartition, log: PartitionLog) -> int:
            view = views.get(tp)
            if isinstance(view, SparkLogError):
                raise view
            level = self._isolation_level
            return start_offset(
                tp, log, None, policies[tp], now_us, isolation_level=level, view=view
            )

        return self._try_each(topics, read)

    def forget(self, topic: TopicImage, partition: int) -> None:
        """Drop the log handle of a partition."""
        self._logs.pop((topic.topic_id, partition), None)

    def check_root_beside(self) -> Callable[[], None]:
        """Check that the root exists, before and after the reads of the caller.

        On an object store one check, in parallel with the reads, is enough: an object store cannot
        be unmounted.

        Returns:
            A function to call after the reads. It, and this call, raise the errors of `check_root`.
        """
        if not self._cluster.store.is_local:
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

    def _topics(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, TopicImage]:
        image = self._cluster.image()
        if image is not self._image:  # a new image is made only for a change
            self._image = image
            for key in [each for each in self._logs if image.find_by_id(each[0]) is None]:
                del self._logs[key]
        return {tp: image.topic(tp.topic) for tp in partitions}

    def _poll_stripes(self, topics: Mapping[TopicPartition, TopicImage]) -> None:
        """Learn the ends of all striped partitions, by one request for each stripe, at once."""
        stripes = {
            stripe: topic
            for tp, topic in topics.items()
            if (stripe := self._log(topic, tp.partition).stripe) is not None
        }

        def poll(stripe: Stripe) -> None:
            with self._cluster.detecting_deletion(stripes[stripe]):
                stripe.reader.poll()

        map_requests(self._cluster.store, poll, stripes)

    def _read_each(
        self,
        topics: Mapping[TopicPartition, TopicImage],
        read: Callable[[TopicPartition, PartitionLog], _Answer],
    ) -> dict[TopicPartition, _Answer]:
        """Read partitions, many at once on a remote store.

        Raises:
            UnknownTopicOrPartitionError: a partition does not exist, or a topic was deleted.
            SparkLogError: the error of the first read that failed.
        """
        answers: dict[TopicPartition, _Answer] = {}
        for tp, answer in self._try_each(topics, read, until_error=True).items():
            if isinstance(answer, SparkLogError):
                raise answer from answer.__cause__
            answers[tp] = answer
        return answers

    def _try_each(
        self,
        topics: Mapping[TopicPartition, TopicImage],
        read: Callable[[TopicPartition, PartitionLog], _Answer],
        *,
        until_error: bool = False,
    ) -> dict[TopicPartition, _Answer | SparkLogError]:
        """Read partitions as `_read_each` does, and return the result, or the error, of each.

        Args:
            topics: partition → its topic.
            read: the function that reads one partition.
            until_error: whether reads may stop after the first error.
        """
        logs = {tp: self._log(topic, tp.partition) for tp, topic in topics.items()}
        is_at_once = len(logs) > 1 and not self._cluster.store.is_local
        found = _begin(logs, read)() if is_at_once else {}
        answers: dict[TopicPartition, _Answer | SparkLogError] = {}
        for tp, log in logs.items():
            try:
                with self._cluster.detecting_deletion(topics[tp]):
                    answer = found[tp] if is_at_once else read(tp, log)
                    if isinstance(answer, SparkLogError):
                        raise answer
                    answers[tp] = answer
            except SparkLogError as error:
                answers[tp] = error
                if until_error:
                    break
        return answers

    def _log(self, topic: TopicImage, partition: int) -> PartitionLog:
        key = topic.topic_id, partition
        log = self._logs.get(key)
        if log is None:
            log = self._logs[key] = self._cluster.partition_log(topic, partition)
        return log


def _begin(
    logs: Mapping[TopicPartition, PartitionLog],
    read: Callable[[TopicPartition, PartitionLog], _Answer],
) -> Callable[[], dict[TopicPartition, _Answer | SparkLogError]]:
    """Start to read partitions, many at once.

    Returns:
        A function that waits for all of them, and returns the result, or the error, of each.
    """

    def read_some(part: Iterable[TopicPartition]) -> dict[TopicPartition, _Answer | SparkLogError]:
        found: dict[TopicPartition, _Answer | SparkLogError] = {}
        for tp in part:
            try:
                found[tp] = read(tp, logs[tp])
            except SparkLogError as error:
                found[tp] = error
        return found

    parts = [list(logs)[number::_MAX_AT_ONCE] for number in range(min(len(logs), _MAX_AT_ONCE))]
    waits = [call_beside(partial(read_some, part)) for part in parts]
    return lambda: {tp: each for wait in waits for tp, each in wait().items()}
