"""Heartbeats of the consumer protocol (KIP-848): requests, answers, and what a group says to them.

The rules are those of Kafka's ``GroupMetadataManager.consumerGroupHeartbeat``. All functions are
pure: they get the group, and raise `RefusedError` with the answer to the client.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from spark_log.coordinator import ConsumerMember, Group, Member
from spark_log.gateway.groups.group_state import GroupError
from spark_log.types import TopicPartition

JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH = 0, -1, -2
"""Epochs in a heartbeat of members that join, leave, or are static and will start again."""

FENCING = (
    GroupError.UNKNOWN_MEMBER_ID,
    GroupError.FENCED_INSTANCE_ID,
    GroupError.FENCED_MEMBER_EPOCH,
    GroupError.STALE_MEMBER_EPOCH,
)
"""Errors by which a member loses its partitions."""


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeat:
    """A ConsumerGroupHeartbeat request.

    Attributes:
        member: the member, as far as the request says: ids, client, rack.
        epoch: the epoch that the member knows, or one of `JOIN_EPOCH`, `LEAVE_EPOCH`,
            `LEAVE_STATIC_EPOCH`.
        rebalance_timeout_ms: the time in which it releases partitions; None if unchanged.
        topics: the names that it subscribes to; None if unchanged.
        regex: the regular expression that it subscribes to; None if unchanged.
        assignor: the assignor that it prefers; None if unchanged.
        owned: the partitions that it has, by topic id; None if unchanged.
    """

    member: Member
    epoch: int
    rebalance_timeout_ms: int | None = None
    topics: tuple[str, ...] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Mapping[str, frozenset[int]] | None = None

    @property
    def is_full(self) -> bool:
        """Whether the client says everything, since it does not know what the gateway knows."""
        return self.epoch == JOIN_EPOCH or (
            self.rebalance_timeout_ms is not None
            and (self.topics is not None or self.regex is not None)
            and self.owned is not None
        )


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeatAnswer:
    """The answer to a ConsumerGroupHeartbeat request.

    Attributes:
        error: why it is refused.
        message: the same for a person.
        epoch: the member's epoch.
        interval_ms: the time until the next heartbeat.
        assignment: the partitions that the member has, by topic id; None if unchanged.
    """

    error: GroupError
    message: str | None = None
    epoch: int = 0
    interval_ms: int = 0
    assignment: Mapping[str, tuple[int, ...]] | None = None


class RefusedError(Exception):
    """A heartbeat is refused.

    Attributes:
        error: the answer to the client.
        message: the same for a person.
    """

    def __init__(self, error: GroupError, message: str) -> None:
        """Return the refusal."""
        super().__init__(message)
        self.error = error
        self.message = message


# --- requests ------------------------------------------------------------------------------------


def check_join(group: Group, member: Member, max_size: int) -> None:
    """Check that a member may join, or join again.

    Raises:
        RefusedError: another process has its instance id, or the group is full.
    """
    holder = group.instances.get(member.instance_id) if member.instance_id else None
    if holder is not None and holder.member_id != member.member_id:
        if not known_member(group, holder.member_id).has_left:
            raise RefusedError(
                GroupError.UNRELEASED_INSTANCE_ID,
                f"static member {member.member_id} with instance id {member.instance_id} "
                f"cannot join while {holder.member_id} has this instance id: stop it first",
            )
    elif member.member_id not in group.members and len(group.members) >= max_size:
        raise RefusedError(
            GroupError.GROUP_MAX_SIZE_REACHED,
            f"group {group.group_id} has {len(group.members)} of at most {max_size} members "
            f"(group.max.size of the cluster)",
        )


def check_epoch(group: Group, request: ConsumerHeartbeat) -> frozenset[TopicPartition] | None:
    """Check the ids and the epoch of a member; return the partitions that it says it has.

    Raises:
        RefusedError: it is no member, or was replaced, or has lost partitions.
    """
    name = request.member.member_id
    check_instance(group, name, request.member.instance_id)
    before, present = known_member(group, name), group.members[name]
    owned = None if request.owned is None else owned_partitions(group, request.owned)
    is_late_epoch = (
        before.previous_epoch <= request.epoch < before.epoch
        and owned is not None
        and owned <= present.owned
    )
    is_epoch = before.epoch <= request.epoch <= group.generation or is_late_epoch
    if before.has_left or not is_epoch:
        raise RefusedError(
            GroupError.FENCED_MEMBER_EPOCH,
            f"the member's epoch {request.epoch} is not one of {before.epoch} to "
            f"{group.generation}: it must abandon its partitions and join again",
        )
    return owned


def continued(group: Group, request: ConsumerHeartbeat) -> tuple[Member, ConsumerMember]:
    """Return a member with what its heartbeat changes."""
    name = request.member.member_id
    present, before = group.members[name], known_member(group, name)
    member = replace(
        present,
        client_id=request.member.client_id,
        client_host=request.member.client_host,
        rack=request.member.rack if request.member.rack is not None else present.rack,
        rebalance_timeout_ms=present.rebalance_timeout_ms
        if request.rebalance_timeout_ms is None
        else request.rebalance_timeout_ms,
    )
    wanted = replace(
        before,
        topics=before.topics if request.topics is None else request.topics,
        regex=before.regex if request.regex is None else request.regex or None,
        assignor=before.assignor if request.assignor is None else request.assignor,
    )
    return member, wanted


def has_released(
    revoking: frozenset[TopicPartition], owned: frozenset[TopicPartition] | None
) -> bool:
    """Return whether a member has partitions to revoke, and says that it has none of them."""
    return bool(revoking) and owned is not None and owned.isdisjoint(revoking)


def may_be_earlier(request: ConsumerHeartbeat) -> bool:
    """Return whether the partitions in a heartbeat may be those before what its member learned.

    A client that has lost its coordinator says everything again. If it is about to take partitions
    at that moment, it names those that it had before: librdkafka's ``rkcg_current_assignment``
    changes when a gateway has answered the heartbeat that names the new ones.
    """
    return request.is_full and request.epoch != JOIN_EPOCH


def commit_error(
    group: Group,
    member_id: str,
    epoch: int,
    instance_id: str | None,
    partitions: Collection[TopicPartition] = (),
) -> GroupError:
    """Return why a member may not commit partitions with an epoch; NONE if it may.

    What another member has is not its to commit, whatever its epoch: it may have learned the epoch,
    and not yet given up the partition.
    """
    if group.consumer is None or not group.consumer.members:
        return GroupError.UNKNOWN_MEMBER_ID
    try:
        check_instance(group, member_id, instance_id)
        others = (group.owners.get(each, member_id) != member_id for each in partitions)
        if group.consumer.may_commit(member_id, epoch, group.generation) and not any(others):
            return GroupError.NONE
    except RefusedError as refused:
        return refused.error
    return GroupError.STALE_MEMBER_EPOCH


# --- members and partitions ----------------------------------------------------------------------


def known_member(group: Group, member_id: str) -> ConsumerMember:
    """Return a member; raise `RefusedError` without it."""
    member = None if group.consumer is None else group.consumer.members.get(member_id)
    if member is None:
        raise RefusedError(
            GroupError.UNKNOWN_MEMBER_ID, f"{member_id} is not a member of {group.group_id}"
        )
    return member


def check_instance(group: Group, member_id: str, instance_id: str | None) -> None:
    """Check that an instance id, if it is given, is that of the member."""
    if instance_id is None:
        known_member(group, member_id)
        return
    holder = group.instances.get(instance_id)
    if holder is None:
        raise RefusedError(
            GroupError.UNKNOWN_MEMBER_ID, f"no member of {group.group_id} is {instance_id}"
        )
    if holder.member_id != member_id:
        raise RefusedError(
            GroupError.FENCED_INSTANCE_ID,
            f"{holder.member_id} has taken the instance id {instance_id} of {member_id}",
        )


def owned_partitions(
    group: Group, owned: Mapping[str, frozenset[int]]
) -> frozenset[TopicPartition]:
    """Return partitions with names; those of topics that the group does not have are left out."""
    names = {topic.topic_id: name for name, topic in group.topics.items()}
    return frozenset(
        TopicPartition(names[topic_id], number)
        for topic_id, numbers in owned.items()
        if topic_id in names
        for number in numbers
    )


def by_topic_id(group: Group, partitions: frozenset[TopicPartition]) -> dict[str, tuple[int, ...]]:
    """Return partitions by topic id."""
    found: dict[str, tuple[int, ...]] = {}
    for topic, number in sorted(partitions):
        topic_id = group.topics[topic].topic_id
        found[topic_id] = (*found.get(topic_id, ()), number)
    return found


def not_coordinator() -> RefusedError:
    """Return the refusal of a gateway that has lost the group."""
    return RefusedError(
        GroupError.NOT_COORDINATOR, "another gateway coordinates the group: find it again"
    )
