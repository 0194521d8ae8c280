"""`PartitionChangeBuilder`: builds the record of a partition's change, with its leader and ELR."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import dropwhile
from typing import TypeVar

from spark_log.config import TopicConfig
from spark_log.errors import ReplicationError
from spark_log.log.chain import NO_LEADER
from spark_log.metadata.image import MetadataImage
from spark_log.metadata.records import (
    CHANGEABLE_FIELDS,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
)
from spark_log.metadata.topic_image import effective_min_insync

_Error = TypeVar("_Error", bound=ReplicationError)


class Election(IntEnum):
    """The replicas that an election may choose from; each value includes those of lower values."""

    ISR = 0
    """In-sync replicas."""

    ONLINE = 1
    """Eligible leader replicas: they have everything that was acknowledged (KIP-966)."""

    UNCLEAN = 2
    """All replicas, if no other one can lead. Records are lost."""


@dataclass(frozen=True, slots=True)
class PartitionChangeBuilder:
    """Builds the record of a change of one partition (Kafka's class of this name).

    Attributes:
        topic: the name of the partition's topic.
        config: the topic's configs.
        partition: the partition's present state.
        can_lead: the ids of the brokers that may lead.
    """

    topic: str
    config: TopicConfig
    partition: PartitionRecord
    can_lead: frozenset[int]

    @classmethod
    def find(
        cls,
        image: MetadataImage,
        topic_id: str,
        partition: int,
        *,
        leader_epoch: int | None = None,
    ) -> PartitionChangeBuilder | None:
        """Return the builder for a partition; None if it does not exist.

        Args:
            image: the present metadata.
            topic_id: the id of the topic.
            partition: the number of the partition.
            leader_epoch: the expected leader epoch, or None for any. The result is None if the
                partition has another leader epoch.
        """
        topic = image.find_by_id(topic_id)
        found = None if topic is None else topic.partitions.get(partition)
        if topic is None or found is None or leader_epoch not in (None, found.leader_epoch):
            return None
        return cls(topic.name, topic.config(), found, unfenced_brokers(image))

    @property
    def min_insync(self) -> int:
        """Number of in-sync replicas that an append with ``acks=all`` needs."""
        return effective_min_insync(self.config, self.partition)

    @property
    def allows_unclean(self) -> bool:
        """Whether a replica that lacks records may be elected."""
        return self.config.unclean_leader_election_enable

    @property
    def election(self) -> Election:
        """The election that happens without a user's request."""
        return Election.UNCLEAN if self.allows_unclean else Election.ONLINE

    def error(self, kind: type[_Error], why: str) -> _Error:
        """Return an error about this partition."""
        number = self.partition.partition_id
        name = f"partition {self.topic}-{number}"
        return kind(f"{name}: {why}", topic=self.topic, partition=number)

    def why_no_leader(self) -> str:
        """Return the reason why no replica can lead without a loss."""
        before = self.partition
        eligible = sorted({*before.isr, *before.eligible_leader_replicas})
        return f"only {eligible} can lead without a loss, and all are fenced; unfence one"

    def among(self, brokers: Iterable[int]) -> PartitionChangeBuilder:
        """Return a builder that lets only those of these brokers lead that already may."""
        return replace(self, can_lead=self.can_lead.intersection(brokers))

    def without(self, brokers: Iterable[int]) -> PartitionChangeBuilder:
        """Return a builder that lets none of these brokers lead."""
        return replace(self, can_lead=self.can_lead.difference(brokers))

    def build(
        self, target: PartitionRecord, election: Election = Election.ISR
    ) -> list[MetadataRecord]:
        """Return the record of a change; none if nothing changes.

        The leader, the joining replicas and the eligible replicas follow from the target:

        - Each in-sync replica holds a prefix of the one before it. The leader is the first replica
          that may lead. Those before it leave, too: they may hold records that the leader lacks.
        - If no replica can lead, all stay in sync. Nobody appends then, so each of them still holds
          everything that was acknowledged.
        - While fewer than ``min.insync.replicas`` are in sync, nothing is acknowledged. Replicas
          that leave then, or have left since, are eligible.

        Args:
            target: the new state, with `isr` in order. Its epochs are ignored.
            election: the replicas that the leader is chosen from.
        """
        before = self.partition
        isr, is_clean = self.elect(target, election)
        if not isr:
            stays = tuple(broker for broker in before.isr if broker in target.replicas)
            changes = {"isr": stays, "leader": NO_LEADER}
        elif isr[0] in before.isr:
            changes = {"isr": isr, "leader": isr[0]}
        else:  # the joining replicas' copies may differ from the log of this leader
            changes = {"isr": isr, "leader": isr[0], "joining": ()}
        after = target.model_copy(update=changes)
        changes = {
            "eligible_leader_replicas": self._eligible(after) if is_clean else (),
            "last_known_elr": self._last_known_leader(after),
        }
        return _change_records(before, after.model_copy(update=changes))

    def has_leader(self, target: PartitionRecord, election: Election) -> bool:
        """Return whether `build` finds a leader for this target."""
        return bool(self.elect(target, election)[0])

    def elect(self, target: PartitionRecord, election: Election) -> tuple[tuple[int, ...], bool]:
        """Return the in-sync replicas, the leader first, and whether nothing is lost.

        They are empty if no replica can lead.
        """
        isr = tuple(dropwhile(lambda broker: broker not in self.can_lead, target.isr))
        if isr or election is Election.ISR:
            return isr, True
        others = [broker for broker in target.replicas if broker in self.can_lead]
        for broker in others:
            if broker in self.partition.eligible_leader_replicas:
                return (broker,), True
        return (tuple(others[:1]), False) if election is Election.UNCLEAN else ((), True)

    def _eligible(self, after: PartitionRecord) -> tuple[int, ...]:
        """Return the replicas outside the ISR that hold every acknowledged record."""
        if len(after.isr) >= effective_min_insync(self.config, after):
            return ()
        before = self.partition
        eligible = {*before.eligible_leader_replicas, *before.isr} - {*after.isr}
        return tuple(broker for broker in after.replicas if broker in eligible)

    def _last_known_leader(self, after: PartitionRecord) -> tuple[int, ...]:
        if after.leader != NO_LEADER:
            return ()
        before = self.partition
        return before.last_known_elr if before.leader == NO_LEADER else (before.leader,)


def unfenced_brokers(image: MetadataImage) -> frozenset[int]:
    """Return the ids of the brokers that may lead partitions."""
    return frozenset(broker.broker_id for broker in image.brokers() if not broker.fenced)


def _change_records(before: PartitionRecord, after: PartitionRecord) -> list[MetadataRecord]:
    """Return the record with the fields that differ; none if all are equal."""
    changes = {
        field: getattr(after, field)
        for field in CHANGEABLE_FIELDS
        if getattr(after, field) != getattr(before, field)
    }
    if not changes:
        return []
    return [
        PartitionChangeRecord(topic_id=before.topic_id, partition_id=before.partition_id, **changes)
    ]
