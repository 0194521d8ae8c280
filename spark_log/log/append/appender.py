"""Appending: a staged segment gets its place at the log's end by put-if-absent (DESIGN.md, 5)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from spark_log.config import TopicConfig
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
from spark_log.log.append.producer_state import JUST_NOW_US, ProducerState
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
class _Tail:
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
class _Put:
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
        self._tail: _Tail | None = None
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
            self._forget()
            raise
        except (StorageError, CorruptRecordError) as error:
            self._forget()
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
            tail = self._look(segment)  # an old name may be spent: a put there would be void
        lost_answers = 0
        for race in range(1, _MAX_RACES + 1):
            repeated, tail = self._check(segment, expected_leo, tail)
            if repeated is not None:
                return self._durable(repeated)
            if self._is_last_gone(tail):
                # The directory was removed, or the log's last segment: then the look fails.
                tail = self._look(segment)
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
                self._tail = _Tail(put.end_offset, tried_ms, SegmentName(base_offset))
                return self._acknowledge(segment, base_offset, tail)
            if put is not None and put.winner is not None and not put.is_ours and is_recent:
                unknown.discard(base_offset)  # nothing was freed: it never was ours
                tail = self._go_past(segment, put.winner, tail, race)
                continue
            unknown.add(base_offset)
            lost_answers += 1
            self._give_up_when_lost(lost_answers, began_ms)
            found, tail = self._look_for(segment, unknown)
            if found is not None:
                return self._durable(_info(segment, found))
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
        self, segment: StagedSegment, expected_leo: int | None, tail: _Tail
    ) -> tuple[LogAppendInfo | None, _Tail]:
        """Check that the segment may be put at the log's end.

        Returns:
            Where it stands already, None if it does not; and the log's end.

        Raises:
            LogEndOffsetMismatchError, OutOfOrderSequenceError, InvalidProducerEpochError: it may
                not.
        """
        tail = self._with_producers(segment, tail)
        repeated = self._repeated(segment)
        if repeated is None:
            try:
                self._check_end(expected_leo, tail)
                self._check_producer(segment)
            except (LogEndOffsetMismatchError, OutOfOrderSequenceError):
                tail = self._look(segment)  # others may have appended what it comes after
                repeated = self._repeated(segment)
                if repeated is None:
                    self._check_end(expected_leo, tail)
                    self._check_producer(segment)
        return repeated, tail

    def _check_end(self, expected_leo: int | None, tail: _Tail) -> None:
        if expected_leo not in (None, tail.log_end_offset):
            raise LogEndOffsetMismatchError(
                f"{self._directory.path}: the log ends at {tail.log_end_offset}, not at "
                f"{expected_leo}; read up to its end and try again",
                expected=expected_leo,
                actual=tail.log_end_offset,
            )

    # --- putting ---------------------------------------------------------------------------------

    def _try_put(self, segment: StagedSegment, base_offset: int) -> _Put | None:
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
                return _Put(is_ours, winner.end_offset, winner)
            except StorageError:
                return None
        return _Put(True, base_offset + segment.record_count, None)

    def _is_last_gone(self, tail: _Tail) -> bool:
        """Whether a local file system shows that what ends at the tail is not there any more.

        Nothing that was part of the log so lately can have been freed: whoever puts behind it
        would append to a log that is gone.
        """
        if tail.last is None:
            return False
        return self._directory.store.is_gone(self._directory.file_path(tail.last.log))

    def _is_recent(self, tail: _Tail) -> bool:
        """Whether nothing that was observed then can have been freed since (late-success rule)."""
        return is_known(self._clock, tail.observed_ms, self._directory.valid_ms)

    def _look_for(self, segment: StagedSegment, unknown: set[int]) -> tuple[int | None, _Tail]:
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
            tail = self._look(segment)
            offset = self._find(segment)
            if offset is not None or not self._is_fenced(segment):
                return offset, tail
            # Of older epochs the producer state remembers nothing: only the place itself tells.
        while True:
            view = self._directory.observe()
            try:
                here = {offset: self._is_at(segment, offset, view) for offset in sorted(unknown)}
            except NotFoundError:
                continue  # rewritten and freed since
            if None not in here.values():
                break  # else the listing left out what appeared during it
        return next((offset for offset in here if here[offset]), None), self._remember(view)

    def _is_at(self, segment: StagedSegment, offset: int, view: LogView) -> bool | None:
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

    def _acknowledge(self, segment: StagedSegment, base_offset: int, tail: _Tail) -> LogAppendInfo:
        """Answer for a segment that was just put at a tail; write what is derived if it can be."""
        self._take_in_own(segment, base_offset, tail)
        self._directory.on_end(base_offset + segment.record_count)
        if not base_offset and self._directory.witness is not None:
            with suppress(SparkLogError):  # then the log has none, as one of an older version
                self._directory.witness.make(self._directory.store)
        # The records are safe, and readers do without what fails.
        suppressed, path = self._directory.suppressed, self._directory.path
        with suppressed.suppress("index", path, SparkLogError):
            for name, data in segment.derived_files(SegmentName(base_offset)):
                self._directory.store.put(self._directory.file_path(name), data, sync=False)
        with suppressed.suppress("tail merge", path, SparkLogError):
            for merged in self._merger.merge_if_due():
                self._snapshots.learn(merged)
        with (
            suppressed.suppress("snapshot", path, SparkLogError),
            suppress(NotFoundError, OffsetOutOfRangeError),  # rewritten since: the next one
        ):
            if self._snapshot_due_after <= 0:
                self._snapshot_due_after = self._config.snapshot_interval_segments
                self._snapshot_due_after = self._snapshots.write_if_due()
        return _info(segment, base_offset)

    def _durable(self, info: LogAppendInfo) -> LogAppendInfo:
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

    def _look(self, segment: StagedSegment) -> _Tail:
        """Look at the log afresh, at its producers too where the segment needs them."""
        view = self._directory.observe()
        if segment.producer is not None:
            self._producers, view = self._snapshots.producers(view, self._producers)
        return self._remember(view)

    def _remember(self, view: LogView) -> _Tail:
        if self._producers is not None and self._producers.offset != view.log_end_offset:
            self._producers = None
        self._storage_us = max(self._storage_us, view.live.newest_us)
        if self._producers is not None:
            self._producers.date_just_now(view.live.appeared_us, view.live.newest_us)
        self._snapshot_due_after = self._snapshots.due_after(view)
        self._merger.saw(view)
        segments = view.live.segments
        last = segments[-1].name if segments else None
        self._tail = _Tail(view.log_end_offset, view.observed_ms, last)
        return self._tail

    def _go_past(
        self, segment: StagedSegment, winner: SegmentReader, tail: _Tail, race: int
    ) -> _Tail:
        """Go past what another appended; and, after some lost races, to where the others are."""
        self._take_in_winner(winner, tail)
        # The name behind the winner may have been used since the log was looked at, but not
        # freed: that takes longer from then.
        self._directory.on_end(winner.end_offset)
        name = SegmentName(winner.base_offset)
        tail = self._tail = _Tail(winner.end_offset, tail.observed_ms, name)
        return tail if race % _RACES_PER_LISTING else self._catch_up(segment, tail)

    def _catch_up(self, segment: StagedSegment, tail: _Tail) -> _Tail:
        """Go to the end by one listing: name by name, who is slower would never be the first.

        Nothing from the tail on can have been freed, so that all that is plain there is the log's.
        But a listing may leave out what comes during it.
        """
        directory = self._directory
        listed = directory.store.list(directory.path, start_after=f"{tail.log_end_offset:020d}")
        names = [name for file in listed if (name := SegmentName.parse(file.name))]
        plain = [name for name in names if name.last_offset is None]
        if self._producers is None:  # else the headers of each are needed
            self._count_anothers(len(plain[:-1]))
            plain = plain[-1:]
        end_offset, last = tail.log_end_offset, tail.last
        try:
            for name in plain:
                if self._producers is not None and name.base_offset != end_offset:
                    break
                winner = directory.open(name)
                end_offset, last = winner.end_offset, name
                if not self._is_recent(tail):
                    return self._look(segment)
                self._take_in_winner(winner, tail)
        except NotFoundError:
            return self._look(segment)
        self._tail = _Tail(end_offset, tail.observed_ms, last)
        return self._tail

    def _forget(self) -> None:
        self._tail = self._producers = None

    # --- producers -------------------------------------------------------------------------------

    def _with_producers(self, segment: StagedSegment, tail: _Tail) -> _Tail:
        """Know the producers of everything before the log's end, where the segment has one."""
        if segment.producer is None or self._producers is not None:
            return tail
        return self._look(segment)

    def _find(self, segment: StagedSegment) -> int | None:
        assert self._producers is not None
        assert segment.producer is not None
        return self._producers.find(segment.producer, segment.record_count)

    def _is_fenced(self, segment: StagedSegment) -> bool:
        assert self._producers is not None
        assert segment.producer is not None
        return self._producers.is_fenced(segment.producer)

    def _repeated(self, segment: StagedSegment) -> LogAppendInfo | None:
        """Return where an idempotent append is that stands in the log already."""
        if segment.producer is None:
            return None
        offset = self._find(segment)
        return None if offset is None else _info(segment, offset)

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

    def _take_in_winner(self, winner: SegmentReader, tail: _Tail) -> None:
        """Take in what another append put at the log's end (state before put)."""
        self._count_anothers(1)
        self._merger.came(
            winner.base_offset,
            winner.end_offset,
            winner.size_bytes,
            observed_ms=tail.observed_ms,
            is_own=False,
        )
        if self._producers is not None:
            for _, headers in winner.all_headers():
                self._producers.take_in(winner.base_offset, headers, JUST_NOW_US)
        if winner.batch_count == 1:  # else whoever writes a snapshot had better open it
            name, headers = SegmentName(winner.base_offset), winner.headers(0)
            self._snapshots.note(SegmentSummary.of_headers(name, winner, headers), headers)

    def _count_anothers(self, count: int) -> None:
        """Count segments of others towards the next snapshot: who makes it due writes it."""
        self._snapshot_due_after -= count
        if self._snapshot_due_after <= 0:
            self._snapshot_due_after = 1 + self._config.snapshot_interval_segments // 4

    def _take_in_own(self, segment: StagedSegment, base_offset: int, tail: _Tail) -> None:
        self._snapshot_due_after -= 1
        self._merger.came(
            base_offset,
            base_offset + segment.record_count,
            segment.size_bytes,
            observed_ms=tail.observed_ms,
            is_own=True,
        )
        summary = SegmentSummary.of_staged(segment, base_offset)
        self._snapshots.note(summary, (segment.header,))
        if self._producers is not None and self._producers.offset == base_offset:
            self._producers.take_in(base_offset, (segment.header,), JUST_NOW_US)


def _info(segment: StagedSegment, base_offset: int) -> LogAppendInfo:
    return LogAppendInfo(base_offset, base_offset + segment.record_count - 1)
