"""The snapshots of a partition: the newest one read, brought up to date, and written anew."""

from __future__ import annotations

from contextlib import suppress

from spark_log.config import TopicConfig
from spark_log.errors import NotFoundError, OffsetOutOfRangeError, StorageError
from spark_log.log.file_names import SegmentName, snapshot_name
from spark_log.log.live_log import LiveSegment
from spark_log.log.partition_directory import LogView, PartitionDirectory
from spark_log.log.producer_state import ProducerState
from spark_log.log.snapshot import SegmentSummary, Snapshot

_KEPT = 2
"""Snapshots kept: the newest, and one for whoever listed before it came."""

_GROWTH = 10
"""A snapshot is due when the log has grown by a tenth at least, so that writing snapshots costs an
append a constant, however many segments there are."""


class Snapshots:
    """What is known of a partition's segments and producers without opening every segment.

    Keeps what it has learnt of segments; they never change.
    """

    def __init__(self, directory: PartitionDirectory, config: TopicConfig) -> None:
        self._directory = directory
        self._config = config
        self._known: dict[SegmentName, SegmentSummary] = {}

    def newest(self, view: LogView) -> Snapshot | None:
        """Return the newest readable snapshot that a listing shows, None if there is none."""
        for offset in reversed(view.live.snapshots):
            if offset > view.log_end_offset:
                continue
            with suppress(StorageError, ValueError):  # deleted since, or damaged
                return Snapshot.from_buffer(
                    self._directory.store.open_buffer(self._path(offset)),
                    topic_id=self._directory.topic_id,
                    partition=self._directory.partition,
                )
        return None

    def segments(self, view: LogView) -> tuple[list[SegmentSummary], LogView]:
        """Return what each live segment of a view holds, and the view.

        A newer view, where the log was rewritten since: summaries belong to what is returned.

        Raises:
            CorruptRecordError: a segment is damaged or missing.
        """
        doubted: LiveSegment | None = None
        while True:
            if any(segment.name not in self._known for segment in view.live.segments):
                snapshot = self.newest(view)
                if snapshot is not None:
                    self._known = {each.name: each for each in snapshot.segments} | self._known
            found: dict[SegmentName, SegmentSummary] = {}
            for segment in view.live.segments:
                summary = self._summary(segment)
                if summary is None:
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
        has_looked_again = False
        while True:
            if state is None or state.offset < view.log_start_offset:
                snapshot = self.newest(view)
                start = view.log_start_offset
                covers_start = snapshot is not None and snapshot.offset >= start
                if start and not covers_start and not has_looked_again:
                    # A snapshot comes before the marker that moves the start, but a listing during
                    # which both appeared may show the marker alone.
                    has_looked_again = True
                    view = self._directory.observe()
                    continue
                use = snapshot is not None and (covers_start or not start)
                state = snapshot.producers if snapshot is not None and use else ProducerState(start)
            try:
                self._take_in(state, view)
            except OffsetOutOfRangeError:
                state = None
            else:
                if state.offset == view.log_end_offset:
                    return state, view
            # The start moved on, or a rewritten segment reaches behind the end of the view.
            view = self._directory.observe()

    def due_after(self, view: LogView) -> int:
        """Return after how many more segments the next snapshot is due, 0 or less for now."""
        count, newest = len(view.live.segments), view.live.snapshots[-1:]
        seen = 0
        if newest:
            at_end = newest[0] >= view.log_end_offset
            seen = count if at_end else max(0, view.live.index_of(newest[0]))
        return max(self._config.snapshot_interval_segments, count // _GROWTH) - (count - seen)

    def write_if_due(self) -> int:
        """Write a snapshot unless somebody did; return after how many segments to ask again."""
        view = self._directory.observe()
        due_after = self.due_after(view)
        if due_after <= 0:
            due_after = max(
                self._config.snapshot_interval_segments, len(self.write(view).segments) // _GROWTH
            )
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
        directory = self._directory
        state, view = self.producers(view or directory.observe())
        summaries, view = self.segments(view)
        snapshot = Snapshot(
            state.offset,
            tuple(summary for summary in summaries if summary.end_offset <= state.offset),
            state.without_expired(
                now_us=directory.clock.time_us(),
                expiration_ms=self._config.producer_id_expiration_ms,
            ),
        )
        data = snapshot.to_buffer(topic_id=directory.topic_id, partition=directory.partition)
        directory.store.put(self._path(snapshot.offset), data)
        older = [offset for offset in view.live.snapshots if offset < snapshot.offset]
        for offset in older[: 1 - _KEPT]:
            directory.store.delete(self._path(offset))
        return snapshot

    def note(self, summary: SegmentSummary) -> None:
        """Remember what a segment of one's own holds."""
        self._known[summary.name] = summary

    def _take_in(self, state: ProducerState, view: LogView) -> None:
        end_offset = view.log_end_offset
        for _, segment, reader in self._directory.walk(view, state.offset, end_offset):
            for ordinal in range(reader.batch_count):
                headers = reader.headers(ordinal)
                state.take_in(reader.base_offset, headers, segment.file.modified_us)
        state.offset = max(state.offset, end_offset)

    def _summary(self, segment: LiveSegment) -> SegmentSummary | None:
        known = self._known.get(segment.name)
        if known is not None and known.size_bytes == segment.file.size_bytes:
            return known
        try:
            reader = self._directory.open(segment.name)
        except NotFoundError:
            return None
        summary = self._known[segment.name] = SegmentSummary.of_stored(segment.name, reader)
        return summary

    def _path(self, offset: int) -> str:
        return self._directory.file_path(snapshot_name(offset))
