"""Copies segments of the leader's log to another replica, which has a prefix of it.

The replica gets byte-identical files under the same names, also for rewritten segments. Indexes are
not copied; the key index of a Parquet segment is built from the copy. A crash at
any point leaves a shorter prefix, which the next copy continues. A segment that another process has
copied meanwhile is skipped.

This process reads and writes the bytes, even if the storage could link or copy files by itself:
replicas that share blocks would be damaged together (ADR 25).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import pyarrow as pa

from spark_log.errors import CorruptRecordError, NotFoundError, OffsetOutOfRangeError
from spark_log.log.append import CopiedSegment, DivergedReplicaError
from spark_log.log.chain.replica_failure import REPLICA_ERRORS, LeaderFailedError
from spark_log.log.directory import LogView
from spark_log.log.files import SegmentName, StartMarker
from spark_log.log.local_log import LocalLog
from spark_log.log.log_start import follow_log_start
from spark_log.log.rewrite import build_key_index

_log = logging.getLogger(__name__)


class ReplicaFetcher:
    """Copies segments from the leader to one follower (Kafka's ``ReplicaFetcherThread``)."""

    def __init__(
        self,
        leader: LocalLog,
        follower: LocalLog,
        on_progress: Callable[[int], None] = lambda done_bytes: None,
        *,
        check_crcs: bool = False,
        on_listed: Callable[[int], None] = lambda remaining_bytes: None,
    ) -> None:
        """Access no storage yet.

        Args:
            leader: the replica that is read.
            follower: the replica that gets the segments.
            on_progress: called with the number of bytes of each segment after it was copied; it may
                sleep to throttle.
            check_crcs: whether to check the checksums of batches before a segment is copied. This
                is done only if files are mapped: other files would be transferred twice. A damaged
                segment is then an error of the leader, and is not copied.
            on_listed: called with the number of bytes that are still to be copied, whenever the
                leader's log was listed.
        """
        self._leader = leader
        self._follower = follower
        self._on_progress = on_progress
        self._on_listed = on_listed
        self._check_crcs = check_crcs and leader.files.store.is_local
        follower.follower.check = self.check_is_prefix

    def check_is_prefix(self, view: LogView) -> None:
        """Check that the follower's log is a prefix of the leader's (the rule *Prefix*).

        If records were deleted while the follower was not in sync, its log start offset is moved to
        the leader's, so that deleted records do not come back when it leads.

        The batch before the follower's end must have the same leader epoch in the leader's log:
        within one leader epoch each offset is given once. If the leader's log has deleted this
        batch, the logs cannot be compared: the follower's producer state may be that of other
        records.

        Args:
            view: a view of the follower's log.

        Raises:
            DivergedReplicaError: the log is not a prefix, or this cannot be determined.
            REPLICA_ERRORS: the follower failed.
            LeaderFailedError: the leader failed.
        """
        end_offset = view.log_end_offset
        here = self._follower.leader_epochs.latest(view) if end_offset else None
        if here is None and not view.live.segments:
            return  # it has no batch yet
        leading, there = self._leading_epoch(end_offset)
        if here is not None and here == there:
            if view.log_start_offset < leading.log_start_offset:
                follow_log_start(self._follower, leading.log_start_offset)
            return
        raise DivergedReplicaError(
            f"{self._follower.files.url} ends at offset {end_offset} in leader epoch {here}; the "
            f"leader's log has epoch {there} there, and has offsets {leading.log_start_offset} to "
            f"{leading.log_end_offset}",
            offset=end_offset - 1,
            is_ahead=end_offset > leading.log_end_offset,
        )

    def _leading_epoch(self, end_offset: int) -> tuple[LogView, int | None]:
        """Return the leader's log, and the leader epoch of its batch before an offset.

        The epoch is None if the log does not have this batch. For the batch before the log start
        offset, the epoch is read from the start marker.
        """
        while True:
            view = self._leading_view()
            if not view.log_start_offset <= end_offset <= view.log_end_offset:
                return view, None
            try:
                if end_offset == view.log_start_offset:
                    return view, self._leader.files.leader_epoch_at_start(end_offset)
                return view, self._leader.leader_epochs.epoch_for_offset(end_offset - 1, view)
            except OffsetOutOfRangeError:  # deleted since
                continue
            except REPLICA_ERRORS as error:
                raise LeaderFailedError(error) from error

    def fetch(self, offset: int, end_offset: int, *, whole: bool = True) -> int:
        """Copy the segments of the leader's log from an offset on.

        If the leader's log starts after the offset, a follower without records gets the same start.

        Args:
            offset: the follower's log end offset.
            end_offset: the offset up to which to copy.
            whole: whether a segment that contains ``end_offset`` is copied, so that the follower
                ends after it. If not, the copy stops before this segment.

        Returns:
            The offset up to which the follower has the leader's log now. It is less than
            ``end_offset`` only if the leader's log ends before, or if ``whole`` is False.

        Raises:
            REPLICA_ERRORS: the follower failed, or has diverged.
            LeaderFailedError: the leader failed.
        """
        view: LogView | None = None
        start = 0
        while offset < end_offset:
            if view is None or offset >= view.log_end_offset:
                view = self._leading_view()
                if offset >= view.log_end_offset:
                    break
                missing = view.live.segments[max(0, view.live.index_of(offset)) :]
                self._on_listed(
                    sum(each.file.size_bytes for each in missing if each.start_offset < end_offset)
                )
            if offset < view.log_start_offset:
                start = view.log_start_offset
                offset = self._skip_to(view)
                if offset >= end_offset:
                    break  # replicas before the follower in the chain may lack the next segments
                if offset >= view.log_end_offset:
                    continue  # the leader's log was emptied
            found = self._read(offset, view)
            if found is None:
                view = None
                continue
            copied, data = found
            if copied.end_offset > end_offset and not whole:
                break
            self._follower.follower.copy(copied)
            if copied.name.is_parquet:
                self._build_key_index(copied.name)
            offset = copied.end_offset
            self._leader.files.store.release_memory(data)
            self._on_progress(data.size)
        if start:
            follow_log_start(self._follower, min(start, offset))
        _log.debug(
            "%s: copied up to offset %d from %s",
            self._follower.files.url,
            offset,
            self._leader.files.url,
        )
        return offset

    def _build_key_index(self, name: SegmentName) -> None:
        """Build the key index of a copied segment, so that its first look-up is as fast."""
        files = self._follower.files
        with files.suppressed.suppress("key index", files.path, CorruptRecordError):
            build_key_index(files, name)

    def _leading_view(self) -> LogView:
        try:
            return self._leader.files.observe()
        except REPLICA_ERRORS as error:
            raise LeaderFailedError(error) from error

    def _read(self, offset: int, view: LogView) -> tuple[CopiedSegment, pa.Buffer] | None:
        """Return the leader's segment with an offset, and its file.

        Returns:
            None if the segment may have been rewritten or deleted since it was listed.
        """
        files = self._leader.files
        try:
            # The listing may lack the segment, if it appeared during the listing. The first segment
            # may begin before the log start.
            start = max(offset, view.log_start_offset)
            _, segment, reader = next(files.walk(view, start, start + 1))
            if self._check_crcs:
                for ordinal in reader.in_order():
                    reader.read_batch(ordinal)
            data = files.store.open_buffer(reader.path)
            copied = CopiedSegment(
                segment.name, reader.end_offset, reader.append_id, reader.leader_epoch, data
            )
        except (NotFoundError, OffsetOutOfRangeError):
            return None
        except REPLICA_ERRORS as error:
            raise LeaderFailedError(error) from error
        return None if files.is_outdated(view.observed_ms) else (copied, data)

    def _skip_to(self, view: LogView) -> int:
        """Begin the follower's log at the first segment of the leader's log, if it has no segment.

        The log start offset is moved into this segment after the segment was copied. The state of
        the producers whose records were deleted is put first, as in `move_log_start`. A crash
        afterwards leaves a log without segments, which the next copy continues.

        Args:
            view: a view of the leader's log.

        Returns:
            The offset to copy from next.

        Raises:
            DivergedReplicaError: the follower has records, which the leader has deleted.
        """
        here = self._follower.follower.observe()
        segments = view.live.segments
        start = segments[0].name.base_offset if segments else view.log_start_offset
        if here.live.segments or here.log_end_offset >= start:
            return here.log_end_offset
        try:
            state, _ = self._leader.snapshots.transactions(view)
        except REPLICA_ERRORS as error:
            raise LeaderFailedError(error) from error
        self._follower.snapshots.begin_log(state.before(start))
        self._follower.follower.start_at(StartMarker(start, start))
        return start
