"""Groups of Kafka's clients with the consumer protocol (KIP-848): what their members have beside.

A gateway coordinates such a group and assigns its partitions. Members and partitions are those of
`spark_log.coordinator.group.group.Member`: assigned, to be revoked, and awaited. The group's epoch
is its generation: each change of members, subscriptions or partitions begins one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from spark_log.coordinator.group.records import (
    ConsumerMemberPart,
    ConsumerPart,
    topic_partitions,
)
from spark_log.types import TopicPartition
from spark_log.util import to_partitions

CONSUMER_ASSIGNORS: Final = ("uniform", "range")
"""The assignors of ``group.remote.assignor``; the first one is used if no member names one."""


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """A member of the consumer protocol: its epoch and subscription, beside its partitions.

    Attributes:
        epoch: the lowest epoch that the member may commit with: the generation in which it joined,
            or released its last revoked partitions. No other member has had its partitions since.
            Its client may know any epoch from this one to the group's.
        previous_epoch: the value of ``epoch`` before. A heartbeat may still have such an epoch, if
            the answer with the new one was lost.
        topics: the names that it subscribes to, which need not exist.
        regex: the regular expression of topics that it subscribes to, in RE2's syntax.
        assignor: the assignor that it prefers, one of `CONSUMER_ASSIGNORS`.
        has_left: whether it is a static member whose process has ended, and may start again.
        named: the partitions among those that it is to revoke that it had named in a heartbeat when
            the record was written, so that it is not about to take them (protocol G20). Programs
            that do not know the field leave them out.
    """

    epoch: int
    previous_epoch: int = 0
    topics: tuple[str, ...] = ()
    regex: str | None = None
    assignor: str | None = None
    has_left: bool = False
    named: frozenset[TopicPartition] = frozenset()

    def with_subscription(self, wanted: ConsumerMember) -> ConsumerMember:
        """Return the member with what another one subscribes to, prefers, and is."""
        return replace(
            wanted, epoch=self.epoch, previous_epoch=self.previous_epoch, named=self.named
        )


@dataclass(frozen=True, slots=True)
class ConsumerGroup:
    """The members of a group with the consumer protocol, by id.

    Attributes:
        members: what the members of the group have beside.
    """

    members: Mapping[str, ConsumerMember] = field(default_factory=dict)

    def may_commit(self, member_id: str, epoch: int, generation: int) -> bool:
        """Return whether a member may commit with an epoch in a generation of the group."""
        member = self.members.get(member_id)
        return member is not None and not member.has_left and member.epoch <= epoch <= generation

    @staticmethod
    def of(part: ConsumerPart) -> ConsumerGroup:
        """Return the members from their stored form."""
        return ConsumerGroup(
            {
                name: ConsumerMember(**{**dict(each), "named": topic_partitions(each.named)})
                for name, each in part.members.items()
            }
        )

    def to_part(self) -> ConsumerPart:
        """Return the stored form of the members."""
        return ConsumerPart(
            members={
                name: ConsumerMemberPart(
                    epoch=each.epoch,
                    previous_epoch=each.previous_epoch,
                    topics=each.topics,
                    regex=each.regex,
                    assignor=each.assignor,
                    has_left=each.has_left,
                    named=to_partitions(each.named),
                )
                for name, each in self.members.items()
            }
        )
