"""Decisions about a group with the consumer protocol (KIP-848), as pure functions.

Each returns the record of the group's next generation, or None if nothing changes. The rules are
those of Kafka's ``GroupMetadataManager`` and ``CurrentAssignmentBuilder``: a partition is revoked
from one member before another gets it. All members take their step in the same record, so that a
heartbeat without news needs none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from spark_log.coordinator.assignors import Subscription
from spark_log.coordinator.group.consumer import (
    CONSUMER_ASSIGNORS,
    ConsumerGroup,
    ConsumerMember,
)
from spark_log.coordinator.group.group import Group, GroupTopic, Member
from spark_log.coordinator.group.reconciliation import (
    is_same_topic,
    keep_topics,
    reconcile,
    target_assignment,
)
from spark_log.coordinator.group.records import GroupRecord
from spark_log.types import TopicPartition

ExistingTopics = Mapping[str, GroupTopic]
"""All existing topics by name, read after the group."""

_OUR_ASSIGNORS = dict(zip(CONSUMER_ASSIGNORS, ("sticky", "range"), strict=True))
"""Kafka's server-side assignors, and those of this package with their rules."""

_NOTHING: frozenset[TopicPartition] = frozenset()


def note_named(group: Group, named: Mapping[str, frozenset[TopicPartition]]) -> Group:
    """Return a group with what its members have named; the next record has what matters of it.

    Args:
        group: the present group.
        named: by member, the partitions that it has named.
    """
    if group.consumer is None:
        return group
    members = {
        name: replace(each, named=named.get(name, _NOTHING))
        for name, each in group.consumer.members.items()
    }
    return replace(group, consumer=ConsumerGroup(members))


def subscribe_consumer(
    group: Group, member: Member, wanted: ConsumerMember, topics: ExistingTopics
) -> GroupRecord | None:
    """Add a member, or change the subscription of a member.

    A static member gets the partitions of its predecessor, which has left.

    Args:
        group: the present group; its members are of the consumer protocol, or there are none.
        member: the member; its partitions and topics are ignored.
        wanted: its subscription and assignor; its epochs are ignored.
        topics: the existing topics.
    """
    known = _known(group)
    present = group.members.get(member.member_id)
    if present is not None:
        before = known[member.member_id]
        after = before.with_subscription(wanted)
        shown = replace(
            member,
            topics=present.topics,
            assignors=present.assignors,
            owned=present.owned,
            revoking=present.revoking,
            pending=present.pending,
        )
        if (after, shown) == (before, present):
            return None
        return _reassign(
            group,
            "join",
            {**group.members, member.member_id: shown},
            {**known, member.member_id: after},
            topics,
            [member.member_id],
        )
    # A new member has no epoch before this one. One that was removed, and that an old copy of its
    # request has brought back, is fenced with the epoch that it knows.
    epoch = group.generation + 1
    joining = replace(wanted, epoch=epoch, previous_epoch=epoch)
    members = dict(group.members)
    predecessor = group.instances.get(member.instance_id) if member.instance_id else None
    if predecessor is None:
        members[member.member_id] = member
        about = [member.member_id]
    else:
        successor = replace(member, owned=predecessor.owned, pending=predecessor.pending)
        members = {
            (member.member_id if each is predecessor else name): (
                successor if each is predecessor else each
            )
            for name, each in members.items()
        }
        known = {name: each for name, each in known.items() if name != predecessor.member_id}
        about = [member.member_id, predecessor.member_id]
    return _reassign(group, "join", members, {**known, member.member_id: joining}, topics, about)


def release_revoked(group: Group, member_id: str) -> GroupRecord | None:
    """Take its revoked partitions from a member, which reads and commits them no more.

    Others that wait for them get them in the same record. From now on the member commits with the
    new epoch alone, also if it joins again and had nothing to release.
    """
    member = group.members.get(member_id)
    if member is None:
        return None
    known = _known(group)
    before = known[member_id]
    known[member_id] = replace(before, epoch=group.generation + 1, previous_epoch=before.epoch)
    members = {**group.members, member_id: replace(member, revoking=_NOTHING)}
    members = _take_step(members, {each.member_id: each.target for each in members.values()})
    after = group.next_generation(members=members, consumer=_consumer(known, members))
    return after.to_record("release", (member_id,), "")


def begin_generation(group: Group) -> GroupRecord:
    """Begin a generation in which nothing changes, so that no other process has the newest one."""
    consumer = _consumer(_known(group), group.members)
    after = group.next_generation(members=group.members, consumer=consumer)
    return after.to_record("load", (), "")


def leave_static(group: Group, member_id: str, topics: ExistingTopics) -> GroupRecord | None:
    """Note that a static member has ended: it keeps its partitions until its session expires."""
    known = _known(group)
    if member_id not in known or known[member_id].has_left:
        return None
    known[member_id] = replace(known[member_id], epoch=group.generation + 1, has_left=True)
    member = replace(group.members[member_id], revoking=_NOTHING)
    members = {**group.members, member_id: member}
    return _reassign(group, "leave", members, known, topics, [member_id])


def remove_consumers(
    group: Group, member_ids: Collection[str], topics: ExistingTopics, change: str
) -> GroupRecord | None:
    """Remove members that leave or expire (see ``change``); their partitions are free at once."""
    gone = [name for name in group.members if name in member_ids]
    if not gone:
        return None
    members = {name: each for name, each in group.members.items() if name not in gone}
    known = {name: each for name, each in _known(group).items() if name not in gone}
    return _reassign(group, change, members, known, topics, gone)


def update_consumer_topics(group: Group, topics: ExistingTopics) -> GroupRecord | None:
    """Reassign the group if its topics were created, extended, deleted, or created again."""
    known = _known(group)
    members = _resolved(group.members, known, topics)
    if members == group.members and _topics_in_use(group, members, topics) == group.topics:
        return None
    return _reassign(group, "topics", group.members, known, topics, [])


def check_regex(regex: str) -> None:
    """Check a regular expression.

    Raises:
        ValueError: it is not one in RE2's syntax.
    """
    _matching(regex, [""])


def _known(group: Group) -> dict[str, ConsumerMember]:
    return dict(group.consumer.members) if group.consumer is not None else {}


def _consumer(known: Mapping[str, ConsumerMember], members: Mapping[str, Member]) -> ConsumerGroup:
    """Return the members' other part, with what they have named of what they are to revoke."""
    return ConsumerGroup(
        {
            name: replace(each, named=each.named & members[name].revoking)
            for name, each in known.items()
        }
    )


def _reassign(
    group: Group,
    change: str,
    members: Mapping[str, Member],
    known: Mapping[str, ConsumerMember],
    topics: ExistingTopics,
    about: Iterable[str],
) -> GroupRecord:
    """Compute a new target assignment, and take the first step towards it."""
    members = _resolved(members, known, topics)
    relevant = _topics_in_use(group, members, topics)
    same = {
        name for name, topic in relevant.items() if is_same_topic(group.topics.get(name), topic)
    }
    members = {name: keep_topics(member, same) for name, member in members.items()}
    protocol = _vote(known.values()) if members else None
    if protocol is not None:
        subscriptions = {
            name: Subscription(each.topics, each.target, group.generation, each.instance_id)
            for name, each in members.items()
        }
        target = target_assignment(_OUR_ASSIGNORS[protocol], relevant, subscriptions)
        members = _take_step(members, target)
    after = group.next_generation(
        protocol=protocol, topics=relevant, members=members, consumer=_consumer(known, members)
    )
    return after.to_record(change, tuple(about), "")


def _take_step(
    members: Mapping[str, Member], target: Mapping[str, Collection[TopicPartition]]
) -> dict[str, Member]:
    """Take a step towards the target."""
    return withhold_revoked(members, reconcile(members, target))


def withhold_revoked(
    before: Mapping[str, Member], after: Mapping[str, Member]
) -> dict[str, Member]:
    """Return the members after a step, without partitions that they had to revoke before it.

    A member that was told to revoke a partition gets it again only after it has released it: its
    commits of before are then refused.
    """
    found = dict(after)
    for name, step in after.items():
        if again := before[name].revoking & step.owned:
            found[name] = replace(
                step,
                owned=step.owned - again,
                revoking=step.revoking | again,
                pending=step.pending | again,
            )
    return found


def _resolved(
    members: Mapping[str, Member], known: Mapping[str, ConsumerMember], topics: ExistingTopics
) -> dict[str, Member]:
    """Return the members with the existing topics that they subscribe to."""
    names = sorted(topics)
    matches = {
        regex: frozenset(_matching(regex, names))
        for regex in {each.regex for each in known.values()}
        if regex is not None
    }
    found = {}
    for name, member in members.items():
        wanted = known[name]
        matched = matches[wanted.regex] if wanted.regex is not None else frozenset()
        subscribed = tuple(sorted(matched | (topics.keys() & set(wanted.topics))))
        assignors = (wanted.assignor,) if wanted.assignor else CONSUMER_ASSIGNORS
        found[name] = replace(member, topics=subscribed, assignors=assignors)
    return found


def _matching(regex: str, names: list[str]) -> list[str]:
    """Return the names that a regular expression matches as a whole; Arrow's functions use RE2.

    RE2 takes linear time whatever the expression is, unlike Python's ``re``.
    """
    if not regex:
        return []
    array = pa.array(names, pa.string())
    pc.match_substring_regex(array, regex)  # alone, so that no bracket may end the group below
    found = pc.match_substring_regex(array, rf"\A(?:{regex})\z")
    return [name for name, is_match in zip(names, found.to_pylist(), strict=True) if is_match]


def _topics_in_use(
    group: Group, members: Mapping[str, Member], topics: ExistingTopics
) -> dict[str, GroupTopic]:
    """Return the existing topics that a member subscribes to or still has partitions of."""
    names = {name for member in members.values() for name in member.topics}
    held = {each.topic for member in members.values() for each in member.held}
    names |= {
        name for name in held & topics.keys() if is_same_topic(group.topics[name], topics[name])
    }
    return {name: topics[name] for name in sorted(names)}


def _vote(members: Iterable[ConsumerMember]) -> str:
    """Return the assignor that most members name; without any, the first of all."""
    votes = [each.assignor for each in members if each.assignor is not None]
    return max(CONSUMER_ASSIGNORS, key=votes.count)
