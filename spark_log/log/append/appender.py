"""The append protocol: put-if-absent gives a staged segment its place at the log's end.

On storage an append is one file, whose name is the log end offset: ``<offset>.log``. It is visible
whole or not at all, so a crash leaves either no append or a complete one (protocol A1, A2, A3, A4,
A5).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import ClassVar

from spark_log.config import TopicConfig
from spark_log.errors import (
    AlreadyExistsError,
    SparkLogError,
    StorageError,
    UnknownOutcomeError,
)
from spark_log.log.append.appender_state import (
    AppenderState,
    BatchesDecidedError,
    ControlRecordInLogError,
)
from spark_log.log.append.derived_files import DerivedFiles
from spark_log.log.append.merge_task import MergeExecutor
from spark_log.log.append.unsettled_puts import UnsettledPuts
from spark_log.log.directory import LogEnd, LogView, PartitionDirectory, is_last_gone
from spark_log.log.files import SegmentName
from spark_log.log.segment import (
    AppendedSegment,
    BatchAppend,
    StagedSegment,
    consecutive_batches,
)
from spark_log.log.snapshot import Snapshots
from spark_log.record import NO_LEADER_EPOCH, NO_TIMESTAMP, BatchHeader, EndTransactionMarker

_log = logging.getLogger(__name__)

_MAX_RACES = 10_000
"""Names that one append tries before it fails: far more than any number of writers causes."""


@dataclass(frozen=True, slots=True)
class LogAppendInfo:
    """The result of an append.

    Attributes:
        base_offset: offset of its first record.
        last_offset: offset of its last record.
        is_duplicate: whether an earlier try put it. An idempotent append may then be in another
            file than its segment's, with an id and times of its own.
        append_time_us: the timestamp of all records, microseconds since the epoch, if the topic has
            ``LogAppendTime`` and `PartitionLog.append_batches` put them; else -1.
        leader_epoch: the leader epoch of the batch, if `PartitionLog.append_batches` put it; else
            -1.
    """

    base_offset: int
    last_offset: int
    is_duplicate: bool = field(default=False, compare=False)
    append_time_us: int = field(default=NO_TIMESTAMP, compare=False)
    leader_epoch: int = field(default=NO_LEADER_EPOCH, compare=False)


@dataclass(frozen=True, slots=True)
class AppendedBatches:
    """The result of an append of several producers' batches.

    Attributes:
        results: the result of each batch: its offsets; or the error that refused it; or None if it
            waits for another append, because it does not follow its producer's batch of this one.
        put: the segment that was put, and its offsets; None if none had to be put.
    """

    results: Sequence[LogAppendInfo | SparkLogError | None]
    put: tuple[StagedSegment, LogAppendInfo] | None = None


class PutOutcome(Enum):
    """The outcome of a put at the log's end."""

    OURS = auto()
    """The segment is in the log at this offset, and stays there."""
    LOST_RACE = auto()
    """Another appender's segment has this offset. Ours is not there, and never will be."""
    UNKNOWN = auto()
    """The segment may be in the log: the log has to be listed. The answer was lost, or came so late
    that the put may not count, or the log's last segment was removed meanwhile."""


class Appender:
    """Appends staged segments to one partition's log, for one process.

    Its `AppenderState` keeps the log's end and the producer state between two appends.

    Attributes:
        derived: writes the partition's derived files.
    """

    state_class: ClassVar[type[AppenderState]] = AppenderState
    """The class that keeps the log's end. A subclass may have another one."""

    races_per_listing: ClassVar[int] = 64
    """Lost races after which an append lists the log to find its end. Opening 64 segments one by
    one costs about as much as listing several thousand files."""

    def __init__(
        self,
        directory: PartitionDirectory,
        snapshots: Snapshots,
        config: TopicConfig,
        *,
        has_leader_epochs: bool = False,
        merge_executor: MergeExecutor | None = None,
        check_root: Callable[[], None] | None = None,
    ) -> None:
        """Access no storage yet.

        Args:
            directory: the partition's directory.
            snapshots: the snapshots of the log's state.
            config: the topic's settings.
            has_leader_epochs: whether appends are checked against the leader epoch of the log.
            merge_executor: runner of tail merges on another thread; None merges in the append.
            check_root: called before a put into a log without records; it raises a `StorageError`
                if the root was emptied. None checks nothing.
        """
        self._check_root = check_root
        self.derived = DerivedFiles(directory, snapshots, config, merge_executor)
        self._has_rivals = False
        """Whether the last append to a local file system met segments of other appenders."""
        self._directory = directory
        self._config = config
        self._clock = directory.clock
        self._state = self.state_class(
            directory, snapshots, config, self.derived, has_leader_epochs=has_leader_epochs
        )

    # --- the log's end ---------------------------------------------------------------------------

    @property
    def log_end_offset(self) -> int:
        """The last known log end offset; 0 if it is not known."""
        return self._state.log_end_offset

    @property
    def last_stable_offset(self) -> int | None:
        """The last stable offset of the known log end; None if it is not known."""
        return self._state.last_stable_offset

    def end_offset_in(self, leader_epoch: int) -> int:
        """Return the last known log end offset; 0 if it is not known.

        Raises:
            FencedLeaderEpochError: the log has a newer leader epoch at this offset.
        """
        return self._state.end_offset_in(leader_epoch)

    def observe_end_offset_in(self, leader_epoch: int) -> int:
        """List the log, and return its end offset.

        Raises:
            FencedLeaderEpochError: the log has a newer leader epoch.
            CorruptRecordError: the end of the log is damaged.
            StorageError: the storage does not answer.
        """
        self._state.observe()
        self._state.load_leader_epoch()
        return self._state.end_offset_in(leader_epoch)

    def on_listed(self, view: LogView) -> None:
        """Update the log's end from a listing, unless it is known already."""
        if self._state.end is None:
            self._state.on_listed(view)

    def on_read(self, end: LogEnd, segments: int) -> None:
        """Update the log's end from a read of a log that is never merged.

        Args:
            end: the log's end, read by a listing that is still valid.
            segments: number of segments that were read after the last known end.
        """
        self._state.on_read(end, segments)

    @property
    def merge_limit_offset(self) -> float:
        """The offset after which no segment that ends there is merged; infinite without a limit."""
        return self.derived.merge_limit_offset

    @merge_limit_offset.setter
    def merge_limit_offset(self, offset: float) -> None:
        self.derived.merge_limit_offset = offset

    # --- appends ---------------------------------------------------------------------------------

    def append_segment(
        self,
        segment: StagedSegment,
        expected_end_offset: int | None = None,
        *,
        is_epoch_certain: bool = False,
    ) -> LogAppendInfo:
        """Append a staged segment at the log's end.

        Args:
            segment: the segment to append.
            expected_end_offset: required log end offset; None appends at any offset.
            is_epoch_certain: whether the segment's leader epoch was read from the metadata just
                now. Then it may be appended to a log that was emptied, and so shows no epoch.

        Raises:
            LogEndOffsetMismatchError: the log end offset is another one; nothing was appended.
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
        with self._unsettled_puts() as puts:
            return self._append(
                segment, expected_end_offset, puts, is_epoch_certain=is_epoch_certain
            )

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
        with self._unsettled_puts() as puts:
            try:
                self._append(barrier, None, puts)
            except ControlRecordInLogError:
                self._make_durable()  # another process may have put it, and died before it synced

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
        with self._unsettled_puts() as puts:
            missing = markers
            while missing:
                segment = stage(missing)
                try:
                    return self._append(segment, None, puts, is_epoch_certain=is_epoch_certain)
                except ControlRecordInLogError:
                    missing = self._state.missing_markers(missing)
                finally:
                    segment.discard()
            self._make_durable()  # another process may have put them, and died before it synced
            return None

    def append_batches(
        self,
        batches: Sequence[BatchAppend],
        stage: Callable[[Sequence[BatchAppend]], StagedSegment],
        *,
        is_epoch_certain: bool = False,
    ) -> AppendedBatches:
        """Append batches of several producers as one segment, by one put.

        Each batch is decided alone, by the producer state of all records before the put. A batch
        that is in the log gets the offsets that it has there, and a batch that may not be appended
        gets its error. Then a segment of the other batches is staged and put. If other processes
        append some of them meanwhile, those are left out of a further segment.

        The segment that was put before is then in the log below its end, or never will be: batches
        are decided differently only after the log's end has moved. So the bytes of a batch are not
        put in two segments.

        Args:
            batches: the batches, in the order in which they get offsets.
            stage: makes a segment of some of the batches. The caller discards the segments.
            is_epoch_certain: see `append_segment`.

        Returns:
            The results. Batches that wait are passed to another call (`consecutive_batches`).

        Raises:
            UnknownOutcomeError: it could not be determined whether the batches that are not decided
                are in the log. No batch is decided for the caller.
            FencedLeaderEpochError, UnknownLeaderEpochError: See `append_segment`.
            CorruptRecordError: the end of the log is damaged; nothing was appended.
            StorageError: nothing was appended.
        """
        results: list[LogAppendInfo | SparkLogError | None] = [None] * len(batches)
        with self._unsettled_puts() as puts:
            while chosen := consecutive_batches(batches, _waiting(results)):
                segment = stage([batches[index] for index in chosen])
                try:
                    info = self._append(segment, None, puts, is_epoch_certain=is_epoch_certain)
                except BatchesDecidedError as error:
                    self._on_decided(batches, chosen, error.decisions, results)
                    continue
                base_offset = info.base_offset
                for index, header in zip(chosen, segment.headers, strict=True):
                    results[index] = LogAppendInfo(
                        base_offset + header.base_offset_delta,
                        base_offset + header.last_offset_delta,
                        info.is_duplicate,
                        _append_time_us(header),
                        header.leader_epoch,
                    )
                return AppendedBatches(results, (segment, info))
        return AppendedBatches(results)

    def _on_decided(
        self,
        batches: Sequence[BatchAppend],
        chosen: Sequence[int],
        decisions: Mapping[int, int | SparkLogError],
        results: list[LogAppendInfo | SparkLogError | None],
    ) -> None:
        """Record the results of batches that are in the log already, or are refused.

        Raises:
            UnknownOutcomeError: a batch is in the log, but could not be made durable.
        """
        found = [decided for decided in decisions.values() if isinstance(decided, int)]
        if found:
            self._make_found_durable(min(found))
        for number, decided in decisions.items():
            index = chosen[number]
            if isinstance(decided, int):
                last_offset = decided + batches[index].record_count - 1
                results[index] = LogAppendInfo(decided, last_offset, is_duplicate=True)
            else:
                results[index] = decided
        _log.debug(
            "%s: %d of %d batches of an append are in the log or refused: %s",
            self._directory.path,
            len(decisions),
            len(chosen),
            decisions,
        )

    def find_again(self, segment: StagedSegment, base_offset: int) -> int | None:
        """List the log, and return the offset of a segment that this appender has put before.

        Args:
            segment: the segment that was put.
            base_offset: the offset at which it was put.

        Returns:
            The segment's offset; None if it is not in the log, because its name was covered by a
            rewritten segment. None also if it has the batches of several producers, and the
            producer state shows each of them: `append_batches` then decides them again.

        Raises:
            UnknownOutcomeError: it could not be determined whether the segment is in the log.
        """
        with self._unsettled_puts() as puts:
            puts.add(base_offset)
            return puts.search_log(segment)

    def _unsettled_puts(self) -> UnsettledPuts:
        return UnsettledPuts(self._directory, self._config, self._state)

    def _forget_earlier_epochs(self, leader_epoch: int) -> None:
        """Forget the log's end if it is of another leader epoch: the next append lists the log."""
        end = self._state.end
        if end is not None and end.leader_epoch != leader_epoch:
            self._state.reset()

    # --- the protocol ----------------------------------------------------------------------------

    def _append(
        self,
        segment: StagedSegment,
        expected_end_offset: int | None,
        puts: UnsettledPuts,
        *,
        is_epoch_certain: bool = False,
    ) -> LogAppendInfo:
        state = self._state
        if not state.is_recent:
            # Since then the name may have been used and deleted: a put there may not count.
            _log.debug("%s: list the log to find its end", self._directory.path)
            state.observe(segment)
        passed = 0
        for race in range(1, _MAX_RACES + 1):
            if self._has_rivals:
                passed += self._pass_others(segment)
            duplicate = state.check(segment, expected_end_offset, is_epoch_certain=is_epoch_certain)
            if duplicate is not None:
                return self._acknowledge_duplicate(segment, duplicate)
            end = state.known_end()
            if is_last_gone(self._directory, end):
                # The directory was removed, or the log's last segment: then `observe` raises.
                state.observe(segment)
                continue
            match self._try_put(segment, end, puts):
                case PutOutcome.OURS:
                    self._has_rivals = self._has_rivals and (race > 1 or passed > 0)
                    return self._acknowledge(segment, end)
                case PutOutcome.LOST_RACE:
                    self._has_rivals = self._directory.store.is_local
                    if not race % self.races_per_listing:
                        state.catch_up(segment)
                case PutOutcome.UNKNOWN:
                    found = puts.resolve(segment, end.log_end_offset)
                    if found is not None:
                        return self._acknowledge_duplicate(segment, found)
        raise StorageError(
            f"{self._directory.path}: {_MAX_RACES} other appends came first; nothing was appended. "
            f"Try again",
            path=self._directory.path,
        )

    def _pass_others(self, segment: StagedSegment) -> int:
        """Move the known end past what others have appended, before a put that would find it.

        Returns:
            The number of segments that were passed one by one.

        Raises:
            CorruptRecordError: the end of the log is damaged.
            StorageError: the storage does not answer.
        """
        passed = self._state.pass_others(segment, self.races_per_listing)
        if passed == self.races_per_listing:
            self._state.catch_up(segment)
        return passed

    def _try_put(self, segment: StagedSegment, end: LogEnd, puts: UnsettledPuts) -> PutOutcome:
        """Put the segment at the log's end, and move the known end past the segment at it.

        Args:
            segment: the segment to append.
            end: the known end of the log.
            puts: the puts of this append that are not settled. The put is added to them if its
                answer arrived; if the answer was lost, `UnsettledPuts.resolve` adds it.

        Returns:
            The outcome of the put. The known end is moved unless the outcome is `UNKNOWN`.

        Raises:
            UnknownOutcomeError: the segment is in the log, but may not be durable.
            CorruptRecordError: the segment that has the offset is damaged.
            StorageError: nothing was put.
        """
        state, base_offset = self._state, end.log_end_offset
        self._check_first_put(base_offset)
        # Before the put: a pause after it must not make the observation look newer than it is.
        tried_ms = self._clock.monotonic_ms()
        try:
            winner = self._put(segment, base_offset)
        except UnknownOutcomeError as error:
            if error.is_visible:
                raise
            return PutOutcome.UNKNOWN
        if not state.is_recent:
            # The log's segments may have been merged and deleted meanwhile, and their names freed:
            # then the put, or the winner, is no part of the log.
            _log.debug(
                "%s: the put at offset %d took longer than the log's listing is valid",
                self._directory.path,
                base_offset,
            )
            return PutOutcome.UNKNOWN
        if winner is not None and not self._is_same(winner, segment):
            puts.remove(base_offset)  # no file was deleted: this name was the winner's all the time
            state.on_append_of_other(winner)
            _log.debug(
                "%s: lost the race for offset %d to a segment that ends at %d",
                self._directory.path,
                base_offset,
                winner.end_offset,
            )
            return PutOutcome.LOST_RACE
        puts.add(base_offset)  # until the next check: the directory may have been removed
        if is_last_gone(self._directory, end):
            return PutOutcome.UNKNOWN
        state.on_own_append(segment, base_offset, tried_ms)
        return PutOutcome.OURS

    def _put(self, segment: StagedSegment, base_offset: int) -> AppendedSegment | None:
        """Put the segment at an offset.

        Returns:
            None if it was put; else the segment that had this offset before. That may be this
            segment, put by an earlier try; it is durable then.

        Raises:
            UnknownOutcomeError: the answer was lost. Or the offset is taken, and the segment that
                has it cannot be read (it was deleted, for example), or is this one and cannot be
                made durable.
            CorruptRecordError: the segment that had the offset is damaged.
            StorageError: nothing was put.
        """
        name = SegmentName(base_offset)
        try:
            self._directory.store.put_if_absent(
                self._directory.file_path(name.file_name),
                segment.staged,
                sync=self._config.flush_on_append,
            )
        except AlreadyExistsError:
            try:
                winner = self._state.open_appended(name)
                if self._is_same(winner, segment):
                    self._make_durable()
            except StorageError as error:
                raise UnknownOutcomeError(str(error), path=self._directory.path) from error
            return winner
        return None

    @staticmethod
    def _is_same(winner: AppendedSegment, segment: StagedSegment) -> bool:
        return winner.append_id == segment.append_id

    def _check_first_put(self, base_offset: int) -> None:
        """Check, before a put at offset 0, that the root was not emptied."""
        if not base_offset and self._check_root is not None:
            self._check_root()

    def _acknowledge(self, segment: StagedSegment, end: LogEnd) -> LogAppendInfo:
        """Return the offsets of a segment that was put, after writing its derived files.

        Args:
            segment: the segment that was put.
            end: the log's end before it.
        """
        base_offset = end.log_end_offset
        info = _append_info(segment, base_offset)
        _log.debug(
            "%s: put offsets %d to %d in leader epoch %d",
            self._directory.path,
            base_offset,
            info.last_offset,
            segment.leader_epoch,
        )
        if not base_offset:
            self.derived.create_existence_marker()
        self.derived.on_own_append(segment, base_offset, end.observed_ms)
        self._relist_if_files_are_missing()
        return info

    def _relist_if_files_are_missing(self) -> None:
        """Let the next append list the log, and fail, if files of the log are missing."""
        if self.derived.misses_files:
            self._state.doubt()

    def _acknowledge_duplicate(self, segment: StagedSegment, base_offset: int) -> LogAppendInfo:
        """Return the offsets of a segment that an earlier try put.

        The process of that try may have been killed before it synced the directory.

        Raises:
            UnknownOutcomeError: the segment is in the log, but a power cut may remove it.
        """
        self._make_found_durable(base_offset)
        _log.debug("%s: offset %d has this append already", self._directory.path, base_offset)
        return _append_info(segment, base_offset, is_duplicate=True)

    def _make_found_durable(self, base_offset: int) -> None:
        """Make records durable that an earlier try, perhaps of another process, has put.

        Raises:
            UnknownOutcomeError: they are in the log, but a power cut may remove them.
        """
        try:
            self._make_durable()
        except StorageError as error:
            raise UnknownOutcomeError(
                f"{self._directory.path}: the records are in the log at offset {base_offset}, but "
                f"its directory could not be synced: {error}",
                path=self._directory.path,
                is_visible=True,
            ) from error

    def _make_durable(self) -> None:
        """Sync the directory entries. The files were synced before they got their names."""
        if self._config.flush_on_append:
            self._directory.store.sync(self._directory.path)


def _append_info(
    segment: StagedSegment, base_offset: int, *, is_duplicate: bool = False
) -> LogAppendInfo:
    return LogAppendInfo(base_offset, base_offset + segment.record_count - 1, is_duplicate)


def _waiting(results: Sequence[object]) -> Iterator[int]:
    """Yield the indexes of batches without a result."""
    return (index for index, result in enumerate(results) if result is None)


def _append_time_us(header: BatchHeader) -> int:
    return header.max_timestamp_us if header.timestamp_type else NO_TIMESTAMP
