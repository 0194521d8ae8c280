"""The append protocol: put-if-absent gives a staged segment its place at the log's end.

On storage an append is one file, whose name is the log end offset: ``<offset>.log``. It is visible
whole or not at all, so a crash leaves either no append or a complete one. The steps are in
docs/protocol.md, "Appending".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from spark_log.config import TopicConfig
from spark_log.errors import (
    AlreadyExistsError,
    CorruptRecordError,
    FencedLeaderEpochError,
    InvalidTxnStateError,
    LogEndOffsetMismatchError,
    OutOfOrderSequenceError,
    StorageError,
    UnknownLeaderEpochError,
    UnknownOutcomeError,
)
from spark_log.log.append.appender_state import AppenderState
from spark_log.log.append.derived_files import DerivedFiles, MergeExecutor
from spark_log.log.append.lost_append import check_may_retry, find_in_log
from spark_log.log.directory import LogTail, LogView, PartitionDirectory, PutResult, is_last_gone
from spark_log.log.files import SegmentName
from spark_log.log.producers import EndTransactionMarker
from spark_log.log.segment import StagedSegment
from spark_log.log.snapshot import Snapshots

_MAX_RACES = 10_000
"""Names that one append tries before it fails: far more than any number of writers causes."""


class _MarkerInLogError(Exception):
    """A marker of the segment to append is in the log: a segment of fewer markers must be made."""


class _BarrierInLogError(Exception):
    """The barrier to append is in the log."""


@dataclass(frozen=True, slots=True)
class LogAppendInfo:
    """The result of an append.

    Attributes:
        base_offset: offset of its first record.
        last_offset: offset of its last record.
        is_duplicate: whether an earlier try put it. An idempotent append may then be in another
            file than its segment's, with an id and times of its own.
    """

    base_offset: int
    last_offset: int
    is_duplicate: bool = field(default=False, compare=False)


class Appender:
    """Appends staged segments to one partition's log, for one process.

    Its `AppenderState` keeps the log's end and the producer state between two appends.

    Attributes:
        check_root: called before a put into a log without records; it raises a `StorageError` if
            the root was emptied.
    """

    def __init__(
        self,
        directory: PartitionDirectory,
        snapshots: Snapshots,
        config: TopicConfig,
        *,
        has_leader_epochs: bool = False,
        merge_executor: MergeExecutor | None = None,
    ) -> None:
        self._directory = directory
        self._config = config
        self._has_leader_epochs = has_leader_epochs
        self.check_root: Callable[[], None] = lambda: None
        self._clock = directory.clock
        self._derived = DerivedFiles(directory, snapshots, config, merge_executor)
        self._state = AppenderState(directory, snapshots, config, self._derived)

    @property
    def log_end_offset(self) -> int:
        """The last known log end offset; 0 if it is not known."""
        tail = self._state.tail
        return 0 if tail is None else tail.log_end_offset

    def end_offset_in(self, leader_epoch: int) -> int:
        """Return the last known log end offset; 0 if it is not known.

        Raises:
            FencedLeaderEpochError: the log has a newer leader epoch at this offset.
        """
        tail = self._state.tail
        if tail is None:
            return 0
        if tail.leader_epoch is not None and tail.leader_epoch > leader_epoch:
            raise self._fenced(leader_epoch, tail.leader_epoch)
        return tail.log_end_offset

    def on_listed(self, view: LogView) -> None:
        """Update the log's end from a listing, unless it is known already."""
        if self._state.tail is None:
            self._state.update_tail(view)

    def on_read(self, end: LogTail, segments: int) -> None:
        """Update the log's end from a read of a log that is never merged.

        Args:
            end: the log's end, read by a listing that is still valid.
            segments: number of segments that were read after the last known end.
        """
        self._state.on_read(end, segments)

    def observe_end_offset_in(self, leader_epoch: int) -> int:
        """List the log, and return its end offset.

        Raises:
            FencedLeaderEpochError: the log has a newer leader epoch.
            CorruptRecordError: the end of the log is damaged.
            StorageError: the storage does not answer.
        """
        self._state.load_leader_epoch(self._state.observe())
        return self.end_offset_in(leader_epoch)

    def find_again(self, segment: StagedSegment, base_offset: int) -> int | None:
        """List the log, and return the offset of a segment that this appender has put before.

        Args:
            segment: the segment that was put.
            base_offset: the offset at which it was put.

        Returns:
            The segment's offset; None if it is not in the log, because its name was covered by a
            rewritten segment.

        Raises:
            UnknownOutcomeError: it could not be determined whether the segment is in the log.
        """
        with self._lost_answers() as unknown:
            unknown.add(base_offset)
            return self._find_lost(segment, unknown)[0]

    @property
    def derived(self) -> DerivedFiles:
        """Writes the partition's derived files."""
        return self._derived

    def append_segment(
        self,
        segment: StagedSegment,
        expected_leo: int | None = None,
        *,
        is_epoch_certain: bool = False,
    ) -> LogAppendInfo:
        """Append a staged segment at the log's end.

        Args:
            segment: the segment to append.
            expected_leo: required log end offset; None appends at any offset.
            is_epoch_certain: whether the segment's leader epoch was read from the metadata just
                now. Then it may be appended to a log that was emptied, and so shows no epoch.

        Raises:
            LogEndOffsetMismatchError: the log end offset is not ``expected_leo``; nothing was
                appended.
            UnknownOutcomeError: it could not be determined whether the segment is in the log.
            OutOfOrderSequenceError: the producer's append before this one is missing; nothing was
                appended.
            InvalidProducerEpochError: a newer epoch of the producer has written; nothing was
                appended.
            InvalidTxnStateError: the producer's transaction is open, and the append does not belong
                to it; nothing was appended.
            FencedLeaderEpochError: the log has a newer leader epoch; nothing was appended.
            UnknownLeaderEpochError: the log lacks the barrier of the segment's leader epoch;
                nothing was appended.
            CorruptRecordError: the end of the log is damaged; nothing was appended.
            StorageError: nothing was appended.
        """
        with self._lost_answers() as unknown:
            return self._append(segment, expected_leo, unknown, is_epoch_certain=is_epoch_certain)

    def append_barrier(self, barrier: StagedSegment) -> None:
        """Append the barrier of a leader epoch, unless the log has it. Then the barrier is durable.

        The state from an earlier epoch is forgotten. Since then the replica may have been a
        follower, and may have been given a rewritten segment, which leaves the names that it
        covers free.

        Raises:
            FencedLeaderEpochError: the log has a newer leader epoch; nothing was appended.
            UnknownOutcomeError: it could not be determined whether the barrier is in the log.
            CorruptRecordError: the end of the log is damaged; nothing was appended.
            StorageError: nothing was appended.
        """
        self._forget_earlier_epochs(barrier.leader_epoch)
        with self._lost_answers() as unknown:
            try:
                self._append(barrier, None, unknown)
            except _BarrierInLogError:
                self._make_durable()  # as for markers

    def append_markers(
        self,
        markers: Sequence[EndTransactionMarker],
        stage: Callable[[Sequence[EndTransactionMarker]], StagedSegment],
        *,
        is_epoch_certain: bool = False,
    ) -> LogAppendInfo | None:
        """Append those transaction markers that are not in the log yet, as one segment.

        A marker is in the log if the log has the marker's epoch, or a later one, of its producer.

        Args:
            markers: the markers to append, each of a different producer.
            stage: makes a segment of some of the markers. If other processes put some of them
                meanwhile, it is called again for the rest.
            is_epoch_certain: see `append_segment`.

        Returns:
            The result of the append; None if nothing was left to append, since all markers are in
            the log, and durable. None also if this call put them, and the answer was lost.

        Raises:
            UnknownOutcomeError: it could not be determined whether the markers are in the log.
            FencedLeaderEpochError, UnknownLeaderEpochError: See `append_segment`.
            CorruptRecordError: the end of the log is damaged; nothing was appended.
            StorageError: nothing was appended.
        """
        with self._lost_answers() as unknown:
            missing = markers
            while missing:
                segment = stage(missing)
                try:
                    return self._append(segment, None, unknown, is_epoch_certain=is_epoch_certain)
                except _MarkerInLogError:
                    missing = self._state.missing_markers(missing)
                finally:
                    segment.discard()
            self._make_durable()  # another process may have put them, and died before it synced
            return None

    def _forget_earlier_epochs(self, leader_epoch: int) -> None:
        """Forget the log's end if it is of another leader epoch: the next append lists the log."""
        tail = self._state.tail
        if tail is not None and tail.leader_epoch != leader_epoch:
            self._state.reset()

    @contextmanager
    def _lost_answers(self) -> Iterator[set[int]]:
        """Yield a set for the offsets of puts whose answers are lost.

        The segment may be at one of these offsets, or appear there later. After an error the log's
        end is forgotten; if the set is not empty, the error becomes an `UnknownOutcomeError`.
        """
        unknown: set[int] = set()
        try:
            yield unknown
        except UnknownOutcomeError:
            self._state.reset()
            raise
        except (StorageError, CorruptRecordError) as error:
            self._state.reset()
            if not unknown:
                raise
            raise UnknownOutcomeError(
                f"{self._directory.path}: the answer to an append was lost, and the log could not "
                f"be searched for it: {error}",
                path=self._directory.path,
            ) from error

    def _append(
        self,
        segment: StagedSegment,
        expected_leo: int | None,
        unknown: set[int],
        *,
        is_epoch_certain: bool = False,
    ) -> LogAppendInfo:
        began_ms = self._clock.monotonic_ms()
        tail = self._state.tail
        if tail is None or not self._state.is_recent(tail):
            # The name may have been used and freed since: a put there would be void.
            tail = self._state.observe(segment)
        lost_answers = 0
        for race in range(1, _MAX_RACES + 1):
            duplicate, tail = self._check(
                segment, expected_leo, tail, is_epoch_certain=is_epoch_certain
            )
            if duplicate is not None:
                return self._acknowledge_duplicate(duplicate)
            if is_last_gone(self._directory, tail):
                # The directory was removed, or the log's last segment: then `observe` raises.
                tail = self._state.observe(segment)
                continue
            base_offset = tail.log_end_offset
            self._check_first_put(base_offset)
            # Before the put: a pause after it must not make the observation look newer than it is.
            tried_ms = self._clock.monotonic_ms()
            try:
                put = self._try_put(segment, base_offset)
            except UnknownOutcomeError as error:
                if error.is_visible:
                    raise
                put = None
            is_recent = self._state.is_recent(tail)
            if put is not None and put.is_ours and is_recent:
                unknown.add(base_offset)  # until it is known that the log is still there
                if not is_last_gone(self._directory, tail):
                    self._state.on_own_append(segment, base_offset, tail, tried_ms)
                    return self._acknowledge(segment, base_offset)
            elif put is not None and put.winner is not None and not put.is_ours and is_recent:
                unknown.discard(base_offset)  # no file was deleted: the name was never ours
                tail = self._state.advance_past(segment, put.winner, tail, race)
                continue
            unknown.add(base_offset)
            lost_answers += 1
            self._check_may_retry(lost_answers, began_ms)
            found, tail = self._find_lost(segment, unknown)
            if found is not None:
                return self._acknowledge_duplicate(_append_info(segment, found))
            if segment.needs_producers:  # the search may have been too late to find it
                self._check_may_retry(lost_answers, began_ms)
            # A segment that is not live below the log's end never will be.
            unknown -= {offset for offset in unknown if offset < tail.log_end_offset}
        raise StorageError(
            f"{self._directory.path}: {_MAX_RACES} other appends came first; nothing was appended",
            path=self._directory.path,
        )

    # --- checks before a put ---------------------------------------------------------------------

    def _check(
        self,
        segment: StagedSegment,
        expected_leo: int | None,
        tail: LogTail,
        *,
        is_epoch_certain: bool,
    ) -> tuple[LogAppendInfo | None, LogTail]:
        """Check that the segment may be put at the log's end.

        Returns:
            The offsets of the segment if it is in the log already, else None; and the log's end.

        Raises:
            LogEndOffsetMismatchError, OutOfOrderSequenceError, InvalidProducerEpochError,
                InvalidTxnStateError, FencedLeaderEpochError, UnknownLeaderEpochError: the segment
                may not be put.
            _MarkerInLogError: the segment has a marker that is in the log already.
            _BarrierInLogError: the segment is a barrier that is in the log already.
        """
        tail = self._state.load_producers(segment, tail)
        if self._has_leader_epochs:
            tail = self._state.load_leader_epoch(tail, segment)
            self._check_leader_epoch(segment, tail, is_epoch_certain=is_epoch_certain)
        if segment.markers:
            if len(self._state.missing_markers(segment.markers)) < len(segment.markers):
                raise _MarkerInLogError
            return None, tail
        duplicate = self._find_duplicate(segment)
        if duplicate is None:
            try:
                self._check_expected_leo(expected_leo, tail)
                self._state.check_producer(segment)
            except (LogEndOffsetMismatchError, OutOfOrderSequenceError, InvalidTxnStateError):
                if segment.producer is None and (expected_leo or 0) < tail.log_end_offset:
                    raise  # the log's end never goes back
                # Other processes may have appended the segments that it follows.
                tail = self._state.observe(segment)
                duplicate = self._find_duplicate(segment)
                if duplicate is None:
                    self._check_expected_leo(expected_leo, tail)
                    self._state.check_producer(segment)
        return duplicate, tail

    def _check_first_put(self, base_offset: int) -> None:
        """Check, before a put at offset 0, that the root was not emptied."""
        if not base_offset:
            self.check_root()

    def _check_leader_epoch(
        self, segment: StagedSegment, tail: LogTail, *, is_epoch_certain: bool
    ) -> None:
        """Check that the log's last batch has the segment's leader epoch.

        This prevents appends before the barrier of the segment's epoch, and after the barrier of a
        newer epoch.
        """
        epoch, stands = segment.leader_epoch, tail.leader_epoch
        if stands is not None and stands > epoch:
            raise self._fenced(epoch, stands)
        if segment.is_barrier:
            if stands == epoch:
                raise _BarrierInLogError
            return
        is_first = epoch <= 0 and (stands is not None or is_epoch_certain)
        if stands != epoch and not is_first:
            raise UnknownLeaderEpochError(
                f"{self._directory.path}: the log has no barrier of leader epoch {epoch}",
                leader_epoch=epoch,
                log_epoch=stands,
            )

    def _fenced(self, epoch: int, stands: int) -> FencedLeaderEpochError:
        return FencedLeaderEpochError(
            f"{self._directory.path}: leader epoch {epoch} is fenced; the log has epoch {stands}",
            leader_epoch=epoch,
            log_epoch=stands,
        )

    def _find_duplicate(self, segment: StagedSegment) -> LogAppendInfo | None:
        """Return the offsets of an idempotent append that is in the log already, else None."""
        if segment.producer is None:
            return None
        offset = self._state.duplicate_offset(segment)
        return None if offset is None else _append_info(segment, offset)

    def _check_expected_leo(self, expected_leo: int | None, tail: LogTail) -> None:
        if expected_leo not in (None, tail.log_end_offset):
            raise LogEndOffsetMismatchError(
                f"{self._directory.path}: the log ends at {tail.log_end_offset}, not at "
                f"{expected_leo}; read up to its end and try again",
                expected=expected_leo,
                actual=tail.log_end_offset,
            )

    # --- putting ---------------------------------------------------------------------------------

    def _try_put(self, segment: StagedSegment, base_offset: int) -> PutResult | None:
        """Put the segment at an offset, and return the segment that has this offset now.

        Returns:
            None if that segment cannot be read: its file was deleted, or is not readable.
        """
        name = SegmentName(base_offset)
        try:
            self._directory.store.put_if_absent(
                self._directory.file_path(name.log),
                segment.staged,
                sync=self._config.flush_on_append,
            )
        except AlreadyExistsError:
            try:
                winner = self._directory.open(name)
                is_ours = winner.append_id == segment.append_id
                if is_ours:
                    self._make_durable()
                return PutResult(is_ours, winner.end_offset, winner)
            except StorageError:
                return None
        return PutResult(True, base_offset + segment.record_count, None)

    def _acknowledge(self, segment: StagedSegment, base_offset: int) -> LogAppendInfo:
        """Return the offsets of a segment that was just put, after writing its derived files."""
        self._directory.on_log_end(base_offset + segment.record_count)
        if not base_offset:
            self._derived.create_witness()
        self._derived.write(segment, base_offset)
        self._forget_missing_files()
        return _append_info(segment, base_offset)

    def _forget_missing_files(self) -> None:
        """Let the next append list the log, and fail, if files are missing."""
        if self._derived.misses_files:
            self._state.doubt()

    def _acknowledge_duplicate(self, info: LogAppendInfo) -> LogAppendInfo:
        """Return the offsets of a segment that an earlier try put.

        The process of that try may have been killed before it synced the directory.

        Raises:
            UnknownOutcomeError: the segment is in the log, but a power cut may remove it.
        """
        try:
            self._make_durable()
        except StorageError as error:
            raise UnknownOutcomeError(
                f"{self._directory.path}: the records are in the log at offset "
                f"{info.base_offset}, but its directory could not be synced: {error}",
                path=self._directory.path,
                is_visible=True,
            ) from error
        return replace(info, is_duplicate=True)

    def _make_durable(self) -> None:
        """Sync the directory entries. The files were synced before they got their names."""
        if self._config.flush_on_append:
            self._directory.store.sync(self._directory.path)

    # --- lost answers ----------------------------------------------------------------------------

    def _find_lost(self, segment: StagedSegment, unknown: set[int]) -> tuple[int | None, LogTail]:
        """Search the live log for a segment whose put was not answered.

        Args:
            segment: the segment that was put.
            unknown: the offsets of its unanswered puts.

        Returns:
            The segment's offset, None if it is not in the log; and the log's end.

        Raises:
            UnknownOutcomeError: the segment has no producer, or its producer was fenced since; and
                the live segment at one of the offsets was merged or deleted.
            StorageError: the storage does not answer.
        """
        if segment.markers or segment.is_barrier:
            return None, self._state.observe(segment)  # the next check finds them
        if segment.producer is not None:
            tail = self._state.observe(segment)
            offset = self._state.duplicate_offset(segment)
            if offset is not None or not self._state.is_fenced(segment):
                return offset, tail
            # The producer state holds nothing of older epochs: only the log itself shows it.
        found, view = find_in_log(self._directory, segment, unknown)
        return found, self._state.update_tail(view)

    def _check_may_retry(self, lost_answers: int, began_ms: float) -> None:
        check_may_retry(
            lost_answers,
            self._clock.monotonic_ms() - began_ms,
            producer_id_expiration_ms=self._config.producer_id_expiration_ms,
            where=self._directory.path,
        )


def _append_info(segment: StagedSegment, base_offset: int) -> LogAppendInfo:
    return LogAppendInfo(base_offset, base_offset + segment.record_count - 1)
