"""Decisions about a group: who joins and leaves, who gets which partition, the next generation.

Each decision is a pure function: it returns the record of the group's next state, or None if
nothing changes. `GroupLog.commit` calls it with the state after the whole log, appends the record
if the log still ends there, and calls it again after an append by another process. Called again
after its own record was appended, it returns None. `Group.replay` applies a record.

`subscribed_topics` is no decision: it returns the topics that a pattern matches now.

The rules: (protocol G1, G2).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache

from spark_log.config import ClusterConfig
from spark_log.coordinator.assignors import Subscription
from spark_log.coordinator.group import consumer_decisions
from spark_log.coordinator.group.group import Group, GroupTopic, Member, PendingOffsets
from spark_log.coordinator.group.reconciliation import (
    is_same_topic,
    keep_topics,
    reconcile,
    target_assignment,
)
from spark_log.coordinator.group.records import GroupRecord
from spark_log.errors import (
    CommitFailedError,
    GroupMaxSizeReachedError,
    InconsistentGroupProtocolError,
    InvalidSessionTimeoutError,
)
from spark_log.types import TopicPartition
from spark_log.util import shown

ExistingTopics = Mapping[str, GroupTopic]
"""All existing topics by name, read after the group, so that they are not older than the group."""

_NOTHING: frozenset[TopicPartition] = frozenset()


def join(
    group: Group,
    member: Member,
    topics: ExistingTopics,
    config: ClusterConfig,
    waiting: Iterable[Member] = (),
) -> GroupRecord | None:
    """Add a member, or change the subscription of a member.

    A static member replaces the member with the same instance id and gets its partitions; nothing
    changes for the others (KIP-345).

    Args:
        group: the present group.
        member: the member that joins.
        topics: the existing topics.
        config: the limits of groups.
        waiting: other new members that wait to join. If ``member`` is new, they join with it in one
            record, except those that would be refused or would replace a static member.

    Raises:
        GroupMaxSizeReachedError: the group is full.
        InconsistentGroupProtocolError: the other members support none of its assignors.
        InvalidSessionTimeoutError: its session timeout is not allowed.
    """
    _check_session_timeout(member, config)
    if (group.classic is not None or group.consumer is not None) and group.members:
        raise InconsistentGroupProtocolError(
            f"group {group.group_id!r} has members that are Kafka's clients, "
            f"{shown(group.members)}: a consumer of spark-log cannot join them. Take another group "
            f"id, or stop them first: the group keeps its committed offsets",
            assignors=member.assignors,
        )
    present = group.members.get(member.member_id)
    if present is not None:
        kept = replace(
            member, owned=present.owned, revoking=present.revoking, pending=present.pending
        )
        if kept == present:
            return None
        return _reassign(group, "join", {**group.members, member.member_id: kept}, topics, [member])
    before = group.instances.get(member.instance_id) if member.instance_id is not None else None
    if before is not None:
        # The new process does not read the partitions to be revoked: they are free.
        successor = replace(member, owned=before.owned, revoking=_NOTHING, pending=before.pending)
        members = {
            (successor if each is before else each).member_id: successor if each is before else each
            for each in group.members.values()
        }
        _check_assignors(members.values(), member)
        wants_same = (before.topics, before.pattern, before.assignors, before.rack) == (
            member.topics,
            member.pattern,
            member.assignors,
            member.rack,
        )
        if wants_same and _topics_in_use(group, members, topics) == group.topics:
            members = reconcile(members, {each.member_id: each.target for each in members.values()})
            after = group.next_generation(members=members)
            return after.to_record("join", (member.member_id, before.member_id), "")
        return _reassign(group, "join", members, topics, [member, before])
    if len(group.members) >= config.group_max_size:
        raise GroupMaxSizeReachedError(
            f"group {group.group_id!r} has {len(group.members)} of at most "
            f"{config.group_max_size} members (group.max.size of the cluster); raise it, or "
            f"stop another member first"
        )
    members = {**group.members, member.member_id: member}
    _check_assignors(members.values(), member)
    joining = {each.member_id: each for each in _joining(members, waiting, config)}
    return _reassign(group, "join", {**members, **joining}, topics, [member, *joining.values()])


def remove(
    group: Group, member_ids: Collection[str], topics: ExistingTopics, change: str
) -> GroupRecord | None:
    """Remove members that leave or expire (see ``change``); their partitions are free at once."""
    if group.classic is not None:
        return remove_classic(group, member_ids, change)
    if group.consumer is not None:
        return consumer_decisions.remove_consumers(group, member_ids, topics, change)
    gone = [member for name, member in group.members.items() if name in member_ids]
    left = {name: member for name, member in group.members.items() if name not in member_ids}
    return _reassign(group, change, left, topics, gone) if gone else None


def remove_classic(
    group: Group, member_ids: Collection[str], change: str, at_least: int = 0
) -> GroupRecord | None:
    """Remove members that are Kafka's clients; the others have to join again.

    Args:
        group: the present group.
        member_ids: the members; ids that are no members are ignored.
        change: ``leave`` or ``expire``.
        at_least: the lowest generation of the group if no member is left.
    """
    assert group.classic is not None
    gone = tuple(name for name in group.members if name in member_ids)
    if not gone:
        return None
    left = group.classic.without(gone)
    if left.members:
        after = group.with_classic(left, group.protocol)
    else:
        after = group.with_classic(left, None, max(group.generation + 1, at_least))
    return after.to_record(change, gone, "")


def release(
    group: Group, member_id: str, partitions: Collection[TopicPartition]
) -> GroupRecord | None:
    """Take revoked partitions from a member, which will not commit them again."""
    member = group.members.get(member_id)
    if member is None or member.revoking.isdisjoint(partitions):
        return None
    members = {
        **group.members,
        member_id: replace(member, revoking=member.revoking.difference(partitions)),
    }
    members = reconcile(members, {each.member_id: each.target for each in members.values()})
    after = group.next_generation(
        members=members, topics=_topics_in_use(group, members, group.topics)
    )
    return after.to_record("release", (member_id,), "")


def update_topics(group: Group, topics: ExistingTopics) -> GroupRecord | None:
    """Reassign the group if its topics were created, extended, deleted, or created again."""
    if group.classic is not None or group.consumer is not None:
        return None
    if _topics_in_use(group, group.members, topics) == group.topics:
        return None
    return _reassign(group, "topics", group.members, topics, [])


def raise_generation(group: Group, at_least: int) -> GroupRecord | None:
    """Raise the generation to at least a value: the group's log was lost, but not its commits.

    The record's change is named ``fence``: members of generations before the value are fenced.
    """
    if group.generation >= at_least:
        return None
    after = replace(group, generation=at_least, revision=0, last_removal=at_least)
    return after.to_record("fence", (), "")


def send_offsets(
    group: Group,
    sent: PendingOffsets,
    instance_id: str | None = None,
    is_over: Callable[[PendingOffsets], bool] = lambda _: False,
) -> GroupRecord | None:
    """Add the pending offsets of a transaction.

    Offsets without membership (``sent.member_id`` is empty) begin a new generation of the group,
    and are recorded with it. In a group that has members, which are Kafka's clients, they belong
    to the present generation.

    Args:
        group: the present group.
        sent: the pending offsets. Without membership, the new generation is at least theirs.
        instance_id: ``group.instance.id`` of the member, if it is a static one.
        is_over: the function that returns whether the transaction of other pending offsets is known
            to be complete: those are dropped.

    Raises:
        CommitFailedError: the member has left or was replaced, its generation has passed, or it
            does not have one of the partitions; or it is no member, and the group has members that
            are consumers of spark-log.
    """
    known = [each for each in group.pending_offsets if each.producer == sent.producer]
    if any(
        sent.partitions <= each.partitions
        and sent.committed_us <= each.committed_us
        and sent.member_id == each.member_id
        and (sent.generation == each.generation or not sent.member_id)
        for each in known
    ):
        return None
    if reason := group.refusal_of(sent, instance_id):
        raise CommitFailedError(
            f"offsets of group {group.group_id!r} cannot be sent to the transaction of "
            f"{sent.transactional_id!r}: {reason}. Abort the transaction; the records are read "
            f"again"
        )
    if group.consumer is not None and sent.member_id:
        # The member's epoch was checked; commits are fenced by the group's generation.
        sent = replace(sent, generation=group.generation)
    if not sent.member_id:
        following = max(sent.generation, group.generation + 1)
        sent = replace(sent, generation=group.generation if group.members else following)
    pending = []
    for each in group.pending_offsets:
        if each.producer == sent.producer:  # offsets that it sends again replace the earlier ones
            left = each.partitions - sent.partitions
            pending += [replace(each, partitions=left)] if left else []
        elif not is_over(each):
            pending.append(each)
    pending.append(sent)
    if sent.generation == group.generation:
        after = replace(group, revision=group.revision + 1)
    else:
        after = replace(group, generation=sent.generation, revision=0)
    after = replace(after, pending_offsets=tuple(pending))
    return after.to_record("send-offsets", tuple(filter(None, [sent.member_id])), "")


def settle_offsets(group: Group, settled: Collection[PendingOffsets]) -> GroupRecord | None:
    """Drop pending offsets of transactions that are complete."""
    left = tuple(each for each in group.pending_offsets if each not in settled)
    if left == group.pending_offsets:
        return None
    after = replace(group, revision=group.revision + 1, pending_offsets=left)
    return after.to_record("settle-offsets", (), "")


def _common_assignors(members: Iterable[Member]) -> tuple[str, ...]:
    """Return the assignors that all members support, in the first member's order of preference."""
    lists = [member.assignors for member in members]
    return (
        tuple(dict.fromkeys(name for name in lists[0] if all(name in each for each in lists)))
        if lists
        else ()
    )


def subscribed_topics(member: Member, topics: ExistingTopics) -> tuple[str, ...]:
    """Return the existing topics that a member subscribes to."""
    if member.pattern is None:
        return tuple(name for name in sorted(set(member.topics)) if name in topics)
    pattern = _compiled(member.pattern)
    return tuple(name for name in sorted(topics) if pattern.match(name))


def _reassign(
    group: Group,
    change: str,
    members: Mapping[str, Member],
    topics: ExistingTopics,
    about: Iterable[Member],
) -> GroupRecord:
    """Compute a new target assignment, and take the first step towards it."""
    if not _common_assignors(members.values()):
        for member in about:
            if member.member_id in members:
                _check_assignors(members.values(), member)
    relevant = _topics_in_use(group, members, topics)
    # A topic that was created again is a different topic: no member has its partitions.
    same = {
        name for name, topic in relevant.items() if is_same_topic(group.topics.get(name), topic)
    }
    members = {name: keep_topics(member, same) for name, member in members.items()}
    protocol = _vote(members.values())
    if protocol is not None:
        subscriptions = {
            member.member_id: Subscription(
                subscribed_topics(member, relevant),
                member.target,
                group.generation,
                member.instance_id,
            )
            for member in members.values()
        }
        target = target_assignment(protocol, relevant, subscriptions)
        members = reconcile(members, target)
    after = group.next_generation(protocol=protocol, topics=relevant, members=members)
    return after.to_record(change, tuple(member.member_id for member in about), "")


def _topics_in_use(
    group: Group, members: Mapping[str, Member], topics: ExistingTopics
) -> dict[str, GroupTopic]:
    """Return the existing topics that a member subscribes to or still has partitions of."""
    alike = {(member.topics, member.pattern): member for member in members.values()}
    names = {name for member in alike.values() for name in subscribed_topics(member, topics)}
    held = {each.topic for member in members.values() for each in member.held}
    names |= {
        name for name in held & topics.keys() if is_same_topic(group.topics[name], topics[name])
    }
    return {name: topics[name] for name in sorted(names)}


def _vote(members: Iterable[Member]) -> str | None:
    """Return the assignor that most members prefer, of those that all support, as in Kafka."""
    members = list(members)
    common = _common_assignors(members)
    votes = [next(name for name in each.assignors if name in common) for each in members if common]
    return max(common, key=votes.count, default=None)


def _check_assignors(members: Iterable[Member], member: Member) -> None:
    others = [each for each in members if each.member_id != member.member_id]
    if others and not _common_assignors([member, *others]):
        common = _common_assignors(others)
        raise InconsistentGroupProtocolError(
            f"partition.assignment.strategy is {', '.join(member.assignors)}, but the assignors "
            f"that all members of the group support are {', '.join(common)}; add one of these",
            assignors=member.assignors,
            common=common,
        )


def _joining(
    members: Mapping[str, Member], waiting: Iterable[Member], config: ClusterConfig
) -> Iterator[Member]:
    """Yield the waiting members that may be added to the members of a group."""
    names = set(members)
    instances = {member.instance_id for member in members.values()} - {None}
    common = set(_common_assignors(members.values()))
    least, most = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
    for member in waiting:
        if len(names) >= config.group_max_size:
            return
        if (
            member.member_id not in names
            and member.instance_id not in instances
            and least <= member.session_timeout_ms <= most
            and not common.isdisjoint(member.assignors)
        ):
            names.add(member.member_id)
            instances |= {member.instance_id} - {None}
            common &= set(member.assignors)
            yield member


def _check_session_timeout(member: Member, config: ClusterConfig) -> None:
    least, most = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
    if not least <= member.session_timeout_ms <= most:
        raise InvalidSessionTimeoutError(
            f"session.timeout.ms is {member.session_timeout_ms}, expected "
            f"{least} (group.min.session.timeout.ms of the cluster) to {most} "
            f"(group.max.session.timeout.ms)"
        )


@lru_cache(maxsize=64)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
