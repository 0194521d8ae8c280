"""What `Admin` answers about groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_log.types import TopicPartition


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group in a list, with kafka-python's names.

    Attributes:
        group_id: its id.
        protocol_type: ``consumer``; empty for a group that never had members.
        group_state: ``Empty``, ``Stable``, or ``Reconciling`` while partitions change hands.
    """

    group_id: str
    protocol_type: str
    group_state: str


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a group.

    Attributes:
        member_id: its id.
        group_instance_id: of a static member.
        client_id: what it calls itself.
        client_host: name of the machine that it runs on; empty where that is not known.
        assignment: what it reads.
        revoking: what it may only commit before others get it.
        pending: what it gets as soon as others have released it.
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
        group_id: its id.
        group_state: see `GroupListing`.
        protocol_type: see `GroupListing`.
        protocol: name of the assignor; empty without members.
        generation: of the newest change.
        members: in the order in which they joined.
    """

    group_id: str
    group_state: str
    protocol_type: str
    protocol: str
    generation: int
    members: tuple[MemberDescription, ...]

    @property
    def owners(self) -> Mapping[TopicPartition, MemberDescription]:
        """Who reads, or may still commit, each partition."""
        return {
            partition: member
            for member in self.members
            for partition in (*member.revoking, *member.assignment)
        }


@dataclass(frozen=True, slots=True)
class GroupPartitionLag:
    """How far a group is in a partition.

    Attributes:
        partition: which.
        current_offset: the next offset that the group reads; None without a position.
        log_end_offset: the next offset to be written.
        lag: records between the two; None without a position.
        lag_ms: how long ago the first unread record was written, by its timestamp; 0 where all is
            read, None where it cannot be told.
        metadata: what was committed with the position.
        commit_timestamp_us: when.
        member: who has the partition.
    """

    partition: TopicPartition
    current_offset: int | None
    log_end_offset: int
    lag: int | None
    lag_ms: int | None
    metadata: str
    commit_timestamp_us: int | None
    member: MemberDescription | None
