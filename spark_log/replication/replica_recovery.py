"""`ReplicaRecovery`: returns a replica that is not in sync to the in-sync replicas.

1. It chooses the directory. It keeps the present one if its log is a prefix of the leader's. If the
   replica is damaged, or has records that the leader lacks (an old leader's, which were never
   acknowledged), it takes the next number: logs only grow, and are never truncated in place.
2. It copies the leader's segments up to the high watermark, without a change of the metadata.
3. The replica joins: a record in the metadata log, and a barrier in the logs. From this barrier on
   writers put their segments into the joining replica, too.
4. When the barrier is on all in-sync replicas and on the joining replica, this replica enters the
   in-sync replicas, at their end: one more record, and one more barrier. On object stores this
   waits `METADATA_LEASE_MS` after the replica began to join: by then every writer knows it.

A crash at any point costs only time: copied segments stay, and the next run continues. Any number
of processes may do this for the same replica at the same time.

The rules: (protocol R8, R9, R10).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from spark_log.cluster import Cluster, next_directory_number
from spark_log.errors import (
    CorruptRecordError,
    LeaderNotAvailableError,
    SparkLogError,
    StorageUnavailableError,
)
from spark_log.log import (
    DivergedReplicaError,
    LocalLog,
    follow_log_start,
)
from spark_log.log.chain import NO_LEADER, LeaderFailedError, PartitionState, ReplicaFetcher
from spark_log.metadata import METADATA_LEASE_MS, TopicImage, begin_joining, complete_joining

_MAX_TRIES: Final = 20
"""Maximum number of changes of the partition that one call follows before it gives up."""

_MAX_DIRECTORIES: Final = 10
"""Maximum number of directories that are tried after the present one. Crashes may have left
unfinished copies in them."""

_CLOSE_BYTES: Final = 4_194_304
"""Maximum bytes of a copy's last pass. The replica joins after it; writers copy the rest."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """The result of the recovery of one replica.

    Attributes:
        broker_id: the id of the broker that has the replica.
        is_in_sync: whether the replica is in sync now. It is not if the partition has no such
            replica any more, or its broker is fenced.
        is_joining: whether the replica becomes in sync as soon as every writer knows it.
        directory: the number of the replica's directory.
        copied_segments: the number of segments that were copied.
        copied_bytes: the size of these segments.
    """

    broker_id: int
    is_in_sync: bool
    directory: int = 0
    copied_segments: int = 0
    copied_bytes: int = 0
    is_joining: bool = False


class ReplicaRecovery:
    """Returns one replica of one partition to the in-sync replicas. Not thread-safe."""

    def __init__(
        self,
        cluster: Cluster,
        topic: TopicImage,
        partition: int,
        broker_id: int,
        *,
        on_progress: Callable[[int], None] = lambda done_bytes: None,
        on_listed: Callable[[int], None] = lambda remaining_bytes: None,
    ) -> None:
        """Return the recovery of a replica; no storage is accessed yet.

        Args:
            cluster: the opened root.
            topic: the partition's topic.
            partition: the number of the partition.
            broker_id: the id of the broker that has the replica.
            on_progress: called with the number of bytes of each segment after it was copied; it may
                sleep to throttle.
            on_listed: called with the number of bytes that are still to be copied, whenever the
                leader's log was listed.

        Raises:
            UnknownTopicOrPartitionError: the topic has no such partition.
        """
        self._cluster = cluster
        self._topic = topic
        self._partition = partition
        self._broker_id = broker_id
        self._on_progress = on_progress
        self._on_listed = on_listed
        self._log = cluster.partition_log(topic, partition)
        self._copied_segments = 0
        self._copied_bytes = 0
        self._joining_until = 0, 0.0

    def run(self) -> RecoveryReport:
        """Copy the records that the replica lacks, and add it to the in-sync replicas.

        Raises:
            SparkLogError: one of the errors of `advance`.
        """
        report = self.advance()
        while report.is_joining:
            self._cluster.clock.sleep_ms(self.remaining_ms)
            report = self.advance()
        return report

    @property
    def remaining_ms(self) -> float:
        """Remaining time until every writer knows that the replica joins.

        A writer acknowledges by metadata that it has read within `METADATA_LEASE_MS`. On a file
        system it also sees, without a request, whether a root has lost its files.
        """
        leader_epoch, until_ms = self._joining_until
        if leader_epoch != self._log.states.current().leader_epoch:
            return 0.0  # `advance` has to read the metadata first
        return max(until_ms - self._cluster.clock.monotonic_ms(), 0.0)

    def advance(self) -> RecoveryReport:
        """Copy, join or enter the in-sync replicas, as far as possible without waiting for writers.

        Returns:
            The result. If the replica is joining, call again after `remaining_ms`.

        Raises:
            LeaderNotAvailableError: the partition has no leader.
            StorageError: a root cannot be reached. Copied segments stay.
            UnknownTopicOrPartitionError: the topic was deleted.
            CorruptRecordError: the leader's log is damaged.
        """
        for _ in range(_MAX_TRIES):
            state = self._log.states.refresh()
            broker_id = self._broker_id
            if broker_id in state.isr:
                return self._report(state, is_in_sync=True)
            if broker_id not in state.replicas or self._is_fenced():
                return self._report(state, is_in_sync=False)
            if state.leader == NO_LEADER:
                raise LeaderNotAvailableError(
                    f"{self._log.directory} has no leader: nothing can be copied",
                    topic=self._topic.name,
                    partition=self._partition,
                )
            try:
                if broker_id in state.joining:
                    if not self._complete():
                        return self._report(state, is_in_sync=False, is_joining=True)
                else:
                    self._copy_and_join(state)
            except LeaderFailedError as failed:
                raise failed.error from failed
        raise StorageUnavailableError(
            f"{self._log.directory}: the replica on broker {broker_id} is not in sync: its "
            f"partition changed {_MAX_TRIES} times meanwhile; try again",
            path=self._log.directory,
        )

    def _report(
        self, state: PartitionState, *, is_in_sync: bool, is_joining: bool = False
    ) -> RecoveryReport:
        return RecoveryReport(
            self._broker_id,
            is_in_sync,
            state.directory_number(self._broker_id),
            self._copied_segments,
            self._copied_bytes,
            is_joining,
        )

    def _is_fenced(self) -> bool:
        return self._cluster.metadata.known_image().broker(self._broker_id).fenced

    # --- joining ---------------------------------------------------------------------------------

    def _complete(self) -> bool:
        """Append the barrier to all replicas, and then move the joining replica into the ISR.

        Returns:
            False if `remaining_ms` has to pass first.
        """
        if self.remaining_ms > 0:
            return False
        state = self._log.replicate()
        if self._broker_id not in state.joining:
            return True
        if self._joining_until[0] != state.leader_epoch:
            stores = [self._cluster.broker_store(broker_id) for broker_id in state.chain]
            lease_ms = 0 if all(store.shows_gone for store in stores) else METADATA_LEASE_MS
            until_ms = self._cluster.clock.monotonic_ms() + lease_ms
            self._joining_until = state.leader_epoch, until_ms
            _log.debug(
                "%s: the barrier of leader epoch %d is on the joining replica of broker %d, which "
                "enters the isr after %d ms",
                self._log.directory,
                state.leader_epoch,
                self._broker_id,
                lease_ms,
            )
        if self.remaining_ms > 0:
            return False
        self._cluster.check_broker(self._broker_id)
        has_joined = self._cluster.metadata.commit(
            lambda image: complete_joining(
                image,
                self._topic.topic_id,
                self._partition,
                self._broker_id,
                leader_epoch=state.leader_epoch,
            )
        )
        if has_joined:
            _log.debug(
                "%s: the replica on broker %d is in sync", self._log.directory, self._broker_id
            )
        self._log.replicate()
        return True

    def _copy_and_join(self, state: PartitionState) -> None:
        """Copy the log, and let the replica join if the leader epoch is still the same."""
        # Directories with lower numbers were given up, and may be deleted at any time.
        store = self._cluster.broker_store(self._broker_id)
        lowest = next_directory_number(store, self._topic, self._partition)
        number = max(state.directory_number(self._broker_id), lowest)
        last = number + _MAX_DIRECTORIES
        while True:
            # An empty root may be a mount point without its file system.
            self._cluster.check_broker(self._broker_id)
            follower = self._log.replica_of(self._broker_id, number)
            try:
                epoch = self._copy(state, follower)
                break
            except (DivergedReplicaError, CorruptRecordError) as error:
                if number == last:
                    raise
                self._cluster.suppressed.add("replica", follower.files.url, error)
                number += 1
        if epoch is None:
            _log.debug("%s: the leader epoch changed during the copy", self._log.directory)
            return
        self._cluster.check_broker(self._broker_id)
        begins = self._cluster.metadata.commit(
            lambda image: begin_joining(
                image,
                self._topic.topic_id,
                self._partition,
                self._broker_id,
                leader_epoch=epoch,
                directory=number,
            )
        )
        if begins:
            _log.debug(
                "%s: the replica on broker %d joins in directory %d, after a copy of %d segments, "
                "%d bytes from the leader on broker %d in leader epoch %d",
                self._log.directory,
                self._broker_id,
                number,
                self._copied_segments,
                self._copied_bytes,
                state.leader,
                epoch,
            )

    # --- copying ---------------------------------------------------------------------------------

    def _copy(self, state: PartitionState, follower: LocalLog) -> int | None:
        """Copy the leader's log up to the high watermark, in several passes if it takes long.

        Returns:
            The leader epoch in which the follower was found to be a prefix of the leader; None if
            the leader changed meanwhile.

        Raises:
            DivergedReplicaError, CorruptRecordError: the follower's log cannot be continued.
            LeaderFailedError: the leader failed.
            StorageError: a root cannot be reached.
        """
        leader = self._log.replica_of(state.leader, state.directory_number(state.leader))
        fetcher = ReplicaFetcher(
            leader, follower, self._count, check_crcs=True, on_listed=self._on_listed
        )
        offset = follower.follower.observe().log_end_offset
        while True:
            high_watermark = self._high_watermark()
            if self._log.read_state.leader_epoch != state.leader_epoch:
                return None
            copied_bytes = self._copied_bytes
            offset = fetcher.fetch(offset, high_watermark, whole=False)
            if self._copied_bytes - copied_bytes <= _CLOSE_BYTES:
                break
        self._finish(leader, follower, offset)
        return state.leader_epoch

    def _high_watermark(self) -> int:
        """Return the high watermark: all in-sync replicas have every record before it.

        Raises:
            LeaderFailedError: the high watermark cannot be read.
        """
        try:
            return self._log.observe().log_end_offset
        except SparkLogError as error:
            raise LeaderFailedError(error) from error

    def _finish(self, leader: LocalLog, follower: LocalLog, offset: int) -> None:
        """Move the start of the copied log to the leader's, and write a snapshot if it is due.

        The first writer of a new leader then finds the state of producers without opening all
        segments.
        """
        try:
            start = leader.files.observe().log_start_offset
        except SparkLogError as error:
            raise LeaderFailedError(error) from error
        follow_log_start(follower, min(start, offset))
        view = follower.follower.observe()
        with self._cluster.suppressed.suppress("snapshot", follower.files.path, SparkLogError):
            if follower.snapshots.segments_until_due(view) <= 0:
                follower.snapshots.write(view)

    def _count(self, done_bytes: int) -> None:
        self._copied_segments += 1
        self._copied_bytes += done_bytes
        self._on_progress(done_bytes)
