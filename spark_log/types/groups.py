"""Consumer groups: a member's view of its group, descriptions of groups, and lags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from spark_log.types.records import TopicPartition


class ConsumerGroupMetadata(NamedTuple):
    """A consumer's membership in its group, as `Consumer.group_metadata` returns it (KIP-447).

    Attributes:
        group_id: the group's id; None for a consumer without a group.
        generation_id: the group's generation that the consumer knows; -1 if it has not joined.
        member_id: the member's id; empty if the consumer has not joined.
        group_instance_id: the ``group.instance.id`` of a static member, or None.
    """

    group_id: str | None = None
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group in `Admin.list_groups`, with kafka-python's field names.

    Attributes:
        group_id: the group's id.
        protocol_type: ``consumer``, or the type that Kafka's clients at a gateway have; empty for a
            group that never had members.
        group_state: ``Empty``, ``Stable``, or ``Reconciling`` while partitions move from one member
            to another. Of Kafka's clients at a gateway: ``PreparingRebalance`` while they join
            again, ``CompletingRebalance`` until their leader has assigned.
        group_type: ``consumer`` for a group of Kafka's consumer protocol (KIP-848) at a gateway,
            ``classic`` for others.
    """

    group_id: str
    protocol_type: str
    group_state: str
    group_type: str = "classic"


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a group.

    Attributes:
        member_id: the member's id.
        group_instance_id: ``group.instance.id`` of a static member; None for a dynamic one.
        client_id: the ``client.id`` of its consumer.
        client_host: the host name of its machine; empty if not known.
        assignment: the partitions that it reads.
        revoking: the partitions that it has stopped reading and may still commit, until it releases
            them.
        pending: the partitions that it gets when other members have released them.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    assignment: tuple[TopicPartition, ...]
    revoking: tuple[TopicPartition, ...]
    pending: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group and its members.

    Attributes:
        group_id: the group's id.
        group_state: ``Empty``, ``Stable``, or ``Reconciling`` while partitions move from one member
            to another. Of Kafka's clients at a gateway: ``PreparingRebalance`` while they join
            again, ``CompletingRebalance`` until their leader has assigned.
        protocol_type: ``consumer``, or the type that Kafka's clients at a gateway have; empty for a
            group that never had members.
        protocol: the name of the assignor; empty without members.
        generation: the generation of the newest change.
        members: the members, in the order in which they joined.
    """

    group_id: str
    group_state: str
    protocol_type: str
    protocol: str
    generation: int
    members: tuple[MemberDescription, ...]

    @property
    def owners(self) -> Mapping[TopicPartition, MemberDescription]:
        """Partition → the member that reads it or may still commit it."""
        return {
            partition: member
            for member in self.members
            for partition in (*member.revoking, *member.assignment)
        }


@dataclass(frozen=True, slots=True)
class GroupPartitionLag:
    """Committed offset and lag of a group in one partition.

    Attributes:
        partition: the topic and partition.
        current_offset: the committed offset; None if the group has committed none.
        log_end_offset: the offset of the next record to be written; with ``read_committed`` the
            last stable offset.
        lag: the number of offsets that the group can still read: from its committed offset, or from
            the log start offset if that is higher, to ``log_end_offset``. 0 also if the committed
            offset lies beyond the end; None without a committed offset.
        deleted: the number of offsets from the committed one to the log start offset, whose records
            were deleted before the group read them. None without a committed offset.
        lag_ms: the age of the first record of ``lag``, by its timestamp; 0 without such a record,
            None if it is not known.
        metadata: the metadata committed with the offset.
        commit_timestamp_us: the time of the commit; None without a committed offset.
        member: the member that the partition is assigned to; None without one.
    """

    partition: TopicPartition
    current_offset: int | None
    log_end_offset: int
    lag: int | None
    deleted: int | None
    lag_ms: int | None
    metadata: str
    commit_timestamp_us: int | None
    member: MemberDescription | None
