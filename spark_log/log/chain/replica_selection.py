"""Chooses the replica that a process reads, and limits what it sees of it (protocol R14)."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from spark_log.errors import NotFoundError, OffsetOutOfRangeError, StorageUnavailableError
from spark_log.log.chain.failover import Failover
from spark_log.log.chain.partition_state import PartitionState
from spark_log.log.chain.replica_chain import ReplicaChain
from spark_log.log.chain.replica_failure import REPLICA_ERRORS, ReplicaFailedError, blaming
from spark_log.log.directory import LogView
from spark_log.log.local_log import LocalLog
from spark_log.util import Clock, SuppressedErrors

_log = logging.getLogger(__name__)

_REFRESH_MS: Final = 500
"""Minimum interval at which a reader at the end of a replicated log checks whether the chain has
changed. All readers of a process share the metadata that one of them has read."""

_MAX_READ_TRIES: Final = 10

MAX_REWRITES: Final = 20
"""Maximum number of retries after a file that was just listed is missing. After that it is taken
for a failure of the root, not for a rewritten segment."""


class ReplicaSelection:
    """Chooses the replica that is read: the last one of the chain, which may be joining.

    All in-sync replicas have the records that this one has, and so do the replicas that will be in
    sync next. It is read only if it has the barrier of the present leader epoch.

    Attributes:
        state: the partition state that the log is read under; None before the first `refresh`.
        high_watermark_cap: the offset from which on readers see no record (KIP-966); infinite if
            they see all.
        near: an in-sync replica in the reader's rack, to be read up to the high watermark; None if
            the last replica is to be read.
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
            name: the partition's name, for messages.
            clock: the clock whose monotonic time decides when the metadata are read again.
            suppressed: counter of the failures of near replicas.
            is_near: tells whether a broker is in the reader's rack; None reads the last replica.
        """
        self.state: PartitionState | None = None
        self.high_watermark_cap: float = math.inf
        self.near: LocalLog | None = None
        self._chain = chain
        self._name = name
        self._clock = clock
        self._suppressed = suppressed
        self._is_near = is_near
        self._refreshed_ms = 0.0

    @property
    def known_state(self) -> PartitionState:
        """The state that the log is read under; the last known state before the first `refresh`."""
        return self.state or self._chain.states.current()

    @property
    def replica(self) -> LocalLog:
        """The replica that is read."""
        state = self.known_state
        return self._chain.replica(state, state.chain[-1])

    def refresh(self, *, max_age_ms: float = math.inf) -> None:
        """Choose the replica to be read.

        Args:
            max_age_ms: maximum age of the metadata: they are read if this process has not read them
                within this time and the partition may have several replicas. Infinite uses the last
                known state.

        Raises:
            LeaderNotAvailableError: no replica can be read.
            StorageError: the storage does not answer.
        """
        state = self._chain.states.current()
        if max_age_ms < math.inf and state.is_replicated:
            state = self._chain.states.recent(max_age_ms)
        if self.state == state:
            return
        failover = self._chain.failover(state)
        for _ in range(_MAX_READ_TRIES):
            try:
                with blaming(state.chain[-1]):
                    can_read = self._can_read(state)
            except ReplicaFailedError as failed:
                state = failover.leave_out(state, failed)
                continue
            if can_read:
                return
            # The process that changed the chain did not bring its barrier to all replicas.
            self._chain.replicate()
            state = self._chain.states.refresh()
        raise StorageUnavailableError(
            f"{self._name}: its replicas changed during each of {_MAX_READ_TRIES} tries to read "
            f"it. Try again",
            path=self._name,
        )

    def refresh_epoch(self) -> None:
        """Read the metadata, after the log has shown a newer leader epoch than `state`.

        Raises:
            StorageError: the metadata do not have this epoch.
        """
        self.failover().refresh_epoch()
        self.refresh()

    def is_refresh_due(self) -> bool:
        """Return whether the chain may have changed since the replica was chosen."""
        state = self._chain.states.current()
        if self.state != state:
            return True
        age_ms = self._clock.monotonic_ms() - self._refreshed_ms
        return state.is_replicated and age_ms >= _REFRESH_MS

    def refresh_if_due(self) -> None:
        """Choose the replica again if the chain may have changed.

        Raises:
            LeaderNotAvailableError: no replica can be read.
            StorageError: the storage does not answer.
        """
        if self.is_refresh_due():
            self._refreshed_ms = self._clock.monotonic_ms()
            self.refresh(max_age_ms=_REFRESH_MS)

    def failover(self) -> Failover:
        """Return one read, which continues with another replica when one fails."""
        return self._chain.failover(self.known_state)

    def committed_end(self, state: PartitionState, broker_id: int) -> int:
        """Return an offset up to which a replica has only records that all in-sync replicas have.

        A replica that is not in sync may have records that were never acknowledged, if it once led
        the partition.

        Args:
            state: the partition state.
            broker_id: the broker id of a replica that is not in sync.

        Returns:
            The offset; 0 if it is not known.

        Raises:
            StorageError, CorruptRecordError: one of the two replicas cannot be read.
        """
        replica, last = self._chain.replica(state, broker_id), self.replica
        committed, view = last.files.observe(), replica.files.observe()
        end_offset = min(view.log_end_offset, committed.log_end_offset)
        if end_offset <= max(view.log_start_offset, committed.log_start_offset):
            return 0
        try:
            here = replica.leader_epochs.epoch_for_offset(end_offset - 1, view)
            there = last.leader_epochs.epoch_for_offset(end_offset - 1, committed)
        except OffsetOutOfRangeError:  # deleted since
            return 0
        return int(min(end_offset, self.high_watermark_cap)) if here == there else 0

    def is_newer(self, view: LogView) -> bool:
        """Return whether a view has a newer leader epoch than `state`."""
        state = self.state
        assert state is not None
        epoch = (
            self.replica.leader_epochs.latest(view) if state.is_replicated else view.leader_epoch
        )
        return epoch is not None and epoch > state.newest_epoch

    @contextmanager
    def leaving_near(self) -> Iterator[None]:
        """Read the last replica from now on if the near one cannot be read."""
        try:
            yield
        except REPLICA_ERRORS as error:
            self.near = None
            self._suppressed.add("near replica", self._name, error)

    def _can_read(self, state: PartitionState) -> bool:
        """Read under a state from now on, if the last replica of its chain has its barrier.

        Returns:
            Whether it has the barrier.
        """
        replica = self._chain.replica(state, state.chain[-1])
        if state.leader_epoch > 0 and not self._has_barrier(state, replica):
            return False
        high_watermark_cap = math.inf
        if state.high_watermark_cap_epoch:
            view = replica.files.observe()
            high_watermark_cap = replica.leader_epochs.start_offset_of(
                state.high_watermark_cap_epoch, view
            )
        self.high_watermark_cap = high_watermark_cap
        self.state = state
        self.near = self._find_near(state)
        # In later epochs the chain may not end with this replica; in earlier ones this replica may
        # have been outside of the chain.
        replica.begin_epoch(state.newest_epoch)
        _log.debug(
            "%s: read the replica on broker %d in leader epoch %d, up to offset %s",
            self._name,
            state.chain[-1],
            state.leader_epoch,
            high_watermark_cap,
        )
        return True

    def _find_near(self, state: PartitionState) -> LocalLog | None:
        """Return an in-sync replica in the reader's rack; None to read the last replica."""
        if self._is_near is None or self._is_near(state.chain[-1]):
            return None
        for broker_id in filter(self._is_near, reversed(state.isr)):
            with self._suppressed.suppress("near replica", self._name, *REPLICA_ERRORS):
                replica = self._chain.replica(state, broker_id)
                replica.begin_epoch(state.newest_epoch)
                return replica
        return None

    @staticmethod
    def _has_barrier(state: PartitionState, replica: LocalLog) -> bool:
        """Return whether a replica, the last one of a state's chain, has the state's barrier."""
        for _ in range(MAX_REWRITES):
            with suppress(NotFoundError):  # rewritten since it was listed
                return _is_epoch_of(state, replica)
        return _is_epoch_of(state, replica)


def _is_epoch_of(state: PartitionState, replica: LocalLog) -> bool:
    epoch = replica.leader_epochs.latest(replica.files.observe())
    return epoch is not None and state.leader_epoch <= epoch <= state.newest_epoch
