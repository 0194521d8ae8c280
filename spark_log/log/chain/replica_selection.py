"""Which replica of a partition one process reads, and what it sees there."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from spark_log.clock import Clock
from spark_log.errors import NotFoundError, StorageUnavailableError
from spark_log.log.chain.chain_attempt import ChainAttempt
from spark_log.log.chain.partition_state import PartitionState
from spark_log.log.chain.replica_chain import ReplicaChain
from spark_log.log.chain.replica_failure import REPLICA_ERRORS, ReplicaFailedError, blaming
from spark_log.log.partition_directory import LogView
from spark_log.log.replica import Replica
from spark_log.suppressed import SuppressedErrors

_LOOK_MS: Final = 500
"""A reader at the end of a replicated log looks this often whether the chain has changed. All
readers of a process share what one of them has read."""

_MAX_READ_TRIES: Final = 10

MAX_REWRITES: Final = 20
"""How often a file may be gone that was just listed. Then it was not rewritten: its root fails."""


class ReplicaSelection:
    """Chooses the replica that is read: the last one of the chain, which may be joining.

    What this one has, all have, also those that are in sync next. It is read only if the barrier of
    the present leader epoch stands on it.

    Attributes:
        state: by which the log is read; None before the first look.
        hidden_from: readers see no record from this offset on (KIP-966).
        near: an in-sync replica in the reader's rack, to be read up to the high watermark; None if
            the last one is to be read.
    """

    def __init__(
        self,
        chain: ReplicaChain,
        *,
        name: str,
        clock: Clock,
        suppressed: SuppressedErrors,
        is_near: Callable[[int], bool] | None,
    ) -> None:
        """Access no storage yet.

        Args:
            chain: the replicas.
            name: of the partition, for messages.
            clock: its monotonic time tells when to look at the metadata again.
            suppressed: counts failures of near replicas.
            is_near: whether a broker is in the reader's rack; None reads the last replica.
        """
        self.state: PartitionState | None = None
        self.hidden_from: float = math.inf
        self.near: Replica | None = None
        self._chain = chain
        self._name = name
        self._clock = clock
        self._suppressed = suppressed
        self._is_near = is_near
        self._looked_ms = 0.0

    @property
    def known_state(self) -> PartitionState:
        """The state by which the log is read, or else the newest one that is known."""
        return self.state or self._chain.states.current()

    @property
    def replica(self) -> Replica:
        """The replica that is read."""
        state = self.known_state
        return self._chain.replica(state, state.chain[-1])

    def look(self, *, max_age_ms: float = math.inf) -> None:
        """Choose the replica to be read.

        Args:
            max_age_ms: the metadata are read if this process has not read them within this time
                and the partition may have several replicas. Without it they are taken as known.

        Raises:
            LeaderNotAvailableError: no replica can be read.
            StorageError: the storage does not answer.
        """
        state = self._chain.states.current()
        if max_age_ms < math.inf and state.is_replicated:
            state = self._chain.states.recent(max_age_ms)
        if self.state == state:
            return
        attempt = self._chain.attempt()
        for _ in range(_MAX_READ_TRIES):
            try:
                with blaming(state.chain[-1]):
                    can_read = self._can_read(state)
            except ReplicaFailedError as failed:
                state = self._chain.without(state, failed, attempt)
                continue
            if can_read:
                return
            # Whoever changed the chain did not bring its barrier to all replicas.
            self._chain.replicate()
            state = self._chain.states.refresh()
        raise StorageUnavailableError(
            f"{self._name}: its replicas change all the time", path=self._name
        )

    def look_for_newer(self) -> None:
        """Read the metadata, since the log has a newer leader epoch than the state that is read.

        Raises:
            StorageError: the metadata do not have this epoch.
        """
        before = self.state
        state = self._chain.states.refresh()
        if before is not None and state.leader_epoch <= before.leader_epoch:
            raise self._chain.unknown_epoch(state)
        self.look()

    def is_look_due(self) -> bool:
        """Whether the chain may have changed since the replica was chosen."""
        state = self._chain.states.current()
        if self.state != state:
            return True
        age_ms = self._clock.monotonic_ms() - self._looked_ms
        return state.is_replicated and age_ms >= _LOOK_MS

    def look_if_due(self) -> None:
        """Choose the replica again if it is due.

        Raises:
            LeaderNotAvailableError: no replica can be read.
            StorageError: the storage does not answer.
        """
        if self.is_look_due():
            self._looked_ms = self._clock.monotonic_ms()
            self.look(max_age_ms=_LOOK_MS)

    def attempt(self) -> ChainAttempt:
        """Return what follows one read, which goes on when the replica that is read fails."""
        return self._chain.attempt()

    def leave_out(
        self, state: PartitionState, failed: ReplicaFailedError, attempt: ChainAttempt
    ) -> None:
        """Leave out a replica that cannot be read.

        Args:
            state: by which it was read.
            failed: tells which replica, and why.
            attempt: the read.

        Raises:
            SparkLogError: as of `ReplicaChain.without`: no other replica can be read.
        """
        self._chain.without(state, failed, attempt)

    def is_newer(self, view: LogView) -> bool:
        """Whether a view has a newer leader epoch than the state that is read."""
        state = self.state
        assert state is not None
        epoch = self.replica.leader_epoch(view) if state.is_replicated else view.leader_epoch
        return epoch is not None and epoch > state.leader_epoch

    @contextmanager
    def leaving_near(self) -> Iterator[None]:
        """Read the last replica from now on if the near one cannot be read."""
        try:
            yield
        except REPLICA_ERRORS as error:
            self.near = None
            self._suppressed.add("near replica", self._name, error)

    def _can_read(self, state: PartitionState) -> bool:
        """Read by a state from now on, if its barrier stands on the last replica of its chain."""
        replica = self._chain.replica(state, state.chain[-1])
        if state.leader_epoch > 0 and not self._has_barrier(state, replica):
            return False
        hidden_from = math.inf
        if state.hidden_from_epoch:
            view = replica.files.observe()
            hidden_from = replica.offset_of_epoch(state.hidden_from_epoch, view)
        self.hidden_from = hidden_from
        self.state = state
        self.near = self._find_near(state)
        self._begin_epoch(replica, state)
        return True

    def _find_near(self, state: PartitionState) -> Replica | None:
        """Return an in-sync replica in the reader's rack; None if the last one is to be read."""
        if self._is_near is None or self._is_near(state.chain[-1]):
            return None
        for broker_id in filter(self._is_near, reversed(state.isr)):
            with self._suppressed.suppress("near replica", self._name, *REPLICA_ERRORS):
                replica = self._chain.replica(state, broker_id)
                self._begin_epoch(replica, state)
                return replica
        return None

    @staticmethod
    def _begin_epoch(replica: Replica, state: PartitionState) -> None:
        """Read a replica by another state than before."""
        # In later epochs the chain may not end with this replica.
        replica.reader.max_leader_epoch = state.leader_epoch
        # In earlier ones it may have been outside of the chain.
        replica.reader.forget()

    @staticmethod
    def _has_barrier(state: PartitionState, replica: Replica) -> bool:
        """Whether the barrier of a state stands on the last replica of its chain."""
        for _ in range(MAX_REWRITES):
            with suppress(NotFoundError):  # rewritten since it was listed
                return replica.leader_epoch(replica.files.observe()) == state.leader_epoch
        return replica.leader_epoch(replica.files.observe()) == state.leader_epoch
