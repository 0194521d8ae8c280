"""The snapshots of a partition: the newest one is read, brought up to date, and written anew."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import takewhile
from typing import TYPE_CHECKING

from spark_log.errors import (
    CorruptRecordError,
    NotFoundError,
    OffsetOutOfRangeError,
    StorageError,
)
from spark_log.log.cache_budget import LOG_CACHES, LogCache
from spark_log.log.directory import LogView, OpenedSegments, PartitionDirectory, open_in_order
from spark_log.log.files import LiveSegment, SegmentName, parse_snapshot_name, snapshot_name
from spark_log.log.producers import ProducerState
from spark_log.log.segment import SegmentReader, SegmentSummary
from spark_log.log.snapshot.summaries import SegmentSummaries

if TYPE_CHECKING:
    from spark_log.config import TopicConfig
    from spark_log.log.snapshot.snapshot import Snapshot

_log = logging.getLogger(__name__)

_MAX_KEPT = 2
"""Number of snapshots kept: the newest, and the one before it for a reader with an older
listing."""

_SUMMARY_BYTES = 350
"""Approximate memory of a segment's summary, as an object."""

_PRODUCER_BYTES = 1_200
"""Approximate memory of the state of one producer with five runs."""

_GROWTH = 4
"""A snapshot is due when the log has grown by at least a quarter. Therefore the cost of snapshots
per append is constant, no matter how many segments the log has."""


class Snapshots(LogCache):
    """Segment summaries and producer state of one partition, without opening every segment.

    Attributes:
        summaries: the known segment summaries.
    """

    def __init__(self, directory: PartitionDirectory, config: TopicConfig | None = None) -> None:
        self.summaries = SegmentSummaries(directory)
        self._directory = directory
        self._given_config = config
        self._share = LOG_CACHES.share(self)
        self._newest: Snapshot | None = None
        self._state: ProducerState | None = None
        self._newest_offset = 0
        self._segment_count = 0

    @property
    def _config(self) -> TopicConfig:
        """The topic's settings; the defaults if none were given, as for a process that reads."""
        from spark_log.config import TopicConfig  # late: only writing a snapshot needs them

        return self._given_config or TopicConfig()

    def drop(self) -> None:
        """Forget the newest snapshot. The next use reads it again."""
        self._newest = None

    @property
    def newest_offset(self) -> int:
        """The offset of the newest snapshot that this object has written or seen; 0 without one."""
        return self._newest_offset

    # --- reading ---------------------------------------------------------------------------------

    def newest(self, view: LogView) -> Snapshot | None:
        """Return the newest valid snapshot that a listing shows; None without one.

        Raises:
            StorageError: the storage does not answer, so it is not known whether one exists.
        """
        for offset in reversed(view.live.snapshots):
            if offset > view.log_end_offset:
                continue
            newest = self._newest
            if newest is not None and newest.offset == offset:
                self._directory.identities.load(offset, newest.segments)
                return newest
            # A late import: a process that sends a few records to a young log has no snapshot.
            from spark_log.log.snapshot.snapshot import Snapshot

            directory = self._directory
            # If it was deleted since, or is damaged, an older one may exist.
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
                self._directory.identities.load(offset, snapshot.segments)
                self._newest = snapshot
                producers = sum(1 for _ in snapshot.producers.entries())
                self._share.hold(
                    len(snapshot.segments) * _SUMMARY_BYTES + producers * _PRODUCER_BYTES
                )
                return snapshot
        return None

    def load_segment_ids(self, view: LogView) -> None:
        """Load the segments' append ids from the newest snapshot if this costs no request.

        With these ids, a segment that was copied to the name of another one is detected.
        """
        directory = self._directory
        if not directory.store.is_local:
            return
        newest = max(
            (each for each in view.live.snapshots if each <= view.log_end_offset), default=0
        )
        if newest != directory.identities.snapshot_offset:
            with directory.suppressed.suppress("snapshot", directory.path, StorageError):
                self.newest(view)
            self._newest = None  # a reader needs nothing else of it

    def segments(
        self,
        view: LogView,
        last: SegmentReader | None = None,
        opened: OpenedSegments | None = None,
    ) -> tuple[list[SegmentSummary], LogView]:
        """Return the summaries of a view's live segments, and the view that they belong to.

        The returned view is newer than the given one if the log was rewritten meanwhile.

        Args:
            view: the log's view.
            last: reader of the view's last segment if it is open, so that it is not opened again.
            opened: the open segments; small ones that this call opens are added to it.

        Raises:
            CorruptRecordError: a segment is damaged or missing.
        """
        doubted: LiveSegment | None = None
        while True:
            found: dict[SegmentName, SegmentSummary] = {}
            try:
                summaries = self._summaries(view, view.live.segments, last, opened)
            except NotFoundError:
                view, last = self._directory.observe_and_open()
                continue
            for segment, summary in zip(view.live.segments, summaries, strict=True):
                if segment.end_offset not in (None, summary.end_offset):
                    if segment == doubted:
                        raise self._directory.missing(segment, summary.end_offset)
                    doubted = segment  # the listing may lack a segment that appeared during it
                    break
                found[segment.name] = summary
            else:
                self.summaries.replace(found)
                return list(found.values()), view
            view, last = self._directory.observe_and_open()

    def _summaries(
        self,
        view: LogView,
        segments: Sequence[LiveSegment],
        last: SegmentReader | None = None,
        opened: OpenedSegments | None = None,
    ) -> list[SegmentSummary]:
        """Return the summaries of segments of a view; open those that are not known."""
        known, observed_ms = self._known(view, segments), view.observed_ms
        unknown = [each for each, it in zip(segments, known, strict=True) if it is None]
        is_last_open = last is not None and bool(unknown) and unknown[-1] is segments[-1]
        if is_last_open:
            known[-1] = self.summaries.get(unknown.pop(), observed_ms, last)
        opening = open_in_order(self._directory, unknown, observed_ms, opened)
        summaries: list[SegmentSummary] = []
        for segment, summary in zip(segments, known, strict=True):
            if summary is not None:
                summaries.append(summary)
                continue
            _, reader = next(opening)
            summaries.append(self.summaries.get(segment, observed_ms, reader))
            if opened is not None:
                opened.keep(segment, reader)
        return summaries

    def _known(self, view: LogView, segments: Sequence[LiveSegment]) -> list[SegmentSummary | None]:
        """Return the known summaries of segments of a view; None for each that is not known.

        If any summary is not known, the newest snapshot is loaded. Its summaries are used directly,
        since the cache may have no room for those of a long log.
        """
        known = [self.summaries.known(each) for each in segments]
        if None not in known:
            return known
        snapshot = None
        # Without a snapshot the segments are opened, at a higher cost.
        directory = self._directory
        with directory.suppressed.suppress("snapshot", directory.path, StorageError):
            snapshot = self.newest(view)
        if snapshot is None:
            return known
        self.summaries.load(snapshot.segments)
        loaded = {each.name: each for each in snapshot.segments}
        for at, segment in enumerate(segments):
            summary = loaded.get(segment.name)
            is_same = summary is not None and summary.size_bytes == segment.file.size_bytes
            if known[at] is None and is_same:
                known[at] = summary
        return known

    def known_summaries(self, view: LogView) -> Iterator[SegmentSummary]:
        """Yield the summaries of the first segments of a view, up to the first that is not known.

        No segment is opened.
        """
        known = self._known(view, view.live.segments)
        return (each for each in takewhile(lambda each: each is not None, known) if each)

    def initial_state(
        self, view: LogView, state: ProducerState | None
    ) -> tuple[ProducerState, LogView]:
        """Return the state to replay a view on: the given one, or that of the newest snapshot.

        A state with open transactions is not continued after a compaction. It may have removed a
        marker that the state lacks, with the records of its transaction; a later marker of the
        producer would decide both.

        If no valid snapshot covers the log start offset, the producers of deleted records are
        unknown, as in Kafka (``ProducerStateManager.loadFromSnapshot``). They cannot be
        distinguished from new producers, so their appends are accepted, and a warning is counted
        and logged.
        """
        if state is not None and (
            state.transactions.first_open is not None
            and state.compaction_generation != view.live.compaction_generation
        ):
            state = None
        if state is not None and state.is_overgrown:
            newest = self.newest(view)
            if newest is not None and newest.offset >= view.log_start_offset:
                state = None  # the snapshot lacks those that have expired
            else:
                state.accept_size()
        has_looked_again = False
        while state is None or state.offset < view.log_start_offset:
            snapshot = self.newest(view)
            start = view.log_start_offset
            covers_start = snapshot is not None and snapshot.offset >= start
            if start and not covers_start and not has_looked_again:
                # A snapshot is written before the marker that moves the start. But a listing during
                # which both appeared may show the marker alone.
                has_looked_again = True
                view = self._directory.observe()
                continue
            state = ProducerState(start)
            if snapshot is not None and (covers_start or not start):
                known = snapshot.producers
                state = ProducerState(snapshot.offset, known.entries(), known.transactions.copy())
            elif start:
                self._warn_of_unknown_producers(start)
        state.compaction_generation = view.live.compaction_generation
        return state, view

    def producers(
        self,
        view: LogView,
        state: ProducerState | None = None,
        opened: OpenedSegments | None = None,
    ) -> tuple[ProducerState, LogView]:
        """Return the producer state at the end of a view, and the view that it belongs to.

        The returned view is newer than the given one if that was outdated or incomplete.

        Args:
            view: the log's view.
            state: an earlier state, which is updated; None begins with the newest snapshot.
            opened: the open segments, which are not opened again.

        Raises:
            CorruptRecordError: a segment is damaged or missing.
        """
        hole: LiveSegment | None = None
        ahead_of: int | None = None
        while True:
            state, view = self.initial_state(view, state)
            try:
                last = self._replay(state, view, opened)
            except OffsetOutOfRangeError:
                state = None  # the log start offset has moved
            except NotFoundError:
                pass
            else:
                if state.offset == view.log_end_offset:
                    return state, view
                # A rewritten segment may reach behind the end of the view. Or the listing lacks a
                # segment that appeared during it; a second listing does not lack it too.
                if state.offset < view.log_end_offset and last is not None and last == hole:
                    raise self._directory.missing(last, state.offset)
                hole = last
                if state.offset > view.log_end_offset:
                    if ahead_of == view.log_end_offset:
                        state = None  # of another log, which was deleted with its topic, say
                    ahead_of = view.log_end_offset
            view = self._directory.observe()

    def transactions(
        self, view: LogView, state: ProducerState | None = None
    ) -> tuple[ProducerState, LogView]:
        """Return the state of `producers` with all transactions at the end of a view.

        If the newest snapshot was written by a version without transactions, the headers of all
        segments are read.

        Args:
            view: the log's view.
            state: an earlier state, which is updated; None begins with the newest snapshot.

        Raises:
            CorruptRecordError: a segment is damaged or missing.
        """
        state, view = self.producers(view, state)
        while not state.transactions.is_complete:
            replayed, view = self.producers(view, ProducerState(view.log_start_offset))
            state, view = self.producers(view, state)
            if state.offset == replayed.offset and replayed.transactions.is_complete:
                state.complete(replayed)
        state.transactions.log_start_offset = view.log_start_offset
        return state, view

    # --- writing ---------------------------------------------------------------------------------

    def segments_until_due(self, view: LogView) -> int:
        """Return the number of segments until the next snapshot is due; 0 or less if it is due."""
        self._segment_count, newest = len(view.live.segments), view.live.snapshots[-1:]
        seen = 0
        if newest:
            at_end = newest[0] >= view.log_end_offset
            seen = self._segment_count if at_end else max(0, view.live.index_of(newest[0]))
            self._on_snapshot(newest[0])
        return self._interval(seen) - (self._segment_count - seen)

    def write_if_due(self) -> int:
        """Write a snapshot unless another process has; return the segments until the next check."""
        segments_until_due = self._until_due_after_newer()
        if segments_until_due <= 0:
            view = self._directory.observe()
            segments_until_due = self.segments_until_due(view)
        if segments_until_due <= 0:
            self._write(*self._up_to_first_gap(view))
            segments_until_due = self._interval(self._segment_count)
        return segments_until_due

    def write(self, view: LogView | None = None) -> Snapshot:
        """Write a snapshot of the log as it is now, and delete older ones.

        Several processes may write one at once. After an error the older snapshots still exist.

        Args:
            view: the log's view; None lists the log.

        Raises:
            StorageError: the snapshot was not written.
            CorruptRecordError: a segment is damaged or missing.
        """
        state, view = self.transactions(view or self._directory.observe(), self._state)
        self._state = None
        summaries, view = self.segments(view)
        return self._write(state, summaries, view)

    def begin_log(self, state: ProducerState) -> None:
        """Write the snapshot of a log that begins with the state's offset, and has no segments yet.

        It has the producers whose records this log will not have.

        Raises:
            StorageError: the snapshot was not written.
        """
        from spark_log.log.snapshot.snapshot import Snapshot  # late, as in `newest`

        directory = self._directory
        data = Snapshot(state.offset, (), state).to_buffer(
            topic_id=directory.topic_id, partition=directory.partition
        )
        directory.store.put(self._path(state.offset), data)

    def _up_to_first_gap(
        self, view: LogView
    ) -> tuple[ProducerState, list[SegmentSummary], LogView]:
        """Return the content of a snapshot up to the first segment that the view lacks.

        A listing often lacks segments while other processes append. Repeated listings would cost
        more than the snapshot is worth.

        Raises:
            NotFoundError, OffsetOutOfRangeError: the log was rewritten since, or its start moved.
        """
        # The state is kept also after an error: on a slow storage each call gets further.
        state, view = self.initial_state(view, self._state)
        self._state = state
        try:
            self._replay(state, view)
        except OffsetOutOfRangeError:
            self._state = None
            raise
        segments = view.live.segments[: view.live.index_of(state.offset - 1) + 1]
        return state, self._summaries(view, segments), view

    def _write(
        self, state: ProducerState, summaries: list[SegmentSummary], view: LogView
    ) -> Snapshot:
        from spark_log.log.snapshot.snapshot import Snapshot  # late, as in `newest`

        directory = self._directory
        ends = [each.end_offset for each in summaries if each.end_offset <= state.offset]
        state.transactions.compact([view.log_start_offset, *ends])
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
        _log.debug(
            "%s: wrote the snapshot of offset %d, %d segments, %d bytes",
            directory.path,
            snapshot.offset,
            len(snapshot.segments),
            data.size,
        )
        self._segment_count = len(summaries)
        self._on_snapshot(snapshot.offset)
        self._state = state
        older = [offset for offset in view.live.snapshots if offset < snapshot.offset]
        for offset in older[: 1 - _MAX_KEPT]:
            directory.store.delete(self._path(offset))
        return snapshot

    def _on_snapshot(self, offset: int) -> None:
        """Drop state that only the snapshot up to ``offset`` needed, since it exists."""
        if offset > self._newest_offset:
            self._newest_offset = offset
            self._state = None
            self.summaries.drop_before(offset, self._segment_count)

    def _interval(self, seen: int) -> int:
        """Return the number of segments between a snapshot of ``seen`` segments and the next."""
        return max(self._config.snapshot_interval_segments, seen // _GROWTH)

    def _until_due_after_newer(self) -> int:
        """Return `segments_until_due` by a newer snapshot of another process; 0 without one."""
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
        self._on_snapshot(newest)
        count = sum(base_offset >= newest for base_offset in since)
        return self._interval(self._segment_count - count) - count

    # --- the state of a view ---------------------------------------------------------------------

    def _warn_of_unknown_producers(self, log_start_offset: int) -> None:
        directory = self._directory
        error = CorruptRecordError(
            f"the log starts at offset {log_start_offset}, and no snapshot of this offset or a "
            f"later one can be read. So idempotent producers are known by the remaining records "
            f"alone: a retry of an append whose records were deleted would append them again, and "
            f"older epochs of its producer are not refused. Restore a .snapshot file from a copy, "
            f"if you have one",
            path=directory.path,
        )
        directory.suppressed.add("reading of producers", directory.path, error)

    def _replay(
        self, state: ProducerState, view: LogView, opened: OpenedSegments | None = None
    ) -> LiveSegment | None:
        """Replay the segments of a view on a state, up to its end or to a segment that it lacks.

        Returns:
            The last segment that was replayed.

        Raises:
            OffsetOutOfRangeError: the state is older than the log start offset.
            NotFoundError: a segment was deleted, or may have been.
            CorruptRecordError: a segment is damaged.
        """
        view.check_offset(min(state.offset, view.log_end_offset), self._directory.path)
        last: LiveSegment | None = None
        if state.offset < view.log_end_offset:
            first = view.live.index_of(state.offset)
            segments = view.live.segments[first:]
            known = [self.summaries.known_headers(each) for each in segments]
            unread = [each for each, it in zip(segments, known, strict=True) if it is None]
            opening = open_in_order(self._directory, unread, view.observed_ms, opened)
            for segment, it in zip(segments, known, strict=True):
                end_offset, headers = it or self.summaries.headers(
                    segment, view.observed_ms, next(opening)[1]
                )
                state.replay(segment.name.base_offset, headers, segment.file.modified_us)
                state.offset = max(state.offset, end_offset)
                last = segment
                if segment.end_offset not in (None, end_offset):
                    break
        return last

    def _path(self, offset: int) -> str:
        return self._directory.file_path(snapshot_name(offset))
