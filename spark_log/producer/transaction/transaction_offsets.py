"""Offsets of consumer groups in a transaction (KIP-447)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spark_log.cluster import Cluster
from spark_log.coordinator import LazyTransactionalOffsets
from spark_log.errors import InvalidGroupIdError
from spark_log.producer.transaction.transactional_identity import TransactionalIdentity
from spark_log.transaction import TransactionOffset
from spark_log.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class TransactionOffsets:
    """Registers groups, and checks their offsets, which are part of the decision to commit."""

    def __init__(
        self,
        cluster: Cluster,
        identity: TransactionalIdentity,
        group_offsets: LazyTransactionalOffsets,
    ) -> None:
        """Create the offsets of a producer's transactions; nothing is read yet."""
        self._cluster = cluster
        self._identity = identity
        self._group_offsets = group_offsets

    def check(
        self, offsets: Offsets, group_metadata: ConsumerGroupMetadata
    ) -> tuple[TransactionOffset, ...]:
        """Check offsets, and return them in the form that the decision has.

        Raises:
            UnknownTopicOrPartitionError: a topic or partition does not exist.
            OffsetOutOfRangeError: an offset is negative.
            InvalidConfigurationError: the metadata of an offset cannot be stored.
            TypeError: an offset is not an `OffsetAndMetadata`.
            StorageError: the metadata cannot be read.
        """
        from spark_log.coordinator import check_metadata, check_offset

        group_id = checked_group(group_metadata)
        image = self._cluster.image()
        checked = []
        for tp, offset in offsets.items():
            if not isinstance(offset, OffsetAndMetadata):
                raise TypeError(f"{tp}: {offset!r} is given; give OffsetAndMetadata(offset)")
            check_offset(tp, offset.offset)
            check_metadata(tp, offset)
            topic = image.topic(tp.topic)
            self._cluster.partition_log(topic, tp.partition)  # raises if it does not exist
            checked.append(
                TransactionOffset(
                    group_id,
                    tp.topic,
                    topic.topic_id,
                    tp.partition,
                    offset.offset,
                    offset.leader_epoch,
                    offset.metadata or "",
                )
            )
        return tuple(checked)

    def register(
        self, offsets: Sequence[TransactionOffset], group_metadata: ConsumerGroupMetadata
    ) -> None:
        """Register the group with the transaction, then send the group the pending offsets.

        The call may be repeated.

        Raises:
            SparkLogError: the errors of `TransactionalIdentity.register_group` and
                `TransactionalOffsets.send`.
        """
        group_id = checked_group(group_metadata)
        state, producer = self._identity.register_group(group_id)
        partitions = [TopicPartition(each.topic, each.partition) for each in offsets]
        self._group_offsets.send(state, producer, group_metadata, partitions)


def checked_group(group_metadata: ConsumerGroupMetadata) -> str:
    """Return the group's id.

    Raises:
        TypeError: the argument is not a `ConsumerGroupMetadata`.
        ValueError: it has a generation, but no member id.
        InvalidGroupIdError: the consumer has no group.
    """
    if not isinstance(group_metadata, ConsumerGroupMetadata):
        raise TypeError(f"group_metadata is {group_metadata!r}: give consumer.group_metadata()")
    if group_metadata.group_id is None:
        raise InvalidGroupIdError(
            "the consumer of this group_metadata has no group: give Consumer a group_id"
        )
    if group_metadata.generation_id > 0 and not group_metadata.member_id:
        raise ValueError(
            f"group_metadata has generation {group_metadata.generation_id} and no member id: give "
            f"consumer.group_metadata()"
        )
    return group_metadata.group_id
