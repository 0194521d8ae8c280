"""The states of one partition, read from the metadata log."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from spark_log.errors import StripesChangedError, UnknownTopicOrPartitionError
from spark_log.log.chain import NO_LEADER, PartitionState
from spark_log.metadata.image import MetadataImage
from spark_log.metadata.metadata_log import METADATA_LEASE_MS, MetadataLog
from spark_log.metadata.records import MetadataRecord, PartitionRecord
from spark_log.metadata.topic_image import TopicImage


class MetadataPartitionStates:
    """The states of one partition (`spark_log.log.PartitionStates`). Thread-safe."""

    def __init__(self, metadata: MetadataLog, topic: TopicImage, partition: int) -> None:
        """Return the states of a partition; no storage is accessed yet.

        Args:
            metadata: the cluster's metadata log.
            topic: the partition's topic, as the caller last read it.
            partition: the partition's number.
        """
        self._metadata = metadata
        self._topic = topic
        self._partition = partition
        record = topic.partitions[partition]
        self._known = topic, record, state_of(record, is_moving=topic.moving_to is not None)

    def current(self) -> PartitionState:
        """Return the last known state, without a request.

        Raises:
            StripesChangedError: the topic has other stripes than the one that was passed.
        """
        topic = self._metadata.known_image().find_by_id(self._topic.topic_id)
        seen, known, state = self._known
        if topic is seen or topic is None:  # deleted, or created since the metadata were read
            return state
        check_same_stripes(self._topic, topic)
        record, is_moving = topic.partitions[self._partition], topic.moving_to is not None
        if (record is not known and record.partition_epoch >= known.partition_epoch) or (
            record is known and is_moving != state.is_moving
        ):
            known, state = record, state_of(record, is_moving=is_moving)
        self._known = topic, known, state
        return state

    def refresh(self) -> PartitionState:
        """Read the metadata, and return the newest state.

        Raises:
            UnknownTopicOrPartitionError: the topic was deleted.
            StorageError: the metadata cannot be read.
        """
        if self._metadata.image().find_by_id(self._topic.topic_id) is None:
            name = self._topic.name
            raise UnknownTopicOrPartitionError(f"topic {name!r} was deleted", topic=name)
        return self.current()

    def recent(self, max_age_ms: float | None = None) -> PartitionState:
        """Return a state that was the newest one at some time within the last ``max_age_ms``.

        Sends no request if this process has read the metadata since then, for any partition.

        Args:
            max_age_ms: the maximum age; None for the writers' lease, `METADATA_LEASE_MS`.

        Raises:
            UnknownTopicOrPartitionError: the topic was deleted.
            StorageError: the metadata cannot be read.
        """
        max_age_ms = METADATA_LEASE_MS if max_age_ms is None else max_age_ms
        is_recent = self._metadata.recent_image(max_age_ms) is not None
        return self.current() if is_recent else self.refresh()

    def remove_from_isr(self, state: PartitionState, brokers: Collection[int]) -> PartitionState:
        """Remove brokers from the in-sync and joining replicas, if the leader epoch is the newest.

        The last replica that may lead stays, even if it failed: a single writer that cannot reach
        it must not stop all others.

        Args:
            state: the state that the caller knows.
            brokers: the brokers that failed.

        Returns:
            The newest state.

        Raises:
            UnknownTopicOrPartitionError: the topic was deleted.
            UnknownOutcomeError: it is not known whether the change was made.
            StorageError: the metadata cannot be changed.
        """
        # A late import: replicas fail seldom, and most partitions have one.
        from spark_log.metadata.partitions import shrink_isr

        def decide(image: MetadataImage) -> Sequence[MetadataRecord]:
            records = shrink_isr(
                image,
                self._topic.topic_id,
                self._partition,
                brokers,
                leader_epoch=state.leader_epoch,
            )
            stops = any(getattr(record, "leader", None) == NO_LEADER for record in records)
            return () if stops else records

        self._metadata.commit(decide)
        return self.refresh()

    def min_insync_replicas(self) -> int:
        """Return the partition's ``min.insync.replicas``, without a request."""
        topic = self._metadata.known_image().find_by_id(self._topic.topic_id) or self._topic
        return topic.min_insync_replicas(self._partition)


def check_same_stripes(opened: TopicImage, present: TopicImage) -> None:
    """Check that a topic has the same stripes as when a log of it was opened.

    Args:
        opened: the topic when the log was opened.
        present: the same topic in newer metadata.

    Raises:
        StripesChangedError: it has other stripes.
    """
    if present.stripes != opened.stripes:
        raise StripesChangedError(
            f"topic {present.name!r} has other stripes now (stripes={len(present.stripes)}); open "
            f"its log again",
            topic=present.name,
        )


def state_of(record: PartitionRecord, *, is_moving: bool = False) -> PartitionState:
    """Return the state of a partition for its log.

    Args:
        record: the partition, in the metadata.
        is_moving: whether its topic gets another number of stripes.
    """
    return PartitionState(
        leader=record.leader,
        leader_epoch=record.leader_epoch,
        isr=record.isr,
        joining=record.joining,
        replicas=record.replicas,
        directories={each: record.directory_of(each) for each in record.replicas},
        high_watermark_cap_epoch=record.hidden_from_epoch,
        is_moving=is_moving,
    )
