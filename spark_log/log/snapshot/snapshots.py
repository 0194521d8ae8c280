"""The snapshots of a partition: the newest one read, brought up to date, and written anew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import takewhile

from spark_log.config.config import TopicConfig
from spark_log.errors import NotFoundError, OffsetOutOfRangeError, StorageError
from spark_log.log.append.producer_state import ProducerState
from spark_log.log.file_names import SegmentName, parse_snapshot_name, snapshot_name
from spark_log.log.live_log import LiveSegment
from spark_log.log.partition_directory import LogView, PartitionDirectory
from spark_log.log.snapshot.snapshot import SegmentSummary, Snapshot
from spark_log.record.batch_header import BatchHeader

_MAX_KEPT = 2
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
        self._summaries: dict[SegmentName, SegmentSummary] = {}
        self._recent_headers: dict[SegmentName, tuple[BatchHeader, ...]] = {}
        self._newest: Snapshot | None = None
        self._state: ProducerState | None = None
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
            if self._newest is not None and self._newest.offset == offset:
                return self._newest
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
                self._directory.identities.load(snapshot.segments)
                self._newest = snapshot
                return self._newest
        return None

    def load_segment_ids(self, view: LogView) -> None:
        """Load the segments' append ids from the newest snapshot, where this costs no request.

        With them, a segment that was copied to the name of another one is detected.
        """
        directory = self._directory
        if directory.store.is_mapped:
            with directory.suppressed.suppress("snapshot", directory.path, StorageError):
                self.newest(view)

    def segments(self, view: LogView) -> tuple[list[SegmentSummary], LogView]:
        """Return what each live segment of a view holds, and the view.

        A newer view, where the log was rewritten since: summaries belong to what is returned.

        Raises:
            CorruptRecordError: a segment is damaged or missing.
        """
        doubted: LiveSegment | None = None
        while True:
            self._load_newest(view)
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
                self._summaries = found  # forget what is not live any more
                return list(found.values()), view
            view = self._directory.observe()

    def known_summaries(self, view: LogView) -> Iterator[SegmentSummary]:
        """Yield what the first segments of a view hold, as far as none has to be opened for it."""
        self._load_newest(view)
        summaries = map(self._known_summary, view.live.segments)
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
        if self._known_summary(segment) is None:
            self._headers(segment, observed_ms)
        return self._summaries[segment.name]

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
            state, view = self._initial_state(view, state)
            try:
                last = self._replay(state, view)
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

    def segments_until_due(self, view: LogView) -> int:
        """Return after how many more segments the next snapshot is due, 0 or less for now."""
        self._segment_count, newest = len(view.live.segments), view.live.snapshots[-1:]
        seen = 0
        if newest:
            at_end = newest[0] >= view.log_end_offset
            seen = self._segment_count if at_end else max(0, view.live.index_of(newest[0]))
            self._forget_up_to(newest[0])
        return self._interval(seen) - (self._segment_count - seen)

    def write_if_due(self) -> int:
        """Write a snapshot unless somebody did; return after how many segments to ask again."""
        segments_until_due = self._until_due_after_newer()
        if segments_until_due <= 0:
            view = self._directory.observe()
            segments_until_due = self.segments_until_due(view)
        if segments_until_due <= 0:
            self._write(*self._up_to_first_gap(view))
            segments_until_due = self._interval(self._segment_count)
        return segments_until_due

    def write(self, view: LogView | None = None) -> Snapshot:
        """Write a snapshot of the log as it is now; remove older ones.

        Harmless beside other writers, and when it fails.

        Args:
            view: of the log; None observes it.

        Raises:
            StorageError: it was not written.
            CorruptRecordError: a segment is damaged or missing.
        """
        state, view = self.producers(view or self._directory.observe(), self._state)
        self._state = None
        summaries, view = self.segments(view)
        return self._write(state, summaries, view)

    def _up_to_first_gap(
        self, view: LogView
    ) -> tuple[ProducerState, list[SegmentSummary], LogView]:
        """Return what a snapshot holds, up to where the view begins to leave something out.

        While others append a listing often does; to list again and again would cost more than the
        snapshot is worth.

        Raises:
            NotFoundError, OffsetOutOfRangeError: the log was rewritten, or its start moved, since.
        """
        # What was gathered is kept, also when it fails: a slow storage comes further each time.
        state, view = self._initial_state(view, self._state)
        self._state = state
        try:
            self._replay(state, view)
        except OffsetOutOfRangeError:
            self._state = None
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
        self._forget_up_to(snapshot.offset)
        self._state = state
        older = [offset for offset in view.live.snapshots if offset < snapshot.offset]
        for offset in older[: 1 - _MAX_KEPT]:
            directory.store.delete(self._path(offset))
        return snapshot

    def on_appended(self, summary: SegmentSummary, headers: tuple[BatchHeader, ...]) -> None:
        """Remember what a segment that was appended holds, so that it need not be opened."""
        self._summaries[summary.name] = summary
        self._recent_headers[summary.name] = headers

    def on_rewritten(self, summary: SegmentSummary) -> None:
        """Remember what a rewritten segment holds."""
        self._summaries[summary.name] = summary

    # --- what is known ---------------------------------------------------------------------------

    def _load_newest(self, view: LogView) -> None:
        """Read the newest snapshot, if there is anything in the view that it might tell of."""
        if any(segment.name not in self._summaries for segment in view.live.segments):
            snapshot = None
            # Without one segments tell, at a higher cost.
            directory = self._directory
            with directory.suppressed.suppress("snapshot", directory.path, StorageError):
                snapshot = self.newest(view)
            if snapshot is not None:
                self._summaries = {each.name: each for each in snapshot.segments} | self._summaries

    def _known_summary(self, segment: LiveSegment) -> SegmentSummary | None:
        known = self._summaries.get(segment.name)
        return known if known and known.size_bytes == segment.file.size_bytes else None

    def _forget_up_to(self, offset: int) -> None:
        """Forget what is needed for the next snapshot only, since there is one up to an offset."""
        if offset > self._newest_offset:
            self._newest_offset = offset
            self._state = None
            self._recent_headers = {
                name: headers
                for name, headers in self._recent_headers.items()
                if name.base_offset >= offset
            }
            if len(self._summaries) > 2 * self._segment_count:
                self._summaries = {name: self._summaries[name] for name in self._recent_headers}

    def _interval(self, seen: int) -> int:
        """Return after how many segments the next snapshot is due, behind one of so many."""
        return max(self._config.snapshot_interval_segments, seen // _GROWTH)

    def _until_due_after_newer(self) -> int:
        """Return `segments_until_due` by a newer snapshot of another process, 0 without one."""
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
        self._forget_up_to(newest)
        count = sum(base_offset >= newest for base_offset in since)
        return self._interval(self._segment_count - count) - count

    def _initial_state(
        self, view: LogView, state: ProducerState | None
    ) -> tuple[ProducerState, LogView]:
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

    def _replay(self, state: ProducerState, view: LogView) -> LiveSegment | None:
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
                state.replay(segment.name.base_offset, headers, segment.file.modified_us)
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
        known, noted = self._known_summary(segment), self._recent_headers.get(segment.name)
        if known is not None and noted is not None:
            return known.end_offset, noted
        reader = self._directory.open_listed(segment, observed_ms)
        headers = [header for _, found in reader.all_headers() for header in found]
        self._directory.check_unchanged(reader, observed_ms)
        if known is None:
            self._summaries[segment.name] = SegmentSummary.of_headers(segment.name, reader, headers)
        return reader.end_offset, headers

    def _path(self, offset: int) -> str:
        return self._directory.file_path(snapshot_name(offset))
