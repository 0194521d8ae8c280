"""`PartitionMirror`: copies one partition of a root to another root, segment by segment."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from spark_log.errors import LeaderNotAvailableError
from spark_log.log import (
    DivergedReplicaError,
    Lag,
    LocalLog,
    LogView,
    PartitionLog,
    TailView,
    follow_log_start,
)
from spark_log.log.chain import NO_LEADER, LeaderFailedError, PartitionState, ReplicaFetcher
from spark_log.mirror.root.copied_partition import CopiedPartition
from spark_log.record import RECORD_SCHEMA
from spark_log.types import TopicPartition

_log = logging.getLogger(__name__)


class PartitionMirror:
    """Copies one partition of the source to the target repeatedly. Not thread-safe.

    Between two copies it remembers the ends of both logs, for as long as their listings are valid.
    A copy that finds nothing new only asks each log for the name of its next segment. The target's
    log start follows the source's when a listing shows it: after half of ``file.delete.delay.ms``
    at the latest.
    """

    def __init__(
        self,
        topic_partition: TopicPartition,
        source: PartitionLog,
        target: PartitionLog,
        on_copied: Callable[[int], None],
    ) -> None:
        """Return the mirror of a partition; no storage is accessed yet.

        Args:
            topic_partition: the partition.
            source: the log that is read.
            target: the log that gets the segments.
            on_copied: called with the size of each segment after it was copied.
        """
        self._tp = topic_partition
        self._source = source
        self._target = target
        self._on_copied = on_copied
        self._last: CopiedPartition | None = None
        self._read: tuple[PartitionState, TailView] | None = None
        self._target_start = 0

    def copy(self) -> CopiedPartition:
        """Copy the source up to its last stable offset. The caller has just read the metadata.

        Raises:
            LeaderNotAvailableError: the source has no leader.
            DivergedReplicaError: another program has written to the target.
            CorruptRecordError: the source is damaged. The damage was not copied.
            SparkLogError: one of the two logs cannot be read or written. Copied segments stay.
        """
        present = self._target.states.current()
        number = present.directory_number(present.leader)
        follower = self._target.replica_of(present.leader, number)
        last, self._last = self._last, None
        known_end = None
        if last is not None and follower.follower.ends_at(last.end_offset):
            known_end = last.end_offset
        if last is None or known_end is None or not self._is_source_unchanged():
            try:
                last = self._copy(follower, known_end)
            except LeaderFailedError as first:  # another replica is chosen, if one can be read
                _log.debug("%s: another replica is read, after: %s", self._tp, first.error)
                try:
                    last = self._copy(follower, None)
                except LeaderFailedError as failed:
                    raise failed.error from failed
        self._last = replace(last, copied_bytes=0, copied_segments=0)
        return last

    def _is_source_unchanged(self) -> bool:
        """Return whether the source has the same end and replicas as at the last copy."""
        if self._read is None or self._read[0] != self._source.states.current():
            return False
        tail = self._read[1]
        return tail.ends_at(tail.log_end_offset)

    def _copy(self, follower: LocalLog, known_end: int | None) -> CopiedPartition:
        """Copy new records.

        Args:
            follower: the replica of the target.
            known_end: the end of that replica after the last copy; None to read its end, and to
                compare its last record with the source.

        Raises:
            LeaderFailedError: the source's replica cannot be read.
            SparkLogError: the target cannot be written; copied segments stay.
        """
        copied: list[int] = []

        def count(done_bytes: int) -> None:
            copied.append(done_bytes)
            self._on_copied(done_bytes)

        while True:
            state = self._source.states.current()
            if state.leader == NO_LEADER:
                topic, partition = self._tp
                message = (
                    f"{self._tp} has no leader in the source, so it cannot be copied; bring a "
                    f"replica of it back"
                )
                raise LeaderNotAvailableError(message, topic=topic, partition=partition)
            # The target is read first: another mirror that copies meanwhile cannot make it seem
            # to be ahead of the source.
            there = follower.follower.observe() if known_end is None else None
            view = self._source.observe()
            if self._source.read_state == state:
                break
        # The replica from which `view` was read; it has every record of the view.
        source = self._source.replica
        fetcher = ReplicaFetcher(source, follower, count, check_crcs=True)
        self._read = state, TailView(self._source.files, view)
        offset = known_end or 0
        if there is not None:
            self._check_is_prefix(source, view, follower, there)
            offset, self._target_start = there.log_end_offset, there.log_start_offset
        end = self._source.end_offset(view, isolation_level="read_committed")
        offset = fetcher.fetch(offset, end, whole=False)
        start = min(view.log_start_offset, offset)
        if start > self._target_start:
            self._target_start = follow_log_start(follower, start)
        lag = Lag.of(offset, view.log_start_offset, end).unread
        _log.debug("%s: copied %d segments, up to offset %d", self._tp, len(copied), offset)
        return CopiedPartition(self._tp, sum(copied), len(copied), offset, lag)

    def _check_is_prefix(
        self, source: LocalLog, view: LogView, follower: LocalLog, there: LogView
    ) -> None:
        """Check that the target's last record is in the source's log at the same offset."""
        offset = there.log_end_offset
        if view.log_start_offset < offset <= view.log_end_offset:
            last = offset - 1
            if _record(source, view, last) != _record(follower, there, last):
                raise DivergedReplicaError(
                    f"{self._tp} has another record at offset {last} in the target than in the "
                    f"source: another program has written to the target. Delete the topic in the "
                    f"target, or exclude it",
                    offset=last,
                )
        elif offset > view.log_end_offset:
            raise DivergedReplicaError(
                f"{self._tp} ends at offset {offset} in the target, and at {view.log_end_offset} "
                f"in the source: another program has written to the target. Delete the topic in "
                f"the target, or exclude it",
                offset=view.log_end_offset,
                is_ahead=True,
            )


def _record(replica: LocalLog, view: LogView, offset: int) -> object:
    """Return the record at an offset, which may be a marker; None if compaction has removed it.

    Args:
        replica: the replica that has the record.
        view: a view of this replica's log. A view of another replica is replaced by a new one.
        offset: the offset of the record.
    """
    files = replica.files
    if view.origin != files.url:
        view = files.observe()
    for position, _, reader in files.walk(view, offset, offset + 1):
        for batch in reader.read(position, offset + 1):
            at = batch.offsets().tolist()
            if offset in at:
                columns = batch.records.select(RECORD_SCHEMA.names)
                return columns.slice(at.index(offset), 1).to_pylist()
    return None
