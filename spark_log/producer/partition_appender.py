"""One attempt to append a delivery to a partition, and whether its error can be retried."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Final

from spark_log.cluster import Cluster
from spark_log.config import ProducerConfig
from spark_log.errors import (
    InvalidRecordError,
    LogTruncatedError,
    SparkLogError,
    StorageError,
    StorageUnavailableError,
    UnknownOutcomeError,
    UnknownTopicOrPartitionError,
)
from spark_log.log import (
    ALL,
    LogAppendInfo,
    LogValidator,
    MergeExecutor,
    PartitionLog,
    StagedSegment,
    StagingFailedError,
)
from spark_log.metadata import METADATA_LEASE_MS, UNLIMITED, MetadataImage
from spark_log.producer.delivery import Delivery
from spark_log.producer.merge_thread import MergeThread
from spark_log.producer.metadata_lookup import MetadataLookup
from spark_log.producer.topic_route import PartitionQueue
from spark_log.record import ProducerAppend
from spark_log.storage import TRANSIENT_ERRNOS

_MAX_STAGINGS: Final = 10
"""Maximum number of roots on which one attempt tries to stage its segment, one after the other."""


@dataclass(frozen=True, slots=True)
class AppendResult:
    """The result of a successful append.

    Attributes:
        info: the offsets of the append; None if the topic accepted none of its records.
        log_append_times_us: one item per piece of the delivery: the timestamp that the log gave to
            all its records, or None.
        size_bytes: size of the segment file.
        image: the metadata right after the append.
    """

    info: LogAppendInfo | None
    log_append_times_us: tuple[int | None, ...]
    size_bytes: int
    image: MetadataImage | None = None


class TopicDeletedError(Exception):
    """The topic was deleted: nobody can read its records."""


class DeleteDelayLoweredError(UnknownOutcomeError):
    """``file.delete.delay.ms`` was lowered during the append, whose name may have been reused."""


class PartitionAppender:
    """Appends deliveries; thread-safe as long as each partition has one append at a time."""

    def __init__(
        self,
        cluster: Cluster,
        config: ProducerConfig,
        client_id: str,
        merges: MergeThread | None = None,
    ) -> None:
        """Return an appender for the partitions of a cluster; nothing is opened yet.

        Args:
            cluster: the cluster of the partitions.
            config: the producer's settings.
            client_id: the client id whose quota applies.
            merges: the thread that runs the merges of the logs; None: an append that makes a merge
                due runs it, and takes longer.
        """
        self._merge_executor = (
            None if merges is None else MergeExecutor(merges.submit, merges.pause)
        )
        self._merges_make_way: Callable[[], AbstractContextManager[None]] = (
            nullcontext if merges is None else merges.made_way_for
        )
        self._cluster = cluster
        self._metadata = MetadataLookup(cluster)
        self._config = config
        self._client_id = client_id
        self._acks = ALL if config.acks == "all" else 1
        self._quota: tuple[MetadataImage | None, int] = None, UNLIMITED

    def append(
        self, queue: PartitionQueue, delivery: Delivery, producer: ProducerAppend | None
    ) -> AppendResult:
        """Append a delivery to the log of a busy partition.

        After the append, the topic must still exist in the metadata: records in a directory without
        a topic are never read, and must not be acknowledged. On an object store, metadata that were
        the newest within the last `METADATA_LEASE_MS` are sufficient (docs/adr/0026), if the log's
        end was known within the same time: a cleaner frees no name so soon, even if
        ``file.delete.delay.ms`` was lowered.

        Raises:
            TopicDeletedError: the topic was deleted.
            UnknownOutcomeError: the delivery may be in the log or not.
            SparkLogError: the delivery is not in the log; `is_retriable` says whether to retry.
        """
        self._cluster.store.check_root()
        began_ms = self._cluster.clock.monotonic_ms()
        log = queue.log or self._open(queue, began_ms)
        try:
            with self._merges_make_way():
                appended = self._append(log, delivery, producer)
        except (SparkLogError, OSError) as error:
            if self._is_of_deleted_topic(queue, error):
                if isinstance(error, LogTruncatedError):
                    self._remove_recreated_directory(queue)
                raise TopicDeletedError from error
            raise
        if appended.info is None:
            return appended
        try:
            self._cluster.store.check_root()
            image = self._image_after_append(queue)
        except (SparkLogError, OSError) as error:
            raise UnknownOutcomeError(
                f"{queue.topic}-{queue.partition}: appended, but it is not known whether the topic "
                f"still exists: {error}"
            ) from error
        if _is_deleted(queue, image):
            self._remove_recreated_directory(queue)
            raise TopicDeletedError
        if image.topic(queue.topic).overrides != queue.route.topic.overrides:
            delay_ms = image.topic(queue.topic).config().file_delete_delay_ms
            if delay_ms < log.config.file_delete_delay_ms:
                raise DeleteDelayLoweredError(
                    f"{queue.topic}-{queue.partition}: file.delete.delay.ms was lowered to "
                    f"{delay_ms} during the append; the retry finds out whether it is in the log"
                )
        queue.acknowledged_offset = appended.info.last_offset + 1
        if not appended.info.is_duplicate:
            queue.known_ms = began_ms  # no segment had the next name before this one was put
        return replace(appended, image=image)

    def _image_after_append(self, queue: PartitionQueue) -> MetadataImage:
        age_ms = self._cluster.clock.monotonic_ms() - queue.known_ms
        if age_ms < METADATA_LEASE_MS:
            return self._metadata.recent_image()
        return self._metadata.image()

    def catch_up(self, queue: PartitionQueue) -> None:
        """Bring the other replicas up to the records that were acknowledged with ``acks=1``."""
        if self._acks == ALL or queue.log is None:
            return
        with self._cluster.suppressed.suppress("replication", queue.log.directory, SparkLogError):
            queue.log.catch_up()

    def _remove_recreated_directory(self, queue: PartitionQueue) -> None:
        """Remove the directory of a deleted topic that a late append created again."""
        directory = queue.route.topic.directory
        suppressed = self._cluster.suppressed
        with suppressed.suppress("removal of a late append", directory, Exception):
            self._cluster.store.delete_directory(directory)

    def bytes_per_second(self, image: MetadataImage) -> int:
        """Return the client's ``producer_byte_rate`` in a metadata image."""
        known, found = self._quota
        if known is not image:  # a new image is made only for a change
            found = image.client_quota(self._client_id).producer_byte_rate
            self._quota = image, found
        return found

    def image(self) -> MetadataImage:
        """Return the current metadata image; one request if nothing has changed.

        Raises:
            SparkLogError: the metadata cannot be read.
        """
        return self._cluster.image()

    def is_retriable(self, error: Exception) -> bool:
        """Return whether a retry of the same append may succeed."""
        if isinstance(error, SparkLogError) and error.retriable:
            return True
        if isinstance(error, StorageError):
            cause = error.__cause__
            if isinstance(cause, OSError) and cause.errno in TRANSIENT_ERRNOS:
                return True
        # An unmounted root looks like a damaged or missing log.
        return self._is_root_missing()

    def _open(self, queue: PartitionQueue, now_ms: float) -> PartitionLog:
        if _is_deleted(queue, self._metadata.recent_image()):
            raise TopicDeletedError
        queue.known_ms = now_ms
        topic = queue.route.topic
        log = self._cluster.partition_log(
            topic, queue.partition, merge_executor=self._merge_executor
        )
        log.on_log_end(queue.acknowledged_offset)
        queue.log = log
        if queue.route.topic is not topic:
            queue.log = None  # the topic's configs changed meanwhile
        return log

    def _append(
        self, log: PartitionLog, delivery: Delivery, producer: ProducerAppend | None
    ) -> AppendResult:
        """Append a delivery; if the leader's root fails, stage it at once on the next leader."""
        for _ in range(_MAX_STAGINGS - 1):
            try:
                return self._stage_and_append(log, delivery, producer)
            except StagingFailedError:
                continue
        return self._stage_and_append(log, delivery, producer)

    def _stage_and_append(
        self, log: PartitionLog, delivery: Delivery, producer: ProducerAppend | None
    ) -> AppendResult:
        while True:
            staged, log_append_times_us = self._staged(log, delivery, producer)
            if staged is not None:
                break
            if not delivery.pieces():
                return AppendResult(None, (), 0)
        try:
            info = log.append_segment(staged, acks=self._acks)
            return AppendResult(info, log_append_times_us, staged.size_bytes)
        except SparkLogError:
            raise
        except Exception as error:  # a fault of the program, before the put or after it
            raise UnknownOutcomeError(
                f"{log.directory}: it is not known whether an append is in the log: {error!r}",
                path=log.directory,
            ) from error
        finally:
            staged.discard()

    def _staged(
        self, log: PartitionLog, delivery: Delivery, producer: ProducerAppend | None
    ) -> tuple[StagedSegment | None, tuple[int | None, ...]]:
        """Encode a delivery; return None if records were refused and the delivery changed."""
        pieces = delivery.pieces()
        if not pieces:
            return None, ()
        writer = log.segment_writer(self._config.compression_type, producer)
        log_append_times_us: list[int | None] = []
        try:
            for piece in pieces:
                try:
                    header = writer.write(piece.records)
                except InvalidRecordError:
                    # If it may be in the log, an earlier attempt has validated all its records.
                    validator = LogValidator(log.config, log.clock)
                    if delivery.is_outcome_unknown or not delivery.refuse(piece, validator):
                        raise
                    writer.discard()
                    return None, ()
                log_append_times_us.append(
                    header.max_timestamp_us if header.timestamp_type else None
                )
            return writer.finish(), tuple(log_append_times_us)
        except BaseException:
            writer.discard()
            raise

    def _is_of_deleted_topic(self, queue: PartitionQueue, error: Exception) -> bool:
        """Return whether an append failed because its topic was deleted.

        To the append, the deleted files look like damage.
        """
        if isinstance(error, InvalidRecordError | StorageUnavailableError):
            return False  # these are not about missing files
        try:
            return _is_deleted(queue, self._cluster.image())
        except (SparkLogError, OSError):
            return False

    def _is_root_missing(self) -> bool:
        try:
            self._cluster.store.check_root()
        except StorageError as error:
            return error.retriable
        return False


def _is_deleted(queue: PartitionQueue, image: MetadataImage) -> bool:
    topic = image.find(queue.topic)
    return topic is None or topic.topic_id != queue.route.topic.topic_id


def unknown_topic(
    topic: str, partition: int = 0, num_partitions: int = 0
) -> UnknownTopicOrPartitionError:
    """Return the error of records whose topic was deleted while they waited.

    Args:
        topic: the topic's name.
        partition: the partition that the records were sent to.
        num_partitions: number of partitions of the topic that has the name now; 0 without one.
    """
    if num_partitions:
        return UnknownTopicOrPartitionError(
            f"topic {topic!r} was deleted and created again with {num_partitions} partitions, "
            f"numbered from 0, while records for partition {partition} waited; they were not "
            f"appended",
            topic=topic,
        )
    return UnknownTopicOrPartitionError(
        f"topic {topic!r} was deleted while records for it waited; they were not appended to any "
        f"topic that exists",
        topic=topic,
    )
