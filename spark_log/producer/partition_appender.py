"""One try to append a delivery, and what an error of it says."""

from __future__ import annotations

from dataclasses import dataclass, replace

from spark_log.config import ProducerConfig
from spark_log.errors import (
    InvalidRecordError,
    LogTruncatedError,
    NotFoundError,
    SparkLogError,
    StorageError,
    StorageUnavailableError,
    UnknownOutcomeError,
    UnknownTopicOrPartitionError,
)
from spark_log.log import LogAppendInfo, PartitionLog, ProducerAppend, StagedSegment
from spark_log.log.append.validator import LogValidator
from spark_log.metadata import Cluster, MetadataImage
from spark_log.metadata.cluster import META_PROPERTIES
from spark_log.metadata.quotas import UNLIMITED
from spark_log.producer.delivery import Delivery
from spark_log.producer.topic_route import PartitionQueue
from spark_log.storage.store import PASSING_ERRNOS


@dataclass(frozen=True, slots=True)
class Appended:
    """A delivery that is in the log.

    Attributes:
        info: where; None when the topic took none of its records.
        stamps_us: see `Delivery.acknowledge`.
        size_bytes: of the segment.
        image: the metadata just after it.
    """

    info: LogAppendInfo | None
    stamps_us: tuple[int | None, ...]
    size_bytes: int
    image: MetadataImage | None = None


class TopicGoneError(Exception):
    """The topic was deleted: what was appended to it belongs to nobody."""


class DelayLoweredError(UnknownOutcomeError):
    """Names are freed sooner than the append reckoned with: its place may not be its own."""


class PartitionAppender:
    """Appends deliveries; for any number of threads, each with another partition."""

    def __init__(self, cluster: Cluster, config: ProducerConfig, client_id: str) -> None:
        self._cluster = cluster
        self._config = config
        self._client_id = client_id
        self._quota: tuple[MetadataImage | None, int] = None, UNLIMITED

    def append(
        self, queue: PartitionQueue, delivery: Delivery, producer: ProducerAppend | None
    ) -> Appended:
        """Append a delivery to the log of a busy queue.

        It is acknowledged only if the topic is there when it stands in the log: an append to a
        directory that belongs to no topic, or to none of this root, is nobody's.

        Raises:
            TopicGoneError: the topic was deleted.
            SparkLogError: see `PartitionLog.append`; `may_pass` and `UnknownOutcomeError` tell what
                to make of it.
        """
        self._check_root()
        log = queue.log or self._open(queue)
        try:
            appended = self._append(log, delivery, producer)
        except (SparkLogError, OSError) as error:
            if self._is_of_deleted_topic(queue, error):
                if isinstance(error, LogTruncatedError):
                    self._remove_made_anew(queue)
                raise TopicGoneError from error
            raise
        if appended.info is None:
            return appended
        try:
            self._check_root()
            image = self._cluster.image()
        except (SparkLogError, OSError) as error:
            raise UnknownOutcomeError(
                f"{queue.topic}-{queue.partition}: appended, but whether the topic is still there "
                f"cannot be seen: {error}"
            ) from error
        if _is_gone(queue, image):
            self._remove_made_anew(queue)
            raise TopicGoneError
        if image.topic(queue.topic).overrides != queue.route.topic.overrides:
            delay_ms = image.topic(queue.topic).config().file_delete_delay_ms
            if delay_ms < log.config.file_delete_delay_ms:
                raise DelayLoweredError(
                    f"{queue.topic}-{queue.partition}: file.delete.delay.ms was lowered to "
                    f"{delay_ms} while it was appended; whether it is in the log is looked up"
                )
        queue.acknowledged_offset = appended.info.last_offset + 1
        return replace(appended, image=image)

    def _remove_made_anew(self, queue: PartitionQueue) -> None:
        """Remove what an append has made of a deleted topic; nobody can find it."""
        directory = queue.route.topic.directory
        suppressed = self._cluster.suppressed
        with suppressed.suppress("removal of a late append", directory, Exception):
            self._cluster.store.delete_directory(directory)

    def bytes_per_second(self, image: MetadataImage) -> int:
        """Return how much the client may append."""
        known, found = self._quota
        if known is not image:  # which is another one only after a change
            found = image.client_quota(self._client_id).producer_byte_rate
            self._quota = image, found
        return found

    def image(self) -> MetadataImage:
        """Return the metadata; at the log's end this is one look.

        Raises:
            SparkLogError: they cannot be read.
        """
        return self._cluster.image()

    def may_pass(self, error: Exception) -> bool:
        """Whether the same append may succeed later, without anyone changing what is sent."""
        if isinstance(error, SparkLogError) and error.retriable:
            return True
        if isinstance(error, StorageError):
            cause = error.__cause__
            if isinstance(cause, OSError) and cause.errno in PASSING_ERRNOS:
                return True
        # A root that is away looks like a log that is damaged, or not there.
        return self._is_root_away()

    def _open(self, queue: PartitionQueue) -> PartitionLog:
        if _is_gone(queue, self._cluster.image()):
            raise TopicGoneError
        topic = queue.route.topic
        log = self._cluster.partition_log(topic, queue.partition)
        log.files.on_end(queue.acknowledged_offset)
        queue.log = log
        if queue.route.topic is not topic:
            queue.log = None  # its settings were changed meanwhile
        return log

    def _append(
        self, log: PartitionLog, delivery: Delivery, producer: ProducerAppend | None
    ) -> Appended:
        while True:
            staged, stamps_us = self._staged(log, delivery, producer)
            if staged is not None:
                break
            if not delivery.pieces():
                return Appended(None, (), 0)
        try:
            info = log.append_segment(staged)
            return Appended(info, stamps_us, staged.size_bytes)
        finally:
            staged.staged.discard()

    def _staged(
        self, log: PartitionLog, delivery: Delivery, producer: ProducerAppend | None
    ) -> tuple[StagedSegment | None, tuple[int | None, ...]]:
        """Encode a delivery. None: it is another one now, without records that are not taken."""
        pieces = delivery.pieces()
        if not pieces:
            return None, ()
        writer = log.segment_writer(self._config.compression_type, producer)
        stamps_us: list[int | None] = []
        try:
            for piece in pieces:
                try:
                    header = writer.write(piece.records)
                except InvalidRecordError:
                    # Of a delivery that may be in the log, all records were taken before.
                    validator = LogValidator(log.config, log.clock)
                    if delivery.is_unknown or not delivery.refuse(piece, validator):
                        raise
                    writer.discard()
                    return None, ()
                stamps_us.append(header.max_timestamp_us if header.timestamp_type else None)
            return writer.finish(), tuple(stamps_us)
        except BaseException:
            writer.discard()
            raise

    def _is_of_deleted_topic(self, queue: PartitionQueue, error: Exception) -> bool:
        """Whether an append failed since its topic was deleted: files that vanish look damaged."""
        if isinstance(error, InvalidRecordError | StorageUnavailableError):
            return False  # what the records are to blame for, and what says nothing of files
        try:
            self._check_root()
            return _is_gone(queue, self._cluster.image())
        except (SparkLogError, OSError):
            return False

    def _check_root(self) -> None:
        """Check that the root is there; a put would make its directories anew.

        Raises:
            StorageUnavailableError: it is not.
        """
        if self._is_root_away():
            raise StorageUnavailableError(
                f"the root {self._cluster.root} is not there just now (no {META_PROPERTIES}): "
                f"mount it again, or move it back",
                path=self._cluster.root,
            )

    def _is_root_away(self) -> bool:
        if not self._cluster.store.is_mapped:
            return False  # an object store answers, or does not; it has no directories to lose
        try:
            self._cluster.store.head(META_PROPERTIES)
        except NotFoundError:
            return True
        except StorageError:
            return False
        return False


def _is_gone(queue: PartitionQueue, image: MetadataImage) -> bool:
    topic = image.find(queue.topic)
    return topic is None or topic.topic_id != queue.route.topic.topic_id


def unknown_topic(topic: str) -> UnknownTopicOrPartitionError:
    """Return the error of records whose topic was deleted while they waited."""
    return UnknownTopicOrPartitionError(
        f"topic {topic!r} was deleted while records for it waited; they were not appended to any "
        f"topic that exists",
        topic=topic,
    )
