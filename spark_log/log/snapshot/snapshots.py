"""The snapshots of a partition: the newest one read, brought up to date, and written anew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import takewhile

from spark_log.config import TopicConfig
from spark_log.errors import NotFoundError, OffsetOutOfRangeError, StorageError
from spark_log.log.append.producer_state import ProducerState
from spark_log.log.file_names import SegmentName, parse_snapshot_name, snapshot_name
from spark_log.log.live_log import LiveSegment
from spark_log.log.partition_directory import LogView, PartitionDirectory
from spark_log.log.snapshot.snapshot import SegmentSummary, Snapshot
from spark_log.record.batch_header import BatchHeader

_KEPT = 2
"""Snapshots kept: the newest, and one for whoever listed before it came."""

_GROWTH = 4
"""A snapshot is due when the log has grown by a quarter at least, so that writing them costs an
append a constant, however many segments there are."""


class Snapshots:
    """What is known of a partition's segments and producers without opening every segment.

    Keeps what it has learnt of segments; they never change.
    """

    def __init__(self, directory: PartitionDirectory, config: TopicConfig) -> None:
        self._directory = directory
        self._config = config
        self._known: dict[SegmentName, SegmentSummary] = {}
        self._noted: dict[SegmentName, tuple[BatchHeader, ...]] = {}
        self._read: Snapshot | None = None
        self._written: ProducerState | None = None
        self._newest_offset = 0
        self._segment_count = 0

    def newest(self, view: LogView) -> Snapshot | None:
        """Return the newest sound snapshot that a listing shows, None if there is none.

        Raises:
            StorageError: the storage does not answer: whether there is one is not known.
        """
        for offset in reversed(view.live.snapshots):
            if offset > view.log_end_offset:
                continue
            if self._read is not None and self._read.offset == offset:
                return self._read
            directory = self._directory
            # One that was deleted since, or is damaged: there may be an older one.
            with (
                suppress(NotFoundError),
                directory.suppressed.suppress("snapshot", directory.path, ValueError),
            ):
                snapshot = Snapshot.from_buffer(
                    self._directory.store.open_buffer(self._path(offset)),
                    topic_id=self._directory.topic_id,
                    partition=self._directory.partition,
                )
                snapshot.check_name(offset)
                self._directory.identities.expect(snapshot.segments)
                self._read = snapshot
                return self._read
        return None

    def segments(self, view: LogView) -> tuple[list[SegmentSummary], LogView]:
        """Return what each live segment of a view holds, and the view.

        A newer view, where the log was rewritten since: summaries belong to what is returned.

        Raises:
            CorruptRecordError: a segment is damaged or missing.
        """
        doubted: LiveSegment | None = None
        while True:
            self._learn(view)
            found: dict[SegmentName, SegmentSummary] = {}
            for segment in view.live.segments:
                try:
                    summary = self.summary(segment, view.observed_ms)
                except NotFoundError:
                    break
                if segment.end_offset not in (None, summary.end_offset):
                    if segment == doubted:
                        raise self._directory.missing(segment, summary.end_offset)
                    doubted = segment  # what appeared during the listing may be left out of it
                    break
                found[segment.name] = summary
            else:
                self._known = found  # forget what is not live any more
                return list(found.values()), view
            view = self._directory.observe()

    def known(self, view: LogView) -> Iterator[SegmentSummary]:
        """Yield what the first segments of a view hold, as far as none has to be opened for it."""
        self._learn(view)
        summaries = map(self._known_of, view.live.segments)
        return (each for each in takewhile(lambda each: each is not None, summaries) if each)

    def summary(self, segment: LiveSegment, observed_ms: float) -> SegmentSummary:
        """Return what a listed segment holds; opens it unless that is known.

        Args:
            segment: which.
            observed_ms: monotonic time before the listing began.

        Raises:
            NotFoundError: it is gone, or may be.
            CorruptRecordError: it is damaged.
        """
        if self._known_of(segment) is None:
            self._headers(segment, observed_ms)
        return self._known[segment.name]

    def producers(
        self, view: LogView, state: ProducerState | None = None
    ) -> tuple[ProducerState, LogView]:
        """Return the producer state at the end of a view, and the view.

        A newer view, where the first was too old to tell.

        Args:
            view: up to where.
            state: an earlier one to go on from; changed. None begins with the newest snapshot.

        Raises:
            CorruptRecordError: a segment is damaged or missing.
        """
        hole: LiveSegment | None = None
        ahead_of: int | None = None
        while True:
            state, view = self._begin(view, state)
            try:
                last = self._take_in(state, view)
            except OffsetOutOfRangeError:
                state = None  # the start moved on
            except NotFoundError:
                pass
            else:
                if state.offset == view.log_end_offset:
                    return state, view
                # A rewritten segment reaches behind the end of the view; or what appeared during
                # the listing was left out of it, but not twice.
                if state.offset < view.log_end_offset and last is not None and last == hole:
                    raise self._directory.missing(last, state.offset)
                hole = last
                if state.offset > view.log_end_offset:
                    if ahead_of == view.log_end_offset:
                        state = None  # of a log that is gone: deleted with its topic, say
                    ahead_of = view.log_end_offset
            view = self._directory.observe()

    def due_after(self, view: LogView) -> int:
        """Return after how many more segments the next snapshot is due, 0 or less for now."""
        self._segment_count, newest = len(view.live.segments), view.live.snapshots[-1:]
        seen = 0
        if newest:
            at_end = newest[0] >= view.log_end_offset
            seen = self._segment_count if at_end else max(0, view.live.index_of(newest[0]))
            self._forget_before(newest[0])
        return self._interval(seen) - (self._segment_count - seen)

    def write_if_due(self) -> int:
        """Write a snapshot unless somebody did; return after how many segments to ask again."""
        due_after = self._due_after_anothers()
        if due_after <= 0:
            view = self._directory.observe()
            due_after = self.due_after(view)
        if due_after <= 0:
            self._write(*self._up_to_hole(view))
            due_after = self._interval(self._segment_count)
        return due_after

    def write(self, view: LogView | None = None) -> Snapshot:
        """Write a snapshot of the log as it is now; remove older ones.

        Harmless beside other writers, and when it fails.

        Args:
            view: of the log; None observes it.

        Raises:
            StorageError: it was not written.
            CorruptRecordError: a segment is damaged or missing.
        """
        state, view = self.producers(view or self._directory.observe(), self._written)
        self._written = None
        summaries, view = self.segments(view)
        return self._write(state, summaries, view)

    def _up_to_hole(self, view: LogView) -> tuple[ProducerState, list[SegmentSummary], LogView]:
        """Return what a snapshot holds, up to where the view begins to leave something out.

        While others append a listing often does; to list again and again would cost more than the
        snapshot is worth.

        Raises:
            NotFoundError, OffsetOutOfRangeError: the log was rewritten, or its start moved, since.
        """
        # What was gathered is kept, also when it fails: a slow storage comes further each time.
        state, view = self._begin(view, self._written)
        self._written = state
        try:
            self._take_in(state, view)
        except OffsetOutOfRangeError:
            self._written = None
            raise
        segments = view.live.segments[: view.live.index_of(state.offset - 1) + 1]
        return state, [self.summary(each, view.observed_ms) for each in segments], view

    def _write(
        self, state: ProducerState, summaries: list[SegmentSummary], view: LogView
    ) -> Snapshot:
        directory = self._directory
        snapshot = Snapshot(
            state.offset,
            tuple(summary for summary in summaries if summary.end_offset <= state.offset),
            state.without_expired(
                now_us=view.live.newest_us,
                expiration_ms=self._config.producer_id_expiration_ms,
            ),
        )
        data = snapshot.to_buffer(topic_id=directory.topic_id, partition=directory.partition)
        directory.store.put(self._path(snapshot.offset), data)
        self._segment_count = len(summaries)
        self._forget_before(snapshot.offset)
        self._written = state
        older = [offset for offset in view.live.snapshots if offset < snapshot.offset]
        for offset in older[: 1 - _KEPT]:
            directory.store.delete(self._path(offset))
        return snapshot

    def note(self, summary: SegmentSummary, headers: tuple[BatchHeader, ...]) -> None:
        """Remember what a segment that was appended holds, so that it need not be opened."""
        self._known[summary.name] = summary
        self._noted[summary.name] = headers

    def learn(self, summary: SegmentSummary) -> None:
        """Remember what a rewritten segment holds."""
        self._known[summary.name] = summary

    # --- what is known ---------------------------------------------------------------------------

    def _learn(self, view: LogView) -> None:
        """Read the newest snapshot, if there is anything in the view that it might tell of."""
        if any(segment.name not in self._known for segment in view.live.segments):
            snapshot = None
            # Without one segments tell, at a higher cost.
            directory = self._directory
            with directory.suppressed.suppress("snapshot", directory.path, StorageError):
                snapshot = self.newest(view)
            if snapshot is not None:
                self._known = {each.name: each for each in snapshot.segments} | self._known

    def _known_of(self, segment: LiveSegment) -> SegmentSummary | None:
        known = self._known.get(segment.name)
        return known if known and known.size_bytes == segment.file.size_bytes else None

    def _forget_before(self, offset: int) -> None:
        """Forget what is needed for the next snapshot only, since there is one up to an offset."""
        if offset > self._newest_offset:
            self._newest_offset = offset
            self._written = None
            self._noted = {
                name: headers for name, headers in self._noted.items() if name.base_offset >= offset
            }
            if len(self._known) > 2 * self._segment_count:
                self._known = {name: self._known[name] for name in self._noted}

    def _interval(self, seen: int) -> int:
        """Return after how many segments the next snapshot is due, behind one of so many."""
        return max(self._config.snapshot_interval_segments, seen // _GROWTH)

    def _due_after_anothers(self) -> int:
        """Look only for a newer snapshot; return what `due_after` would, 0 where there is none."""
        directory = self._directory
        listed = directory.store.list(
            directory.path, start_after=snapshot_name(self._newest_offset)
        )
        names = [file.name for file in listed]
        newest = max(filter(None, map(parse_snapshot_name, names)), default=0)
        if newest <= self._newest_offset:
            return 0
        since = [name.base_offset for file in names if (name := SegmentName.parse(file))]
        self._segment_count += len(since)
        self._forget_before(newest)
        count = sum(base_offset >= newest for base_offset in since)
        return self._interval(self._segment_count - count) - count

    def _begin(self, view: LogView, state: ProducerState | None) -> tuple[ProducerState, LogView]:
        """Return a state to go on from in a view: the given one, or the newest snapshot's."""
        has_looked_again = False
        while state is None or state.offset < view.log_start_offset:
            snapshot = self.newest(view)
            start = view.log_start_offset
            covers_start = snapshot is not None and snapshot.offset >= start
            if start and not covers_start and not has_looked_again:
                # A snapshot comes before the marker that moves the start, but a listing during
                # which both appeared may show the marker alone.
                has_looked_again = True
                view = self._directory.observe()
                continue
            state = ProducerState(start)
            if snapshot is not None and (covers_start or not start):
                state = ProducerState(snapshot.offset, snapshot.producers.entries())
        return state, view

    def _take_in(self, state: ProducerState, view: LogView) -> LiveSegment | None:
        """Bring a state up to the end of a view, or to where it leaves something out.

        Returns:
            The last segment that was taken in.

        Raises:
            OffsetOutOfRangeError: the state is older than the log's start.
            NotFoundError: a segment is gone, or may be.
            CorruptRecordError: a segment is damaged.
        """
        view.check_offset(min(state.offset, view.log_end_offset), self._directory.path)
        last: LiveSegment | None = None
        if state.offset < view.log_end_offset:
            first = view.live.index_of(state.offset)
            for segment in view.live.segments[first:]:
                end_offset, headers = self._headers(segment, view.observed_ms)
                state.take_in(segment.name.base_offset, headers, segment.file.modified_us)
                state.offset = max(state.offset, end_offset)
                last = segment
                if segment.end_offset not in (None, end_offset):
                    break
        return last

    def _headers(
        self, segment: LiveSegment, observed_ms: float
    ) -> tuple[int, Sequence[BatchHeader]]:
        """Return where a listed segment ends, and its headers; opens it unless they were noted.

        What it holds is known from then on.
        """
        known, noted = self._known_of(segment), self._noted.get(segment.name)
        if known is not None and noted is not None:
            return known.end_offset, noted
        reader = self._directory.open_listed(segment, observed_ms)
        headers = [header for _, found in reader.all_headers() for header in found]
        self._directory.check_unchanged(reader, observed_ms)
        if known is None:
            self._known[segment.name] = SegmentSummary.of_headers(segment.name, reader, headers)
        return reader.end_offset, headers

    def _path(self, offset: int) -> str:
        return self._directory.file_path(snapshot_name(offset))
