"""Appends to a follower: a replica gets the segments of the leader's log, under the same names.

The put-if-absent of a segment succeeds only at the follower's log end offset, so a follower's log
is always a prefix of the log that it is copied from. Repeated puts are harmless, since all writers
of a leader epoch put the same bytes under the same name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from spark_log.config import TopicConfig
from spark_log.errors import (
    AlreadyExistsError,
    NotFoundError,
    SparkLogError,
    StorageTimeoutError,
    StorageUnavailableError,
    UnknownOutcomeError,
)
from spark_log.log.append.derived_files import DerivedFiles
from spark_log.log.directory import LogEnd, LogView, PartitionDirectory, is_last_gone
from spark_log.log.files import SegmentName, StartMarker
from spark_log.log.segment import StagedSegment
from spark_log.storage import StagedFile, is_listing_valid

_MAX_TRIES: Final = 10


class DivergedReplicaError(SparkLogError):
    """The follower has other records than the leader at an offset.

    Either the writer's partition state is old, or the replica once led the partition and has
    records that were never acknowledged.

    Attributes:
        offset: the first offset known to differ; -1 if it is not known.
        is_ahead: whether the follower's log ends after the leader's.
    """

    def __init__(self, message: str, *, offset: int = -1, is_ahead: bool = False) -> None:
        super().__init__(message)
        self.offset = offset
        self.is_ahead = is_ahead


@dataclass(frozen=True, slots=True)
class CopiedSegment:
    """A segment of the leader's log, to be put into a follower's log.

    Attributes:
        name: the file's name: a plain name, or the name of a rewritten segment.
        end_offset: the offset after the segment's last offset.
        append_id: random id of the file.
        leader_epoch: the leader epoch of the segment's last batch.
        data: the file's bytes.
    """

    name: SegmentName
    end_offset: int
    append_id: str
    leader_epoch: int
    data: pa.Buffer


class FollowerAppender:
    """Appends copies of the leader's segments to one follower, for one process.

    Attributes:
        check: called with each listing of the follower's log, before a segment is put at its end;
            it raises an error if the log is not a prefix of the leader's. `ReplicaFetcher` sets it:
            a replica is opened before it is known which leader it follows, and outlives it.
    """

    def __init__(
        self,
        directory: PartitionDirectory,
        config: TopicConfig,
        derived: DerivedFiles,
    ) -> None:
        self._directory = directory
        self._config = config
        self._derived = derived
        self._end: LogEnd | None = None
        self.check: Callable[[LogView], None] = lambda view: None

    def reset(self) -> None:
        """Forget the follower's log end offset: the next call lists its directory."""
        self._end = None

    @property
    def known_end_offset(self) -> int | None:
        """The log end offset if it is known without a request, and recent; else None."""
        end = self._end
        return end.log_end_offset if end is not None and self._is_recent(end) else None

    def ends_at(self, offset: int) -> bool:
        """Return whether the log still ends at an offset, by a request for the next segment's name.

        Returns:
            False also if only a new listing could tell.

        Raises:
            CorruptRecordError: the next segment is damaged.
            StorageError: the storage does not answer.
        """
        if self.known_end_offset != offset:
            return False
        try:
            self._directory.open(SegmentName(offset))
        except NotFoundError:
            return self.known_end_offset == offset  # the listing is valid still
        return False

    def observe(self) -> LogView:
        """List the follower's log, and check it.

        Raises:
            DivergedReplicaError: the log is not a prefix of the leader's.
            CorruptRecordError: the log is damaged, or files are missing.
            StorageError: the storage does not answer.
        """
        self.reset()
        view = self._directory.observe()
        try:
            self.check(view)
        except DivergedReplicaError:
            # Since the listing, others may have copied further segments, and the leader's log start
            # offset may have moved past the listed end.
            if self._directory.observe().log_end_offset == view.log_end_offset:
                raise
            return self.observe()
        self._derived.on_listed(view)
        segments = view.live.segments
        last = segments[-1].name if segments else None
        self._end = LogEnd(view.log_end_offset, view.observed_ms, last, view.leader_epoch)
        return view

    def start_at(self, marker: StartMarker) -> None:
        """Begin the follower's log at the leader's log start offset, which is after its own end.

        Args:
            marker: the marker of the leader's log start offset.

        Raises:
            UnknownOutcomeError: it could not be determined whether the start was moved.
            StorageError: the start was not moved.
        """
        self.reset()
        path = self._directory.file_path(marker.name)
        try:
            self._directory.store.put_if_absent(path, b"", sync=self._config.flush_on_append)
        except AlreadyExistsError:
            self._make_durable()
        self._derived.create_existence_marker()

    def append(
        self,
        segment: StagedSegment,
        base_offset: int,
        data: pa.Buffer,
        staged: StagedFile | None = None,
    ) -> None:
        """Append the segment that this process has just put into the leader's log.

        Args:
            segment: the segment that was put.
            base_offset: the segment's first offset; the follower's log has all offsets before it.
            data: the bytes of the segment's file.
            staged: a copy of the file that is staged on the follower's root; None without one.

        Raises:
            DivergedReplicaError: the follower has other records at this offset.
            CorruptRecordError: the follower's log is damaged.
            UnknownOutcomeError: it could not be determined whether the segment is in the log.
            StorageError: the storage does not answer.
        """
        copied = CopiedSegment(
            SegmentName(base_offset),
            base_offset + segment.record_count,
            segment.append_id,
            segment.leader_epoch,
            data,
        )
        before = self._end
        tried_ms = self._directory.clock.monotonic_ms()
        if self.copy(copied, staged):
            observed_ms = before.observed_ms if before is not None else tried_ms
            self._derived.on_own_append(segment, base_offset, observed_ms)
            if self._derived.misses_files:
                self.reset()

    def copy(self, segment: CopiedSegment, staged: StagedFile | None = None) -> bool:
        """Put a segment of the leader's log at the follower's log end.

        Args:
            segment: a segment that contains the follower's log end offset, or lies before it.
            staged: a copy of its file that is staged on the follower's root; None without one.

        Returns:
            Whether this call put the segment; False if the follower had it already.

        Raises:
            DivergedReplicaError: the follower has other records at this offset.
            CorruptRecordError: the follower's log is damaged, or ends before the segment.
            UnknownOutcomeError: it could not be determined whether the segment is in the log.
            StorageError: the storage does not answer.
        """
        try:
            return self._copy(segment, staged)
        except BaseException:
            self.reset()
            raise

    def _copy(self, segment: CopiedSegment, staged: StagedFile | None) -> bool:
        lost: UnknownOutcomeError | None = None
        for _ in range(_MAX_TRIES):
            end = self._end_before(segment)
            if end.log_end_offset >= segment.end_offset:
                self._check_holds(segment)
                return False
            if is_last_gone(self._directory, end):
                self.observe()  # raises if the directory was removed
                continue
            tried_ms = self._directory.clock.monotonic_ms()
            is_new = True
            try:
                self._directory.store.put_if_absent(
                    self._directory.file_path(segment.name.file_name),
                    staged or segment.data,
                    sync=self._config.flush_on_append,
                )
            except AlreadyExistsError:
                is_new = False
            except UnknownOutcomeError as error:
                lost = error
                self.reset()
                continue
            if not is_new and not self._is_same(segment):
                self.reset()  # the follower's segments were rewritten meanwhile
                continue
            self._check_is_not_gone(end)
            if not self._is_recent(end):
                self.reset()  # the name may have been freed: list the log to see if the put counts
                continue
            if not is_new:
                self._make_durable()
            self._end = LogEnd(segment.end_offset, tried_ms, segment.name, segment.leader_epoch)
            self._directory.on_log_end(segment.end_offset)
            if not segment.name.base_offset:
                self._derived.create_existence_marker()
            return is_new
        raise lost or StorageTimeoutError(
            f"{self._directory.path}: the log changed during each of {_MAX_TRIES} tries to copy a "
            f"segment",
            path=self._directory.path,
        )

    def _end_before(self, segment: CopiedSegment) -> LogEnd:
        """Return the end of the follower's log, which has the segment or can be continued by it.

        Raises:
            DivergedReplicaError: the log ends within the segment. A copy of the leader's log never
                does, since a segment is copied whole.
            CorruptRecordError: the log ends before the segment.
            StorageError: the storage does not answer.
        """
        name, end = segment.name, self._end
        if end is None or not self._is_recent(end) or end.log_end_offset < name.base_offset:
            self.observe()
            end = self._end
            assert end is not None
        end_offset = end.log_end_offset
        if end_offset < name.base_offset:
            raise self._directory.truncated(end_offset, name.base_offset)
        if name.last_offset is None and name.base_offset < end_offset < segment.end_offset:
            raise self._diverged(segment)
        return end

    def _check_is_not_gone(self, end: LogEnd) -> None:
        """Check after a put that the put has not re-created a directory that was removed.

        Raises:
            StorageUnavailableError: the root was removed.
        """
        if is_last_gone(self._directory, end):
            raise StorageUnavailableError(
                f"{self._directory.url} was removed during a put", path=self._directory.path
            )

    def _check_holds(self, segment: CopiedSegment) -> None:
        """Check that a follower whose log ends after this segment has the segment.

        A segment that was rewritten since cannot be compared. Then the comparison by which this
        process first listed the log has to do (`log.chain`).

        Raises:
            DivergedReplicaError: the follower has other records at the segment's offset.
        """
        if segment.name.last_offset is not None:
            return
        try:
            here = self._directory.open(segment.name)
        except NotFoundError:
            return
        if here.append_id != segment.append_id:
            raise self._diverged(segment)

    def _is_same(self, segment: CopiedSegment) -> bool:
        """Return whether the file of this name is a copy of the segment.

        Returns:
            False if the file does not exist any more, or if the follower has rewritten its segments
            by itself.

        Raises:
            DivergedReplicaError: the follower has other records at the segment's offset.
        """
        try:
            is_same = self._directory.open(segment.name).append_id == segment.append_id
        except NotFoundError:
            return False
        if not is_same and segment.name.last_offset is None:
            raise self._diverged(segment)
        return is_same

    def _diverged(self, segment: CopiedSegment) -> DivergedReplicaError:
        return DivergedReplicaError(
            f"{self._directory.url}: offset {segment.name.base_offset} has other records than the "
            f"leader's log",
            offset=segment.name.base_offset,
        )

    def _make_durable(self) -> None:
        if self._config.flush_on_append:
            self._directory.store.sync(self._directory.path)

    def _is_recent(self, end: LogEnd) -> bool:
        clock, valid_ms = self._directory.clock, self._directory.valid_ms
        return is_listing_valid(clock, end.observed_ms, valid_ms)
