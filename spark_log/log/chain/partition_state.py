"""The replicas of one partition at one leader epoch, and the source of the newest state."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

NO_LEADER: Final = -1
"""The leader id of a partition that no broker can lead."""


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The replicas of a partition, in the order in which segments are put into them.

    Attributes:
        leader: id of the broker that has the leader's replica, the first one of ``isr``; -1 if no
            broker can lead.
        leader_epoch: a number that grows with each change of the leader, of ``isr`` or of
            ``joining``.
        isr: ids of the in-sync replicas in the order of the chain. Each of them has a prefix of
            the log of the one before it.
        joining: ids of the replicas that will become in-sync replicas. From the barrier of this
            epoch on, no record is acknowledged that they lack.
        replicas: ids of all replicas, the preferred leader first.
        directories: number of each replica's directory by broker id; 0 for an id that is missing.
        high_watermark_cap_epoch: the leader epoch since which fewer than ``min.insync.replicas``
            have been in sync, while a replica that left in this time may be elected (KIP-966).
            Readers see no batch of this epoch or of a later one. 0 if readers see all batches.
        is_moving: whether the topic gets another number of stripes. Then the log may have the
            barrier of the next leader epoch, and nothing is appended behind it.
    """

    leader: int = 0
    leader_epoch: int = 0
    isr: tuple[int, ...] = (0,)
    joining: tuple[int, ...] = ()
    replicas: tuple[int, ...] = (0,)
    directories: Mapping[int, int] = field(default_factory=dict)
    high_watermark_cap_epoch: int = 0
    is_moving: bool = False

    @property
    def is_replicated(self) -> bool:
        """Whether the partition has more than one replica, or ever had, or moves."""
        return len(self.replicas) > 1 or self.leader_epoch > 0 or self.is_moving

    @property
    def newest_epoch(self) -> int:
        """The highest leader epoch that the log may have under this state."""
        return self.leader_epoch + self.is_moving

    @property
    def chain(self) -> tuple[int, ...]:
        """All brokers that an acknowledged segment is on, the leader first."""
        return self.isr + self.joining

    def directory_number(self, broker_id: int) -> int:
        """Return the number of a replica's directory."""
        return self.directories.get(broker_id, 0)


class PartitionStates(Protocol):
    """Source of a partition's state: the metadata log. Thread-safe."""

    def current(self) -> PartitionState:
        """Return the last known state, without a request."""

    def refresh(self) -> PartitionState:
        """Read the metadata, and return the newest state.

        Raises:
            UnknownTopicOrPartitionError: the topic was deleted.
            StorageError: the metadata cannot be read.
        """

    def recent(self, max_age_ms: float | None = None) -> PartitionState:
        """Return a state that was the newest one at some time within the last ``max_age_ms``.

        Sends no request if this process has read the metadata since then, for any partition.

        A joining replica enters the in-sync replicas only after the writers' lease has passed since
        it began to join. A writer that read a state within the lease therefore knows all replicas
        that have been in sync since then.

        Args:
            max_age_ms: maximum age of the state; None for the writers' lease.

        Raises:
            UnknownTopicOrPartitionError: the topic was deleted.
            StorageError: the metadata cannot be read.
        """

    def remove_from_isr(self, state: PartitionState, brokers: Collection[int]) -> PartitionState:
        """Remove brokers from ``isr`` and ``joining``, unless the state is not the newest.

        The new leader is the first remaining broker of ``isr`` that can lead; brokers before it
        leave, too. The last replica that can lead stays, even if it failed.

        Args:
            state: the newest state that the caller knows.
            brokers: ids of the brokers whose replicas failed.

        Returns:
            The newest state.

        Raises:
            UnknownTopicOrPartitionError: the topic was deleted.
            UnknownOutcomeError: it is not known whether the change was made.
            StorageError: the metadata cannot be changed.
        """

    def min_insync_replicas(self) -> int:
        """Return the topic's ``min.insync.replicas``, without a request."""
