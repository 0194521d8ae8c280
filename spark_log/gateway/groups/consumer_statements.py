"""Statements of a member of the consumer protocol, by which it takes and releases partitions.

They are in memory. A gateway that loads a group finds in its log which of the partitions that a
member is to revoke it had named when they were taken from it. It takes each other one for one that
the member may be about to take.

The rule: (protocol G20).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from spark_log.coordinator import Member
from spark_log.gateway.groups.consumer_heartbeat import (
    ConsumerHeartbeat,
    has_released,
    may_be_earlier,
)
from spark_log.types import TopicPartition

MAX_UNCONFIRMED = 4
"""Number of heartbeats in a row by which a client that always says everything releases partitions.
Others say everything again only until they have got an answer."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class ConsumerStatements:
    """The partitions that one member was told of, and those that it has named.

    Attributes:
        taking: the partitions that it may be about to take: an answer told it of them, and it has
            not named them since.
        named: the other ones that it was told of.
        told_to_revoke: the partitions that the last answer with an assignment left out.
        epoch: the highest epoch of its heartbeats.
        unconfirmed: the partitions that its last heartbeat named, if the next one has to confirm
            that it has no others.
        times: how often in a row it had to.
    """

    taking: frozenset[TopicPartition] = frozenset()
    named: frozenset[TopicPartition] = frozenset()
    told_to_revoke: frozenset[TopicPartition] = frozenset()
    epoch: int = 0
    unconfirmed: frozenset[TopicPartition] | None = None
    times: int = 0

    @staticmethod
    def loaded(member: Member, named: frozenset[TopicPartition]) -> ConsumerStatements:
        """Return those of a member that others may have told of its partitions.

        Args:
            member: the member.
            named: the partitions that it has named, by the group's log.
        """
        return ConsumerStatements(taking=member.held - named, named=named)

    def on_answer(self, member: Member) -> None:
        """Note an answer with the partitions of the member."""
        self.named &= member.held
        self.taking = (self.taking & member.held) | (member.owned - self.named)
        self.told_to_revoke = member.revoking

    def on_heartbeat(
        self,
        request: ConsumerHeartbeat,
        owned: frozenset[TopicPartition] | None,
        revoking: frozenset[TopicPartition],
    ) -> bool:
        """Note a heartbeat; return whether the member has released what it was to revoke.

        Args:
            request: the heartbeat.
            owned: the partitions that it names; None if unchanged.
            revoking: the partitions that the member is to revoke.
        """
        if request.epoch < self.epoch:
            return False  # it was sent before one that has arrived
        self.epoch = request.epoch
        before, self.unconfirmed = self.unconfirmed, None
        if owned is not None:
            self.named |= owned
            self.taking -= owned
        if not self.was_told_of(revoking):
            return bool(revoking)  # it has nothing to say
        if owned is None:  # unchanged since it has got the answer
            return (
                before is not None
                and not self.may_take(revoking)
                and has_released(revoking, before)
            )
        if not has_released(revoking, owned):
            return False
        if not may_be_earlier(request):
            # It has come to the end of a change, but of which one?
            return not self.may_take(revoking - self.told_to_revoke)
        self.times = 1 if before is None else self.times + 1
        if self.times < MAX_UNCONFIRMED:
            self.unconfirmed = owned
            _log.debug("a release of %s waits for its next heartbeat", request.member.member_id)
        return self.times >= MAX_UNCONFIRMED

    def was_told_of(self, partitions: frozenset[TopicPartition]) -> bool:
        """Return whether the member may have been told of one of these partitions."""
        return not partitions.isdisjoint(self.taking | self.named)

    def may_take(self, partitions: frozenset[TopicPartition]) -> bool:
        """Return whether the member may be about to take one of these partitions."""
        return not partitions.isdisjoint(self.taking)
