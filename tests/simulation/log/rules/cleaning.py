"""Mergers, cleaners and snapshots without one of the safety rules of the log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa

from spark_log.config import TopicConfig
from spark_log.errors import AlreadyExistsError
from spark_log.log import LocalLog, SegmentReader, SegmentWriter
from spark_log.log.append.appender import Appender, PutOutcome
from spark_log.log.append.merge_task import MergedSegment
from spark_log.log.append.tail_merger import TailMerger
from spark_log.log.append.unsettled_puts import UnsettledPuts
from spark_log.log.clean.cleaner import PartitionCleaner
from spark_log.log.directory.log_end import LogEnd
from spark_log.log.directory.log_view import DirectoryListing, LogView
from spark_log.log.directory.partition_directory import PartitionDirectory
from spark_log.log.files.file_names import SegmentName, StartMarker
from spark_log.log.files.live_segments import LiveSegment
from spark_log.log.producers.producer_state import ProducerState
from spark_log.log.rewrite import merger
from spark_log.log.rewrite.file_deletion import DeletableFiles, find_deletable
from spark_log.log.rewrite.recent_batches import RecentBatch, RecentBatches, joined_batch
from spark_log.log.segment.staged_segment import StagedSegment
from spark_log.log.segment.summary import SegmentSummary
from spark_log.log.snapshot.snapshot import Snapshot
from spark_log.log.snapshot.snapshots import Snapshots
from spark_log.record.batch_header import BatchHeader
from spark_log.record.checksum import batch_crc32c
from tests.simulation.log.maintenance import Cleaner, Merger, Retention
from tests.simulation.log.rules.variant import Variant, appending, plain_name
from tests.simulation.log.true_log import DIRECTORY, TOPIC_ID
from tests.simulation.wall_clocks import UNLIMITED_MS, OwnTime


class _DropsHeaders(Merger):
    """Keeps the records, but writes new batch headers without producer ids."""

    def _merge(self, view: LogView, first: int, last: int) -> SegmentName:
        segments = view.live.segments[first : last + 1]
        name = SegmentName(
            segments[0].start_offset,
            (segments[-1].end_offset or view.log_end_offset) - 1,
            1 + max(segment.name.generation for segment in segments),
        )
        directory = self._world.directory()
        writer = SegmentWriter(directory.store, DIRECTORY, topic_id=TOPIC_ID, partition=0)
        assert name.last_offset is not None
        for position, _, reader in directory.walk(view, name.base_offset, name.last_offset + 1):
            for batch in reader.read(position, name.last_offset + 1):
                writer.write(batch.records)
        with suppress(AlreadyExistsError):
            path = directory.file_path(name.file_name)
            directory.store.put_if_absent(path, writer.finish().staged)
        return name


def _joins_all_headers(
    headers: Sequence[BatchHeader], records: pa.RecordBatch
) -> tuple[BatchHeader, ...]:
    """Joins the headers of adjacent batches of different producers."""
    joined = replace(
        headers[0],
        last_offset_delta=headers[-1].last_offset_delta,
        max_timestamp_us=max(header.max_timestamp_us for header in headers),
        record_count=records.num_rows,
    )
    return (replace(joined, crc32c=batch_crc32c(joined, records)),)


class _TakesAll(PartitionDirectory):
    """Takes the records of a wider merged segment for those of the segments to be merged."""

    def walk(
        self,
        view: LogView,
        start_offset: int,
        end_offset: int,
        last: SegmentReader | None = None,
    ) -> Iterator[tuple[int, LiveSegment, SegmentReader]]:
        for position, segment, reader in super().walk(view, start_offset, end_offset, last):
            reader.__dict__["end_offset"] = min(reader.end_offset, end_offset)
            yield position, segment, reader


class _MergesPartsOfWider(Merger):
    def _merge(self, view: LogView, first: int, last: int) -> SegmentName:
        return merger.merge(self._world.directory(_TakesAll), view, first, last).name


class _RemembersForEver(TailMerger):
    """Takes the log end that it once knew for the current one, however old it is."""

    def _is_remembered(self) -> bool:
        self._observed_ms = self._clock.monotonic_ms()
        return super()._is_remembered()


class _FreesItsOwnAtOnce(TailMerger):
    def on_merged(self, merged: Sequence[MergedSegment]) -> None:
        now_ms = self._clock.monotonic_ms()
        super().on_merged([replace(each, deletable_ms=now_ms) for each in merged])


def _forgets_producers(
    base_offset: int, start_offset: int, batches: Sequence[RecentBatch], most_records: int
) -> tuple[tuple[BatchHeader, ...], pa.RecordBatch]:
    """Takes the records of recent batches, and gives them a header without a producer."""
    headers, records = joined_batch(base_offset, start_offset, batches, most_records)
    joined = replace(
        headers[0],
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        last_offset_delta=headers[-1].last_offset_delta,
        max_timestamp_us=max(header.max_timestamp_us for header in headers),
        record_count=records.num_rows,
    )
    return (replace(joined, crc32c=batch_crc32c(joined, records)),), records


class _KeepsWhatLost(Appender):
    """Keeps the records of a put that lost its race, as if they were in the log."""

    def _try_put(self, segment: StagedSegment, end: LogEnd, puts: UnsettledPuts) -> PutOutcome:
        outcome = super()._try_put(segment, end, puts)
        if outcome is PutOutcome.LOST_RACE and segment.content is not None:
            base_offset = end.log_end_offset
            lost = RecentBatch(
                base_offset + segment.record_count,
                segment.size_bytes,
                segment.compression,
                segment.packed_headers,
                segment.content,
            )
            self.derived.merger._recent.add(base_offset, lost)
        return outcome


class _TakesWhatItHas(RecentBatches):
    """Leaves out the segments that it does not have."""

    def take(self, segments: Iterable[tuple[int, int, int]]) -> list[RecentBatch] | None:
        """Return the batches of those segments that are known; None if none is."""
        found: list[RecentBatch] = []
        for each in segments:
            found += super().take([each]) or ()
        return found or None


class _MergesWhatItHas(TailMerger):
    """Merges the segments that are in memory as if they were all of the run."""

    def __init__(self, directory: PartitionDirectory, config: TopicConfig) -> None:
        super().__init__(directory, config)
        self._recent = _TakesWhatItHas()


def _tail_merging(merger_class: type[TailMerger]) -> Variant:
    class Merging(Appender):
        def __init__(
            self,
            directory: PartitionDirectory,
            snapshots: Snapshots,
            config: TopicConfig,
            **options: Any,
        ) -> None:
            super().__init__(directory, snapshots, config, **options)
            self.derived.merger = merger_class(directory, config)

    return appending(Merging)


def _cleaning(cleaner_class: type[PartitionCleaner]) -> Variant:
    """Return the variant whose cleaners use another class."""
    cleaner: type[Cleaner] = type("Cleaning", (Cleaner,), {"cleaner_class": cleaner_class})
    return Variant(cleaner=cleaner)


class _FreesAtOnce(PartitionCleaner):
    def _deletable(self, listing: DirectoryListing | None = None) -> DeletableFiles:
        at_once = find_deletable(self._log.files, 0)
        return replace(super()._deletable(listing), segments=at_once.segments)


class _FreesWithoutCover(PartitionCleaner):
    """Deletes old segments that no rewritten segment covers."""

    def _deletable(self, listing: DirectoryListing | None = None) -> DeletableFiles:
        directory = self._log.files
        old_us = self._now_us - self._config.file_delete_delay_ms * 1000
        files = directory.store.list(directory.path)
        old = [file for file in files if file.modified_us <= old_us]
        return DeletableFiles(segments=tuple(file for file in old[:-1] if plain_name(file)))


class _GoesByItsOwnClock(Cleaner):
    storage_clock_class = OwnTime


class _CleansAtAnyTime(PartitionCleaner):
    """Does not compare its clock with the storage's."""

    def __init__(self, log: LocalLog, **settings: Any) -> None:
        super().__init__(log, **{**settings, "max_clock_skew_ms": UNLIMITED_MS})


class _RemovesMarkersAtOnce(PartitionCleaner):
    def _deletable(self, listing: DirectoryListing | None = None) -> DeletableFiles:
        at_once = find_deletable(self._log.files, 0)
        return replace(super()._deletable(listing), markers=at_once.markers)


class _RemovesEveryOther(Retention):
    """Removes all start markers but its own."""

    def _delete_records(self, log: LocalLog, offset: int) -> None:
        super()._delete_records(log, offset)
        for file in list(log.files.store.list(DIRECTORY)):
            marker = StartMarker.parse(file.name)
            if marker is not None and marker.log_start_offset != offset:
                log.files.store.delete(file.path)


class _DatesByItsOwnClock(Snapshots):
    """Leaves producers that have expired by its own wall clock out of a snapshot."""

    def _write(
        self, state: ProducerState, summaries: list[SegmentSummary], view: LogView
    ) -> Snapshot:
        live = replace(view.live, newest_us=self._directory.clock.time_us())
        return super()._write(state, summaries, replace(view, live=live))


class _ForgetsByItsOwnClock(LocalLog):
    snapshots_class = _DatesByItsOwnClock


class _WritesNothing(Snapshots):
    def write(self, *_: Any, **__: Any) -> Snapshot:
        return Snapshot(0, (), ProducerState())


class _SavesNothing(LocalLog):
    snapshots_class = _WritesNothing


CLEANING_RULES: dict[str, Variant] = {
    "a rewrite keeps batch headers": Variant(merger=_DropsHeaders),
    "only headers that follow each other are joined": Variant(
        patches=((merger, "joined_headers", _joins_all_headers),)
    ),
    "a merge from memory keeps batch headers": Variant(
        patches=((merger, "joined_batch", _forgets_producers),)
    ),
    "a merge from memory takes only segments that were put": appending(_KeepsWhatLost),
    "a merge from memory has each of its segments": _tail_merging(_MergesWhatItHas),
    "a merge of a part of a wider merge is given up": Variant(merger=_MergesPartsOfWider),
    "an appender merges only by a recent listing": _tail_merging(_RemembersForEver),
    "an appender frees names after the delay": _tail_merging(_FreesItsOwnAtOnce),
    "a name is freed after the delay": _cleaning(_FreesAtOnce),
    "a name is freed only when it is covered": _cleaning(_FreesWithoutCover),
    "a start marker is removed only for a higher one": Variant(retention=_RemovesEveryOther),
    "a start marker is removed after the delay": _cleaning(_RemovesMarkersAtOnce),
    "a snapshot comes before the start moves": Variant(log=_SavesNothing),
    "the age of a file is by the storage's time": Variant(cleaner=_GoesByItsOwnClock),
    "a process with a wrong clock cleans nothing": _cleaning(_CleansAtAnyTime),
    "a snapshot forgets producers by the storage's time": Variant(log=_ForgetsByItsOwnClock),
}
"""The name of each safety rule of merges, deletions and snapshots, and the variant without it."""
