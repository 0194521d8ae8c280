"""Members of a simulated group that commit their offsets by transactions (KIP-447)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Any, cast

from spark_log.cluster import Cluster
from spark_log.coordinator.group.group_log import GroupLog
from spark_log.coordinator.group.status import MemberStatus
from spark_log.coordinator.offsets.transactional_offsets import (
    RolledForwardOffsets,
    TransactionalOffsets,
)
from spark_log.errors import CommitFailedError, SparkLogError, TransactionError
from spark_log.metadata import MetadataImage
from spark_log.record import ProducerIdAndEpoch
from spark_log.storage import Store
from spark_log.transaction import TransactionCoordinator, TransactionMetadata, TransactionOffset
from spark_log.types import ConsumerGroupMetadata
from spark_log.util.clock import Clock
from spark_log.util.suppressed import SuppressedErrors
from tests.simulation.groups.profile import SESSION_TIMEOUT_MS
from tests.simulation.groups.true_group import GROUP_ID, Place
from tests.simulation.groups.world import GroupWorld

_TIMEOUT_MS = SESSION_TIMEOUT_MS
_PAUSE_MS = 4 * SESSION_TIMEOUT_MS


class _ProducerIds:
    def __init__(self, ids: count[int]) -> None:
        self._ids = ids

    def next_id(self) -> int:
        return next(self._ids)


@dataclass
class _Cluster:
    """The part of a cluster that transactions without partitions need."""

    store: Store
    clock: Clock
    suppressed: SuppressedErrors
    producer_ids: _ProducerIds

    def image(self) -> MetadataImage:
        return MetadataImage()


class SimulatedTransactions:
    """The transactions of one process: a member, and its producer if it has one.

    Attributes:
        offsets: settles pending offsets for the member.
    """

    def __init__(self, world: GroupWorld, transactional_id: str) -> None:
        self._world = world
        self._transactional_id = transactional_id
        self._owner: ProducerIdAndEpoch | None = None
        cluster = _Cluster(
            world.store, world.clock, world.suppressed, _ProducerIds(world.producer_ids)
        )

        class Offsets(world.transactions_class):  # type: ignore[misc, name-defined]
            def _open_log(self, group_id: str) -> GroupLog:
                return world.open_log(group_id)

            def _open_coordinator(self, transactional_id: str) -> TransactionCoordinator:
                return open_coordinator(transactional_id)

        self.offsets: TransactionalOffsets = Offsets(
            cast(Cluster, cluster), cast(RolledForwardOffsets, world.offsets)
        )

        def commit_offsets(state: TransactionMetadata) -> None:
            self.offsets.commit_offsets(state)

        def open_coordinator(transactional_id: str) -> TransactionCoordinator:
            return TransactionCoordinator(
                cast(Cluster, cluster),
                transactional_id,
                commit_offsets=commit_offsets,
                markers_at_once=1,
            )

        self._coordinator = open_coordinator(transactional_id)

    def commit(self, status: MemberStatus, reading: Mapping[Place, int]) -> None:
        """Commit positions in a transaction, or leave it open, or abort it.

        Raises:
            CommitFailedError: the member may not commit them.
            StorageError: they may be committed.
        """
        try:
            self._commit(status, dict(reading))
        except CommitFailedError:
            self._abort()
            raise
        except TransactionError as error:  # others have aborted it, or finish it
            self._world.scheduler.note(f"{type(error).__name__}: {error}")
            self._owner = None
        except SparkLogError:
            self._owner = None
            raise

    def _commit(self, status: MemberStatus, reading: dict[Place, int]) -> None:
        world, random = self._world, self._world.scheduler.random
        if self._owner is None:
            self._owner = self._coordinator.initialize(_TIMEOUT_MS)
        self._coordinator.register(self._owner, groups=[GROUP_ID])
        self.offsets.send(
            self._coordinator.state,
            self._owner,
            ConsumerGroupMetadata(GROUP_ID, status.generation, status.member_id),
            [partition for _, partition in reading],
        )
        world.scheduler.note(f"sends offsets in generation {status.generation}")
        if not world.is_ending:
            chance = random.random()
            if chance < 0.3:  # without heartbeats: the member may expire, and the transaction too
                world.scheduler.pass_time(_PAUSE_MS * random.random())
            elif chance < 0.45:
                self._owner = None
                world.scheduler.note("leaves a transaction open")
                return
            elif chance < 0.6:
                self._abort()
                return
        offsets = [
            TransactionOffset(GROUP_ID, named.topic, topic_id, named.partition, offset)
            for (topic_id, named), offset in reading.items()
        ]
        owner, self._owner = self._owner, None
        self._owner = self._coordinator.commit(owner, offsets=offsets)
        world.truth.promise(reading)
        world.scheduler.note("commits a transaction")

    def _abort(self) -> None:
        owner, self._owner = self._owner, None
        if owner is not None:
            with suppress(SparkLogError):
                self._owner = self._coordinator.abort(owner)


class NeverWaits(TransactionalOffsets):
    """Lets a member begin while transactions are undecided."""

    def settle(self, *_: Any) -> None:
        """Do nothing."""
