"""Appending: a staged segment gets its place at the log's end by put-if-absent (DESIGN.md, 5)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from spark_log.config.config import TopicConfig
from spark_log.errors import (
    AlreadyExistsError,
    CorruptRecordError,
    LogEndOffsetMismatchError,
    NotFoundError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    SparkLogError,
    StorageError,
    UnknownOutcomeError,
)
from spark_log.log.append.producer_state import NOT_LISTED_US, ProducerState
from spark_log.log.append.tail_merger import TailMerger
from spark_log.log.file_names import SegmentName
from spark_log.log.partition_directory import LogView, PartitionDirectory
from spark_log.log.segment.reader import SegmentReader
from spark_log.log.segment.writer import StagedSegment
from spark_log.log.snapshot.snapshot import SegmentSummary
from spark_log.log.snapshot.snapshots import Snapshots
from spark_log.storage import is_known

_MAX_RACES = 10_000
"""Names tried for one append before giving up: far above what any number of writers causes."""

_RACES_PER_LISTING = 64
"""Races that one append loses until it lists how far the others are: walking past so many costs
about as much as a listing of some thousand files."""

_MAX_LOST_ANSWERS = 10
"""Puts of one append whose answers are lost before it is called unknown."""


@dataclass(frozen=True, slots=True)
class LogAppendInfo:
    """Where an append ended up: offsets of its first and its last record."""

    base_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class LogTail:
    """A log end offset, and when it was known that nobody had used its name.

    Attributes:
        log_end_offset: of the log.
        observed_ms: monotonic time.
        last: the segment that ends there; None where that is not known.
    """

    log_end_offset: int
    observed_ms: float
    last: SegmentName | None = None


@dataclass(frozen=True, slots=True)
class PutResult:
    """What stands at an offset after a put there.

    Attributes:
        is_ours: whether it is our segment.
        end_offset: where it ends.
        winner: the other segment; None for our own that was just put.
    """

    is_ours: bool
    end_offset: int
    winner: SegmentReader | None


class Appender:
    """One process's way to the end of a partition's log.

    What is kept between appends is the last known end, which put-if-absent checks; the producer
    state up to exactly there, once an idempotent append needed it; the newest time that a listing
    showed; when the next snapshot is due; and the newest segments, for merging them. It can be
    forgotten at any time.
    """

    def __init__(
        self, directory: PartitionDirectory, snapshots: Snapshots, config: TopicConfig
    ) -> None:
        self._directory = directory
        self._snapshots = snapshots
        self._config = config
        self._clock = directory.clock
        self._tail: LogTail | None = None
        self._producers: ProducerState | None = None
        self._storage_us = 0
        self._snapshot_due_after = 0
        self._merger = TailMerger(directory, config)

    def append_segment(
        self, segment: StagedSegment, expected_leo: int | None = None
    ) -> LogAppendInfo:
        """See `PartitionLog.append_segment`."""
        # Offsets at which this segment may stand, or come to stand: their answers were lost.
        unknown: set[int] = set()
        try:
            return self._append(segment, expected_leo, unknown)
        except UnknownOutcomeError:
            self._reset()
            raise
        except (StorageError, CorruptRecordError) as error:
            self._reset()
            if not unknown:
                raise
            raise UnknownOutcomeError(
                f"{self._directory.path}: the answer to an append was lost, and finding out what "
                f"became of it failed: {error}",
                path=self._directory.path,
            ) from error

    def _append(
        self, segment: StagedSegment, expected_leo: int | None, unknown: set[int]
    ) -> LogAppendInfo:
        began_ms = self._clock.monotonic_ms()
        tail = self._tail
        if tail is None or not self._is_recent(tail):
            tail = self._observe(segment)  # an old name may be spent: a put there would be void
        lost_answers = 0
        for race in range(1, _MAX_RACES + 1):
            duplicate, tail = self._check(segment, expected_leo, tail)
            if duplicate is not None:
                return self._acknowledge_duplicate(duplicate)
            if self._is_last_gone(tail):
                # The directory was removed, or the log's last segment: then the look fails.
                tail = self._observe(segment)
                continue
            base_offset = tail.log_end_offset
            # Before the put, so that no pause after it makes what it shows look newer than it is.
            tried_ms = self._clock.monotonic_ms()
            try:
                put = self._try_put(segment, base_offset)
            except UnknownOutcomeError as error:
                if error.is_visible:
                    raise
                put = None
            is_recent = self._is_recent(tail)
            if put is not None and put.is_ours and is_recent:
                # Nobody could use the name behind it before it stood there.
                self._tail = LogTail(put.end_offset, tried_ms, SegmentName(base_offset))
                return self._acknowledge(segment, base_offset, tail)
            if put is not None and put.winner is not None and not put.is_ours and is_recent:
                unknown.discard(base_offset)  # nothing was freed: it never was ours
                tail = self._advance_past(segment, put.winner, tail, race)
                continue
            unknown.add(base_offset)
            lost_answers += 1
            self._give_up_when_lost(lost_answers, began_ms)
            found, tail = self._find_lost(segment, unknown)
            if found is not None:
                return self._acknowledge_duplicate(_append_info(segment, found))
            if segment.producer is not None:  # the look may have come too late to find it
                self._give_up_when_lost(lost_answers, began_ms)
            # What is not live below the log's end will never be.
            unknown -= {offset for offset in unknown if offset < tail.log_end_offset}
        raise StorageError(
            f"{self._directory.path}: {_MAX_RACES} other appends came first; nothing was appended",
            path=self._directory.path,
        )

    # --- whether it may be put -------------------------------------------------------------------

    def _check(
        self, segment: StagedSegment, expected_leo: int | None, tail: LogTail
    ) -> tuple[LogAppendInfo | None, LogTail]:
        """Check that the segment may be put at the log's end.

        Returns:
            Where it stands already, None if it does not; and the log's end.

        Raises:
            LogEndOffsetMismatchError, OutOfOrderSequenceError, InvalidProducerEpochError: it may
                not.
        """
        tail = self._load_producers(segment, tail)
        duplicate = self._find_duplicate(segment)
        if duplicate is None:
            try:
                self._check_expected_leo(expected_leo, tail)
                self._check_producer(segment)
            except (LogEndOffsetMismatchError, OutOfOrderSequenceError):
                tail = self._observe(segment)  # others may have appended what it comes after
                duplicate = self._find_duplicate(segment)
                if duplicate is None:
                    self._check_expected_leo(expected_leo, tail)
                    self._check_producer(segment)
        return duplicate, tail

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
        """Put the segment at an offset, and return what stands there now.

        None when that cannot be seen: what took the name is gone again, or cannot be read.
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

    def _is_last_gone(self, tail: LogTail) -> bool:
        """Whether a local file system shows that what ends at the tail is not there any more.

        Nothing that was part of the log so lately can have been freed: whoever puts behind it
        would append to a log that is gone.
        """
        if tail.last is None:
            return False
        return self._directory.store.is_gone(self._directory.file_path(tail.last.log))

    def _is_recent(self, tail: LogTail) -> bool:
        """Whether nothing that was observed then can have been freed since (late-success rule)."""
        return is_known(self._clock, tail.observed_ms, self._directory.valid_ms)

    def _find_lost(self, segment: StagedSegment, unknown: set[int]) -> tuple[int | None, LogTail]:
        """Find out whether the segment is in the live log.

        Args:
            segment: which.
            unknown: the offsets where it may be.

        Raises:
            UnknownOutcomeError: it has no producer, or was fenced since, and the place was
                rewritten, or fell behind the log's start.
            StorageError: the store does not answer.
        """
        if segment.producer is not None:
            tail = self._observe(segment)
            offset = self._duplicate_offset(segment)
            if offset is not None or not self._is_fenced(segment):
                return offset, tail
            # Of older epochs the producer state remembers nothing: only the place itself tells.
        while True:
            view = self._directory.observe()
            try:
                here = {
                    offset: self._stands_at(segment, offset, view) for offset in sorted(unknown)
                }
            except NotFoundError:
                continue  # rewritten and freed since
            if None not in here.values():
                break  # else the listing left out what appeared during it
        return next((offset for offset in here if here[offset]), None), self._update_tail(view)

    def _stands_at(self, segment: StagedSegment, offset: int, view: LogView) -> bool | None:
        """Return whether a segment stands at an offset of a view; None if the view cannot tell.

        Raises:
            UnknownOutcomeError: the place was rewritten, or fell behind the log's start.
        """
        if offset >= view.log_end_offset:
            return False
        index = view.live.index_of(offset)
        if index < 0 or view.live.segments[index].name.last_offset is not None:
            raise UnknownOutcomeError(
                f"{self._directory.path}: the answer to an append at offset {offset} was lost, "
                f"and the place was merged or deleted before it could be looked at; read from "
                f"{max(offset, view.log_start_offset)} to see whether the records are there",
                path=self._directory.path,
            )
        reader = self._directory.open(view.live.segments[index].name)
        if reader.end_offset <= offset:
            return None
        return reader.base_offset == offset and reader.append_id == segment.append_id

    def _give_up_when_lost(self, lost_answers: int, began_ms: float) -> None:
        """Do not look for an append so late that the log may have forgotten its producer."""
        age_ms = self._clock.monotonic_ms() - began_ms
        is_late = age_ms >= self._config.producer_id_expiration_ms / 2
        if is_late or lost_answers > _MAX_LOST_ANSWERS:
            raise UnknownOutcomeError(
                f"{self._directory.path}: the answers to {lost_answers} puts of one append were "
                f"lost within {age_ms / 1000:.0f} s",
                path=self._directory.path,
            )

    def _acknowledge(
        self, segment: StagedSegment, base_offset: int, tail: LogTail
    ) -> LogAppendInfo:
        """Answer for a segment that was just put at a tail; write what is derived if it can be."""
        self._on_own_append(segment, base_offset, tail)
        self._directory.on_log_end(base_offset + segment.record_count)
        if not base_offset and self._directory.witness is not None:
            with suppress(SparkLogError):  # then the log has none, as one of an older version
                self._directory.witness.create(self._directory.store)
        # The records are safe, and readers do without what fails.
        suppressed, path = self._directory.suppressed, self._directory.path
        with suppressed.suppress("index", path, SparkLogError):
            for name, data in segment.derived_files(SegmentName(base_offset)):
                self._directory.store.put(self._directory.file_path(name), data, sync=False)
        with suppressed.suppress("tail merge", path, SparkLogError):
            for merged in self._merger.merge_if_due():
                self._snapshots.on_rewritten(merged)
        with (
            suppressed.suppress("snapshot", path, SparkLogError),
            suppress(NotFoundError, OffsetOutOfRangeError),  # rewritten since: the next one
        ):
            if self._snapshot_due_after <= 0:
                self._snapshot_due_after = self._config.snapshot_interval_segments
                self._snapshot_due_after = self._snapshots.write_if_due()
        return _append_info(segment, base_offset)

    def _acknowledge_duplicate(self, info: LogAppendInfo) -> LogAppendInfo:
        """Answer for a segment that an earlier try put, maybe of a process that was killed then.

        Raises:
            UnknownOutcomeError: it is in the log, and may be gone after a power cut.
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
        return info

    def _make_durable(self) -> None:
        """Sync the directory's names; the bytes were synced before they got theirs."""
        if self._config.flush_on_append:
            self._directory.store.sync(self._directory.path)

    # --- what is known of the log's end ----------------------------------------------------------

    def _observe(self, segment: StagedSegment) -> LogTail:
        """Look at the log afresh, at its producers too where the segment needs them."""
        view = self._directory.observe()
        if segment.producer is not None:
            self._producers, view = self._snapshots.producers(view, self._producers)
        return self._update_tail(view)

    def _update_tail(self, view: LogView) -> LogTail:
        if self._producers is not None and self._producers.offset != view.log_end_offset:
            self._producers = None
        self._storage_us = max(self._storage_us, view.live.newest_us)
        if self._producers is not None:
            self._producers.set_append_times(view.live.appeared_us, view.live.newest_us)
        self._snapshot_due_after = self._snapshots.segments_until_due(view)
        self._merger.on_listed(view)
        segments = view.live.segments
        last = segments[-1].name if segments else None
        self._tail = LogTail(view.log_end_offset, view.observed_ms, last)
        return self._tail

    def _advance_past(
        self, segment: StagedSegment, winner: SegmentReader, tail: LogTail, race: int
    ) -> LogTail:
        """Go past what another appended; and, after some lost races, to where the others are."""
        self._on_winner(winner, tail)
        # The name behind the winner may have been used since the log was looked at, but not
        # freed: that takes longer from then.
        self._directory.on_log_end(winner.end_offset)
        name = SegmentName(winner.base_offset)
        tail = self._tail = LogTail(winner.end_offset, tail.observed_ms, name)
        return tail if race % _RACES_PER_LISTING else self._catch_up(segment, tail)

    def _catch_up(self, segment: StagedSegment, tail: LogTail) -> LogTail:
        """Go to the end by one listing: name by name, who is slower would never be the first.

        Nothing from the tail on can have been freed, so that all that is plain there is the log's.
        But a listing may leave out what comes during it.
        """
        directory = self._directory
        listed = directory.store.list(directory.path, start_after=f"{tail.log_end_offset:020d}")
        names = [name for file in listed if (name := SegmentName.parse(file.name))]
        plain = [name for name in names if name.last_offset is None]
        if self._producers is None:  # else the headers of each are needed
            self._count_segments_of_others(len(plain[:-1]))
            plain = plain[-1:]
        end_offset, last = tail.log_end_offset, tail.last
        try:
            for name in plain:
                if self._producers is not None and name.base_offset != end_offset:
                    break
                winner = directory.open(name)
                end_offset, last = winner.end_offset, name
                if not self._is_recent(tail):
                    return self._observe(segment)
                self._on_winner(winner, tail)
        except NotFoundError:
            return self._observe(segment)
        self._tail = LogTail(end_offset, tail.observed_ms, last)
        return self._tail

    def _reset(self) -> None:
        self._tail = self._producers = None

    # --- producers -------------------------------------------------------------------------------

    def _load_producers(self, segment: StagedSegment, tail: LogTail) -> LogTail:
        """Know the producers of everything before the log's end, where the segment has one."""
        if segment.producer is None or self._producers is not None:
            return tail
        return self._observe(segment)

    def _duplicate_offset(self, segment: StagedSegment) -> int | None:
        assert self._producers is not None
        assert segment.producer is not None
        return self._producers.find(segment.producer, segment.record_count)

    def _is_fenced(self, segment: StagedSegment) -> bool:
        assert self._producers is not None
        assert segment.producer is not None
        return self._producers.is_fenced(segment.producer)

    def _find_duplicate(self, segment: StagedSegment) -> LogAppendInfo | None:
        """Return where an idempotent append is that stands in the log already."""
        if segment.producer is None:
            return None
        offset = self._duplicate_offset(segment)
        return None if offset is None else _append_info(segment, offset)

    def _check_producer(self, segment: StagedSegment) -> None:
        """Check an idempotent append against everything before the offset that it is put at."""
        if segment.producer is None:
            return
        assert self._producers is not None
        self._producers.check(
            segment.producer,
            now_us=self._storage_us,  # not by this machine's clock, which may be days ahead
            expiration_ms=self._config.producer_id_expiration_ms,
            where=self._directory.path,
        )

    def _on_winner(self, winner: SegmentReader, tail: LogTail) -> None:
        """Take in what another append put at the log's end (state before put)."""
        self._count_segments_of_others(1)
        self._merger.on_appended(
            winner.base_offset,
            winner.end_offset,
            winner.size_bytes,
            observed_ms=tail.observed_ms,
            is_own=False,
        )
        if self._producers is not None:
            for _, headers in winner.all_headers():
                self._producers.replay(winner.base_offset, headers, NOT_LISTED_US)
        if winner.batch_count == 1:  # else whoever writes a snapshot had better open it
            name, headers = SegmentName(winner.base_offset), winner.headers(0)
            self._snapshots.on_appended(SegmentSummary.of_headers(name, winner, headers), headers)

    def _count_segments_of_others(self, count: int) -> None:
        """Count segments of others towards the next snapshot: who makes it due writes it."""
        self._snapshot_due_after -= count
        if self._snapshot_due_after <= 0:
            self._snapshot_due_after = 1 + self._config.snapshot_interval_segments // 4

    def _on_own_append(self, segment: StagedSegment, base_offset: int, tail: LogTail) -> None:
        self._snapshot_due_after -= 1
        self._merger.on_appended(
            base_offset,
            base_offset + segment.record_count,
            segment.size_bytes,
            observed_ms=tail.observed_ms,
            is_own=True,
        )
        summary = SegmentSummary.of_staged(segment, base_offset)
        self._snapshots.on_appended(summary, (segment.header,))
        if self._producers is not None and self._producers.offset == base_offset:
            self._producers.replay(base_offset, (segment.header,), NOT_LISTED_US)


def _append_info(segment: StagedSegment, base_offset: int) -> LogAppendInfo:
    return LogAppendInfo(base_offset, base_offset + segment.record_count - 1)
