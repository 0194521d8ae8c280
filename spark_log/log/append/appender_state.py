"""The state of an appender between two appends: the log's end, and the producer state at it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from spark_log.config import TopicConfig
from spark_log.errors import NotFoundError
from spark_log.log.append.derived_files import DerivedFiles
from spark_log.log.directory import LogTail, LogView, PartitionDirectory
from spark_log.log.files import SegmentName
from spark_log.log.producers import NOT_LISTED_US, EndTransactionMarker, ProducerState
from spark_log.log.segment import SegmentReader, SegmentSummary, StagedSegment
from spark_log.log.snapshot import Snapshots
from spark_log.storage import is_listing_valid

_RACES_PER_LISTING = 64
"""Lost races after which an append lists the log to find its end. Opening 64 segments one by one
costs about as much as listing several thousand files."""


class AppenderState:
    """The state of one appender. All of it can be lost at any time: a listing restores it.

    It consists of the last known log end offset, which the next put-if-absent checks; the producer
    state at this offset, if an idempotent append has needed it; and the newest last-modified time
    that a listing showed. It passes each segment that moves the log's end to `DerivedFiles` and to
    the snapshots' summaries.

    Attributes:
        tail: the last known end of the log; None if the log has to be listed.
    """

    def __init__(
        self,
        directory: PartitionDirectory,
        snapshots: Snapshots,
        config: TopicConfig,
        derived: DerivedFiles,
    ) -> None:
        self.tail: LogTail | None = None
        self._directory = directory
        self._snapshots = snapshots
        self._config = config
        self._derived = derived
        self._clock = directory.clock
        self._producers: ProducerState | None = None
        self._storage_us = 0

    def reset(self) -> None:
        """Forget the log's end and its producers."""
        self.tail = self._producers = None

    def doubt(self) -> None:
        """Force a listing before the next append; keep the known log end offset."""
        if self.tail is not None:
            self.tail = replace(self.tail, observed_ms=-math.inf)

    # --- the log's end ---------------------------------------------------------------------------

    def is_recent(self, tail: LogTail) -> bool:
        """Return whether no file of the observed log can have been deleted since.

        Only then a put at the tail counts (the late-success rule).
        """
        return is_listing_valid(self._clock, tail.observed_ms, self._directory.valid_ms)

    def observe(self, segment: StagedSegment | None = None) -> LogTail:
        """List the log; also load its producer state if the segment needs it.

        Raises:
            CorruptRecordError: the last segment is damaged, or a segment before it is missing.
            LogTruncatedError: the log ends before an offset that it had reached.
            StorageError: the storage does not answer.
        """
        view, opened = self._directory.observe_and_open()
        if segment is not None and segment.needs_producers:
            if opened is not None and opened.is_in_memory and not self._directory.store.is_mapped:
                self._snapshots.summaries.on_opened(view.live.segments[-1].name, opened)
            self._producers, view = self._snapshots.producers(view, self._producers)
        return self.update_tail(view)

    def update_tail(self, view: LogView) -> LogTail:
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
        self.tail = LogTail(view.log_end_offset, view.observed_ms, last, view.leader_epoch)
        return self.tail

    def on_read(self, end: LogTail, segments: int) -> None:
        """Move the tail past segments of other appenders that were read, if the tail is recent.

        Args:
            end: the log's end, read by a listing that is still valid.
            segments: number of segments between the tail and this end.
        """
        tail = self.tail
        is_ahead = tail is not None and tail.log_end_offset < end.log_end_offset
        if tail is None or not is_ahead or self._producers is not None or not self.is_recent(tail):
            return
        self._derived.count_segments_of_others(segments)
        self.tail = end

    def advance_past(
        self, segment: StagedSegment, winner: SegmentReader, tail: LogTail, race: int
    ) -> LogTail:
        """Move the tail past another appender's segment; after some lost races, list the log.

        Args:
            segment: the segment to append.
            winner: reader of the segment that another appender put at the tail.
            tail: the tail before the winner.
            race: number of races that this append has lost.

        Raises:
            CorruptRecordError: the end of the log is damaged.
            StorageError: the storage does not answer.
        """
        self._on_winner(winner, tail)
        # Since the log was observed, the name after the winner may have been used, but not freed:
        # freeing it takes longer than a listing is valid.
        self._directory.on_log_end(winner.end_offset)
        name = SegmentName(winner.base_offset)
        epoch = winner.leader_epoch
        tail = self.tail = LogTail(winner.end_offset, tail.observed_ms, name, epoch)
        return tail if race % _RACES_PER_LISTING else self._catch_up(segment, tail)

    def on_own_append(
        self, segment: StagedSegment, base_offset: int, before: LogTail, tried_ms: float
    ) -> None:
        """Replay a segment that this appender put at the log's end, and move the tail past it.

        Args:
            segment: the segment that was put.
            base_offset: the segment's first offset.
            before: the tail before the segment.
            tried_ms: monotonic time before the put. No segment could get the next name before this
                segment had its own.
        """
        end_offset = base_offset + segment.record_count
        name, epoch = SegmentName(base_offset), segment.leader_epoch
        self.tail = LogTail(end_offset, tried_ms, name, epoch)
        self._derived.on_own_append(segment, base_offset, before.observed_ms)
        summary = SegmentSummary.of_staged(segment, base_offset)
        self._snapshots.summaries.on_appended(summary, segment.headers)
        if self._producers is not None and self._producers.offset == base_offset:
            self._producers.replay(base_offset, segment.headers, NOT_LISTED_US)
            self._producers.transactions.forget_aborted()

    def load_leader_epoch(self, tail: LogTail, segment: StagedSegment | None = None) -> LogTail:
        """Read the leader epoch of the log's last batch, if the tail lacks it.

        A listing does not show the epoch if the last segment was rewritten, or if the log has no
        segments. The epoch stays unknown if the start marker does not have it.

        Args:
            tail: the log's end.
            segment: the segment to append; None if nothing is to be appended.

        Raises:
            CorruptRecordError: the last segment is damaged.
            StorageError: the storage does not answer.
        """
        if tail.leader_epoch is None and tail.last is None:
            epoch = self._directory.leader_epoch_at_start(tail.log_end_offset)
            self.tail = tail = replace(tail, leader_epoch=epoch)
        while tail.leader_epoch is None and tail.last is not None:
            try:
                epoch = self._directory.open(tail.last).leader_epoch
                self.tail = tail = replace(tail, leader_epoch=epoch)
            except NotFoundError as error:  # rewritten again since
                self._directory.on_missed(error, tail.observed_ms)
                tail = self.observe(segment)
        return tail

    # --- producers -------------------------------------------------------------------------------

    def load_producers(self, segment: StagedSegment, tail: LogTail) -> LogTail:
        """Load the producer state at the log's end if the segment needs it."""
        producers = self._producers
        if not segment.needs_producers or (producers is not None and not producers.is_overgrown):
            return tail
        return self.observe(segment)

    def duplicate_offset(self, segment: StagedSegment) -> int | None:
        """Return the offset of an idempotent append that is in the log already, else None."""
        assert self._producers is not None
        assert segment.producer is not None
        return self._producers.find(segment.producer, segment.record_count)

    def is_fenced(self, segment: StagedSegment) -> bool:
        """Return whether a newer epoch of the segment's producer has written."""
        assert self._producers is not None
        assert segment.producer is not None
        return self._producers.is_fenced(segment.producer)

    def missing_markers(
        self, markers: Sequence[EndTransactionMarker]
    ) -> tuple[EndTransactionMarker, ...]:
        """Return the transaction markers that are not in the log."""
        producers = self._producers
        assert producers is not None
        return tuple(marker for marker in markers if not producers.has_marker(marker))

    def check_producer(self, segment: StagedSegment) -> None:
        """Check an idempotent append against the producer state of all records before it.

        Raises:
            OutOfOrderSequenceError: the producer's append before this one is missing.
            InvalidProducerEpochError: a newer epoch of the producer has written.
            InvalidTxnStateError: the producer's transaction is open, and the append does not belong
                to it.
        """
        if segment.producer is None:
            return
        assert self._producers is not None
        self._producers.check(
            segment.producer,
            now_us=self._storage_us,  # not this machine's clock, which may be days ahead
            expiration_ms=self._config.producer_id_expiration_ms,
            where=self._directory.path,
        )

    # --- behind other appenders ------------------------------------------------------------------

    def _catch_up(self, segment: StagedSegment, tail: LogTail) -> LogTail:
        """Move the tail to the log's end by one listing.

        An appender that is slower than the others would never catch up name by name. No file
        after the tail can have been deleted, so each listed plain segment is part of the log. But
        the listing may lack segments that appeared during it.
        """
        directory = self._directory
        listed = directory.store.list(directory.path, start_after=f"{tail.log_end_offset:020d}")
        names = [name for file in listed if (name := SegmentName.parse(file.name))]
        plain = [name for name in names if name.last_offset is None]
        if self._producers is None:  # else the headers of each segment are needed
            self._derived.count_segments_of_others(len(plain[:-1]))
            plain = plain[-1:]
        end_offset, last, epoch = tail.log_end_offset, tail.last, tail.leader_epoch
        try:
            for name in plain:
                if self._producers is not None and name.base_offset != end_offset:
                    break
                winner = directory.open(name)
                end_offset, last, epoch = winner.end_offset, name, winner.leader_epoch
                if not self.is_recent(tail):
                    return self.observe(segment)
                self._on_winner(winner, tail)
        except NotFoundError:
            return self.observe(segment)
        self.tail = LogTail(end_offset, tail.observed_ms, last, epoch)
        return self.tail

    def _on_winner(self, winner: SegmentReader, tail: LogTail) -> None:
        """Replay a segment that another appender put at the log's end."""
        self._derived.on_append_of_other(winner, tail.observed_ms)
        if self._producers is not None:
            for _, headers in winner.all_headers():
                self._producers.replay(winner.base_offset, headers, NOT_LISTED_US)
            self._producers.transactions.forget_aborted()
        if winner.batch_count == 1:  # else the writer of a snapshot opens it, if there is one
            name, headers = SegmentName(winner.base_offset), winner.headers(0)
            self._snapshots.summaries.on_appended(
                SegmentSummary.of_headers(name, winner, headers), headers
            )
