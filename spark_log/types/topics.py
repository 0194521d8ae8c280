"""Topics and partitions: those to create, their descriptions, reassignments and elections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from spark_log.types.stripes import StripeDescription


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create.

    Attributes:
        name: the topic's name; Kafka's rules apply.
        num_partitions: the number of partitions, at least 1.
        replication_factor: the number of brokers (storage roots) that have a replica of each
            partition; None or -1 for the cluster's ``default.replication.factor``.
        topic_configs: config overrides, with Kafka's keys (``{"retention.ms": "-1"}``).
        replica_assignment: partition → the ids of the brokers that have its replicas, the preferred
            leader first; the two numbers above are then left out. None to let brokers be chosen.
    """

    name: str
    num_partitions: int = 1
    replication_factor: int | None = None
    topic_configs: Mapping[str, object] = field(default_factory=dict)
    replica_assignment: Mapping[int, Sequence[int]] | None = None


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """The new number of partitions of a topic, including the existing ones.

    Attributes:
        total_count: the new number.
        new_assignments: for each new partition the ids of the brokers that have its replicas, the
            preferred leader first. None to let brokers be chosen.
    """

    total_count: int
    new_assignments: Sequence[Sequence[int]] | None = None


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic as ``describe_topics`` returns it.

    Attributes:
        name: the topic's name.
        topic_id: the topic's id.
        partitions: its partitions, sorted by number.
        configs: its config overrides.
        stripes: its stripes that have partitions, sorted by number; empty without offsets.
    """

    name: str
    topic_id: str
    partitions: tuple[PartitionDescription, ...]
    configs: Mapping[str, str]
    stripes: tuple[StripeDescription, ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """One partition of a described topic: its replicas, offsets and size.

    Attributes:
        partition: the partition's number.
        leader: the broker that leads it; -1 if none can.
        replicas: the brokers that have a replica, the preferred leader first.
        isr: the in-sync replicas in the order of the chain, the leader first.
        log_start_offset: the first offset that can be read; -1 if it is not known.
        log_end_offset: the offset after the last record that all in-sync replicas have; -1 if it is
            not known.
        size_bytes: the size of the segments of one replica; -1 if it is not known.
        segments: the number of these segments; -1 if it is not known.
        leader_epoch: the number of changes of the leader and of the in-sync replicas.
        eligible_leader_replicas: replicas out of sync that may lead without a loss (KIP-966).
        last_known_elr: the last leader of a partition that has none.
        offline_replicas: replicas on brokers that are fenced.
        adding_replicas: replicas that a reassignment adds.
        removing_replicas: replicas that a reassignment removes.
        min_insync_replicas: the number of in-sync replicas that an append with ``acks=all`` needs.
    """

    partition: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    log_start_offset: int
    log_end_offset: int
    size_bytes: int
    segments: int
    leader_epoch: int = 0
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    min_insync_replicas: int = 1

    @property
    def is_under_replicated(self) -> bool:
        """Whether replicas are out of sync, not counting those that a reassignment adds."""
        return len(self.isr) < len(self.replicas) - len(self.adding_replicas)

    @property
    def is_under_min_isr(self) -> bool:
        """Whether no append with ``acks=all`` is accepted."""
        return self.leader == -1 or len(self.isr) < self.min_insync_replicas

    @property
    def is_at_min_isr(self) -> bool:
        """Whether appends with ``acks=all`` fail when one more replica leaves the in-sync ones."""
        return len(self.isr) == self.min_insync_replicas

    @property
    def is_unavailable(self) -> bool:
        """Whether the partition has no leader, or its leader's broker is fenced."""
        return self.leader == -1 or self.leader in self.offline_replicas


@dataclass(frozen=True, slots=True)
class PartitionReassignment:
    """A reassignment of a partition that is in progress (KIP-455).

    Attributes:
        replicas: all present replicas: the target, then those that will be removed.
        adding_replicas: the replicas that the reassignment adds.
        removing_replicas: the replicas that it will remove.
    """

    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]


class ElectionType(IntEnum):
    """The types of leader elections, with Kafka's numbers (KIP-460)."""

    PREFERRED = 0
    UNCLEAN = 1
