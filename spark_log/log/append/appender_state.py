"""The end of a log as its appender knows it, and the checks of what may be put there."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from spark_log.config import TopicConfig
from spark_log.errors import (
    FencedLeaderEpochError,
    InvalidTxnStateError,
    LogEndOffsetMismatchError,
    NotFoundError,
    OutOfOrderSequenceError,
    SparkLogError,
    StorageError,
    UnknownLeaderEpochError,
)
from spark_log.log.append.derived_files import DerivedFiles
from spark_log.log.directory import LogEnd, LogView, PartitionDirectory
from spark_log.log.files import SegmentName
from spark_log.log.producers import NOT_LISTED_US, ProducerState
from spark_log.log.segment import AppendedSegment, SegmentSummary, StagedSegment
from spark_log.log.snapshot import Snapshots
from spark_log.record import EndTransactionMarker, ProducerAppend
from spark_log.storage import is_listing_valid

_log = logging.getLogger(__name__)

OFTEN_SHORT_OF = (OutOfOrderSequenceError, InvalidTxnStateError)
"""Refusals that may only mean that the known state is short of what other processes appended."""


class ControlRecordInLogError(Exception):
    """A marker of the segment to append, or the barrier that it is, is in the log already."""


class BatchesDecidedError(Exception):
    """Batches of the segment to append are in the log already, or may not be put.

    Attributes:
        decisions: by index of a batch in the segment: its offset in the log, or the error that
            refuses it.
    """

    def __init__(self, decisions: Mapping[int, int | SparkLogError]) -> None:
        super().__init__(decisions)
        self.decisions = decisions


class AppenderState:
    """The end of one log as its appender knows it: the offset, the leader epoch, the producers.

    All of it can be lost at any time: a listing restores it. Each segment that moves the log's end
    is passed to `DerivedFiles`, and to the snapshots' summaries.

    Attributes:
        end: the last known end of the log, where the next segment is put; None if the log has to be
            listed.
    """

    def __init__(
        self,
        directory: PartitionDirectory,
        snapshots: Snapshots,
        config: TopicConfig,
        derived: DerivedFiles,
        *,
        has_leader_epochs: bool,
    ) -> None:
        self.end: LogEnd | None = None
        self._directory = directory
        self._snapshots = snapshots
        self._config = config
        self._derived = derived
        self._has_leader_epochs = has_leader_epochs
        self._clock = directory.clock
        self._producers: ProducerState | None = None
        """The producer state at the end, once an idempotent append has needed it."""
        self._storage_us = 0
        """The newest last-modified time that a listing showed."""

    @property
    def log_end_offset(self) -> int:
        """The last known log end offset; 0 if it is not known."""
        return 0 if self.end is None else self.end.log_end_offset

    @property
    def last_stable_offset(self) -> int | None:
        """The offset before which every transaction has its marker; None if it is not known.

        It belongs to `log_end_offset`. It is known while appends of producers need their state.
        """
        producers = self._producers
        if producers is None or producers.offset != self.log_end_offset:
            return None
        transactions = producers.transactions
        return transactions.last_stable_offset if transactions.is_complete else None

    @property
    def is_recent(self) -> bool:
        """Whether no file of the log, as it was observed, can have been deleted since.

        Only then a put at the end counts (the late-success rule).
        """
        end = self.end
        return end is not None and is_listing_valid(
            self._clock, end.observed_ms, self._directory.valid_ms
        )

    def known_end(self) -> LogEnd:
        """Return the end, which must be known."""
        assert self.end is not None
        return self.end

    def reset(self) -> None:
        """Forget the log's end and its producers."""
        self.end = self._producers = None

    def doubt(self) -> None:
        """Force a listing before the next append; keep the known log end offset."""
        if self.end is not None:
            self.end = replace(self.end, observed_ms=-math.inf)

    # --- may a segment be put? -------------------------------------------------------------------

    def check(
        self, segment: StagedSegment, expected_end_offset: int | None, *, is_epoch_certain: bool
    ) -> int | None:
        """Check that a segment may be put at the log's end; list the log where the state is short.

        Args:
            segment: the segment to append.
            expected_end_offset: required log end offset; None for any offset.
            is_epoch_certain: whether the segment's leader epoch was read from the metadata just
                now. Then it may be appended to a log that was emptied, and so shows no epoch.

        Returns:
            The segment's offset if it is in the log already; None if it may be put.

        Raises:
            LogEndOffsetMismatchError, OutOfOrderSequenceError, InvalidProducerEpochError,
                InvalidTxnStateError, FencedLeaderEpochError, UnknownLeaderEpochError: the segment
                may not be put.
            ControlRecordInLogError: the segment has a marker, or is a barrier, that is in the log.
            BatchesDecidedError: the segment has a batch that is in the log, or that may not be put.
        """
        if segment.needs_producers and (self._producers is None or self._producers.is_overgrown):
            self.observe(segment)
        if self._has_leader_epochs:
            self.load_leader_epoch(segment)
            self._check_leader_epoch(segment, is_epoch_certain=is_epoch_certain)
        if segment.markers:
            if len(self.missing_markers(segment.markers)) < len(segment.markers):
                raise ControlRecordInLogError
            return None
        if segment.producers:
            self._check_batches(segment, is_epoch_certain=is_epoch_certain)
            return None
        duplicate = self.duplicate_offset(segment)
        if duplicate is not None:
            return duplicate
        try:
            self._check_order(segment, expected_end_offset)
        except (LogEndOffsetMismatchError, OutOfOrderSequenceError, InvalidTxnStateError):
            if segment.producer is None and (expected_end_offset or 0) < self.log_end_offset:
                raise  # the log's end never goes back
            # Other processes may have appended the segments that it follows.
            self.observe_in_epoch(segment, is_epoch_certain=is_epoch_certain)
            duplicate = self.duplicate_offset(segment)
            if duplicate is None:
                self._check_order(segment, expected_end_offset)
        return duplicate

    def observe_in_epoch(self, segment: StagedSegment, *, is_epoch_certain: bool) -> None:
        """List the log, and check again that it has no newer leader epoch than the segment."""
        self.observe(segment)
        if self._has_leader_epochs:
            self.load_leader_epoch(segment)
            self._check_leader_epoch(segment, is_epoch_certain=is_epoch_certain)

    def end_offset_in(self, leader_epoch: int) -> int:
        """Return the last known log end offset; 0 if it is not known.

        Raises:
            FencedLeaderEpochError: the log has a newer leader epoch at this offset.
        """
        if self.end is not None and self.end.leader_epoch is not None:
            self._check_not_fenced(leader_epoch, self.end.leader_epoch)
        return self.log_end_offset

    def _check_leader_epoch(self, segment: StagedSegment, *, is_epoch_certain: bool) -> None:
        """Check that the log's last batch has the segment's leader epoch.

        This prevents appends before the barrier of the segment's epoch, and after the barrier of a
        newer epoch.
        """
        epoch, log_epoch = segment.leader_epoch, self.known_end().leader_epoch
        if log_epoch is not None:
            self._check_not_fenced(epoch, log_epoch)
        if segment.is_barrier:
            if log_epoch == epoch:
                raise ControlRecordInLogError
            return
        is_first = epoch <= 0 and (log_epoch is not None or is_epoch_certain)
        if log_epoch != epoch and not is_first:
            raise UnknownLeaderEpochError(
                f"{self._directory.path}: the log has no barrier of leader epoch {epoch}",
                leader_epoch=epoch,
                log_epoch=log_epoch,
            )

    def _check_not_fenced(self, epoch: int, log_epoch: int) -> None:
        if log_epoch > epoch:
            raise FencedLeaderEpochError(
                f"{self._directory.path}: leader epoch {epoch} is fenced; the log has epoch "
                f"{log_epoch}",
                leader_epoch=epoch,
                log_epoch=log_epoch,
            )

    def _check_order(self, segment: StagedSegment, expected_end_offset: int | None) -> None:
        """Check that the segment follows what is in the log."""
        if expected_end_offset not in (None, self.log_end_offset):
            raise LogEndOffsetMismatchError(
                f"{self._directory.path}: the log ends at {self.log_end_offset}, not at "
                f"{expected_end_offset}; read up to its end and try again",
                expected=expected_end_offset,
                actual=self.log_end_offset,
            )
        self._check_producer(segment)

    # --- producers -------------------------------------------------------------------------------

    def duplicate_offset(self, segment: StagedSegment) -> int | None:
        """Return the offset of an idempotent append that is in the log already, else None."""
        if segment.producer is None:
            return None
        assert self._producers is not None
        return self._producers.find(segment.producer, segment.record_count)

    def is_fenced(self, segment: StagedSegment) -> bool:
        """Return whether a newer epoch of the segment's producer has written."""
        assert self._producers is not None
        assert segment.producer is not None
        return self._producers.is_fenced(segment.producer)

    def needs_search(self, segment: StagedSegment) -> bool:
        """Return whether only the log itself shows if a segment of several producers is in it.

        The producer state shows nothing of a batch without a producer, nor of one whose producer
        was fenced since.
        """
        producers = self._producers
        return any(
            producer is None or (producers is not None and producers.is_fenced(producer))
            for producer in segment.producers
        )

    def _check_batches(self, segment: StagedSegment, *, is_epoch_certain: bool) -> None:
        """Check each batch of a segment of several producers.

        Raises:
            BatchesDecidedError: a batch is in the log, or may not be put.
            FencedLeaderEpochError, UnknownLeaderEpochError: See `check`.
        """
        decisions = self._decisions(segment)
        if any(isinstance(each, OFTEN_SHORT_OF) for each in decisions.values()):
            # Other processes may have appended the segments that the batch follows.
            self.observe_in_epoch(segment, is_epoch_certain=is_epoch_certain)
            decisions = self._decisions(segment)
        if decisions:
            raise BatchesDecidedError(decisions)

    def _decisions(self, segment: StagedSegment) -> dict[int, int | SparkLogError]:
        """Return what is decided of batches that may not be put: they are in the log, or refused.

        Of one producer the first batch is decided. The ones after it follow it in sequence
        (`consecutive_batches`): they may be put if it may, and otherwise are decided after it.
        """
        decisions: dict[int, int | SparkLogError] = {}
        decided: set[int] = set()
        for index, (producer, header) in enumerate(
            zip(segment.producers, segment.headers, strict=True)
        ):
            if producer is None or producer.producer_id in decided:
                continue
            decided.add(producer.producer_id)
            assert self._producers is not None
            decision = self._producers.decide(producer, header.record_count, self._check_append)
            if decision is not None:
                decisions[index] = decision
        return decisions

    def missing_markers(
        self, markers: Sequence[EndTransactionMarker]
    ) -> tuple[EndTransactionMarker, ...]:
        """Return the transaction markers that are not in the log."""
        producers = self._producers
        assert producers is not None
        return tuple(marker for marker in markers if not producers.has_marker(marker))

    def _check_producer(self, segment: StagedSegment) -> None:
        """Check an idempotent append against the producer state of all records before it.

        Raises:
            OutOfOrderSequenceError: the producer's append before this one is missing.
            InvalidProducerEpochError: a newer epoch of the producer has written.
            InvalidTxnStateError: the producer's transaction is open, and the append does not belong
                to it.
        """
        if segment.producer is not None:
            self._check_append(segment.producer)

    def _check_append(self, producer: ProducerAppend) -> None:
        assert self._producers is not None
        self._producers.check(
            producer,
            now_us=self._storage_us,  # not this machine's clock, which may be days ahead
            expiration_ms=self._config.producer_id_expiration_ms,
            where=self._directory.path,
        )

    # --- the log is listed or read ---------------------------------------------------------------

    def observe(self, segment: StagedSegment | None = None) -> None:
        """List the log; also load its producer state if the segment needs it.

        Raises:
            CorruptRecordError: the last segment is damaged, or a segment before it is missing.
            LogTruncatedError: the log ends before an offset that it had reached.
            StorageError: the storage does not answer.
        """
        view, opened = self._directory.observe_and_open()
        if segment is not None and segment.needs_producers:
            if opened is not None and opened.is_in_memory and not self._directory.store.is_local:
                self._snapshots.summaries.on_opened(view.live.segments[-1].name, opened)
            self._producers, view = self._snapshots.producers(view, self._producers)
        self.on_listed(view)

    def on_listed(self, view: LogView) -> None:
        """Update everything from a listing of the log."""
        if self._producers is not None and self._producers.offset != view.log_end_offset:
            self._producers = None
        self._storage_us = max(self._storage_us, view.live.newest_us)
        if self._producers is not None:
            self._producers.set_append_times(view.live.appeared_us, view.live.newest_us)
            self._producers.transactions.forget_aborted()
        self._derived.on_listed(view)
        segments = view.live.segments
        last = segments[-1].name if segments else None
        self.end = LogEnd(view.log_end_offset, view.observed_ms, last, view.leader_epoch)

    def on_read(self, end: LogEnd, segments: int) -> None:
        """Move the end past segments of other appenders that were read, if the end is recent.

        Args:
            end: the log's end, read by a listing that is still valid.
            segments: number of segments between the known end and this one.
        """
        is_ahead = self.end is not None and self.end.log_end_offset < end.log_end_offset
        if is_ahead and self._producers is None and self.is_recent:
            self._derived.count_segments_of_others(segments)
            self.end = end

    def load_leader_epoch(self, segment: StagedSegment | None = None) -> None:
        """Read the leader epoch of the log's last batch, if it is not known.

        A listing does not show the epoch if the last segment was rewritten, or if the log has no
        segments. The epoch stays unknown if the start marker does not have it.

        Args:
            segment: the segment to append; None if nothing is to be appended.

        Raises:
            CorruptRecordError: the last segment is damaged.
            StorageError: the storage does not answer.
        """
        end = self.known_end()
        if end.leader_epoch is None and end.last is None:
            epoch = self._directory.leader_epoch_at_start(end.log_end_offset)
            self.end = end = replace(end, leader_epoch=epoch)
        while end.leader_epoch is None and end.last is not None:
            try:
                epoch = self._directory.open(end.last).leader_epoch
                self.end = end = replace(end, leader_epoch=epoch)
            except NotFoundError as error:  # rewritten again since
                self._directory.on_missed(error, end.observed_ms)
                self.observe(segment)
                end = self.known_end()

    # --- the log's end moves ---------------------------------------------------------------------

    def on_own_append(self, segment: StagedSegment, base_offset: int, tried_ms: float) -> None:
        """Move the end past a segment that this appender put there.

        Args:
            segment: the segment that was put.
            base_offset: the segment's first offset.
            tried_ms: monotonic time before the put. No segment could get the next name before this
                segment had its own.
        """
        name, end_offset = SegmentName(base_offset), base_offset + segment.record_count
        self.end = LogEnd(end_offset, tried_ms, name, segment.leader_epoch)
        self._directory.on_log_end(end_offset)
        if self._producers is not None and self._producers.offset == base_offset:
            self._producers.replay(base_offset, segment.headers, NOT_LISTED_US)
            self._producers.transactions.forget_aborted()

    def open_appended(self, name: SegmentName) -> AppendedSegment:
        """Read a plain segment of another appender, for `on_append_of_other`.

        Raises:
            NotFoundError: the file does not exist.
            CorruptRecordError: the segment is damaged.
            StorageError: the storage does not answer.
        """
        reader = self._directory.open(name)
        return AppendedSegment.of_reader(reader, all_headers=self._producers is not None)

    def pass_others(self, segment: StagedSegment, most: int) -> int:
        """Move the end past segments that other appenders have put at it, one after the other.

        A put would find each of these names taken. No file after a recent end can have been
        deleted, so each of these segments is part of the log. Only for a local file system:
        elsewhere each look at a name is a request.

        Args:
            segment: the segment to append. If an earlier try has put it, the end stays before it.
            most: number of segments with which to stop.

        Returns:
            The number of segments.

        Raises:
            CorruptRecordError: a segment is damaged.
        """
        directory = self._directory
        for passed in range(most):
            name = SegmentName(self.known_end().log_end_offset)
            if directory.store.is_gone(directory.file_path(name.file_name)):
                return passed
            try:
                other = self.open_appended(name)
            except StorageError:  # the put finds out what is there
                return passed
            if not self.is_recent or other.append_id == segment.append_id:
                return passed
            self.on_append_of_other(other)
        return most

    def on_append_of_other(self, winner: AppendedSegment) -> None:
        """Move the end past a segment that another appender put there."""
        end = self.known_end()
        self._replay(winner, end)
        # Since the log was observed, the name after the winner may have been used, but not freed:
        # freeing it takes longer than a listing is valid.
        self._directory.on_log_end(winner.end_offset)
        name = SegmentName(winner.base_offset)
        self.end = LogEnd(winner.end_offset, end.observed_ms, name, winner.leader_epoch)

    def catch_up(self, segment: StagedSegment) -> None:
        """Move the end past all segments of other appenders by one listing.

        An appender that is slower than the others would never catch up name by name. No file
        after the end can have been deleted, so each listed plain segment is part of the log. But
        the listing may lack segments that appeared during it.

        Args:
            segment: the segment to append.

        Raises:
            CorruptRecordError: the end of the log is damaged.
            StorageError: the storage does not answer.
        """
        directory, end = self._directory, self.known_end()
        listed = directory.store.list(directory.path, start_after=f"{end.log_end_offset:020d}")
        names = [name for file in listed if (name := SegmentName.parse(file.name))]
        plain = [name for name in names if name.last_offset is None]
        if self._producers is None:  # else the headers of each segment are needed
            self._derived.count_segments_of_others(len(plain[:-1]))
            plain = plain[-1:]
        end_offset, last, epoch = end.log_end_offset, end.last, end.leader_epoch
        try:
            for name in plain:
                if self._producers is not None and name.base_offset != end_offset:
                    break
                winner = self.open_appended(name)
                end_offset, last, epoch = winner.end_offset, name, winner.leader_epoch
                if not self.is_recent:
                    return self.observe(segment)
                self._replay(winner, end)
        except NotFoundError:
            return self.observe(segment)
        self.end = LogEnd(end_offset, end.observed_ms, last, epoch)
        return None

    def _replay(self, winner: AppendedSegment, end: LogEnd) -> None:
        """Replay a segment that another appender put at an end of the log, or after it."""
        self._derived.on_append_of_other(winner, end.observed_ms)
        if self._producers is not None:
            self._producers.replay(winner.base_offset, winner.headers, NOT_LISTED_US)
            self._producers.transactions.forget_aborted()
        if winner.has_all_headers:  # else the writer of a snapshot opens it, if there is one
            name, headers = SegmentName(winner.base_offset), winner.headers
            self._snapshots.summaries.on_appended(
                SegmentSummary.of_headers(name, winner, headers), headers
            )
