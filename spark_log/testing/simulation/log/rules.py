"""Variants of the log without one of the safety rules of docs/protocol.md.

A variant consists of subclasses in which one rule is missing, as a developer might write them who
does not know the rule. The tests check that the simulator finds a violation of each variant: so
every rule is needed, and the simulator is able to find violations. The package itself has no
switch for its rules.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from spark_log.errors import (
    AlreadyExistsError,
    InvalidProducerEpochError,
    NotFoundError,
    OutOfOrderSequenceError,
    StorageError,
    UnknownOutcomeError,
)
from spark_log.log import LogAppendInfo, PartitionLog, SegmentReader, SegmentWriter
from spark_log.log.append.appender import Appender
from spark_log.log.append.appender_state import AppenderState
from spark_log.log.append.log_tail import LogTail, PutResult
from spark_log.log.append.producer_state import ProducerState
from spark_log.log.append.tail_merger import TailMerger
from spark_log.log.clean import merger
from spark_log.log.clean.cleaner import PartitionCleaner
from spark_log.log.clean.file_deletion import DeletableFiles, find_deletable
from spark_log.log.file_names import SegmentName, StartMarker
from spark_log.log.live_log import LiveLog, LiveSegment, live_log
from spark_log.log.log_reader import LogReader
from spark_log.log.partition_directory import LogView, PartitionDirectory
from spark_log.log.segment.staged_segment import StagedSegment
from spark_log.log.snapshot.snapshot import SegmentSummary, Snapshot
from spark_log.log.snapshot.snapshots import Snapshots
from spark_log.log.tail_view import TailView
from spark_log.record.batch_header import BatchHeader
from spark_log.record.checksum import batch_crc32c
from spark_log.storage import FileInfo, storage_time_us
from spark_log.testing.simulation.log.maintenance import Cleaner, Merger, Retention
from spark_log.testing.simulation.log.true_log import DIRECTORY, TOPIC_ID
from spark_log.testing.simulation.patches import Patch


@dataclass(frozen=True, slots=True)
class Variant:
    """The classes that one simulation uses.

    Attributes:
        log: the partition log that all actors use.
        merger: the actor that merges segments.
        retention: the actor that moves the log start.
        cleaner: the actor that merges, applies retention and deletes files.
        patches: functions that are replaced during the simulation.
    """

    log: type[PartitionLog] = PartitionLog
    merger: type[Merger] = Merger
    retention: type[Retention] = Retention
    cleaner: type[Cleaner] = Cleaner
    patches: tuple[Patch, ...] = ()


SOUND = Variant()
"""The shipped classes."""


def _appending(appender: type[Appender]) -> Variant:
    """Return the variant whose logs use another appender."""

    class Log(PartitionLog):
        def __init__(self, *args: Any, **settings: Any) -> None:
            super().__init__(*args, **settings)
            self._appender = appender(self._files, self._snapshots, self.config)

    return Variant(log=Log)


def _knowing(state: type[AppenderState]) -> Variant:
    """Return the variant whose appenders keep another state of the log."""

    class Knowing(Appender):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self._state.__class__ = state

    return _appending(Knowing)


def _seeing(directory: type[PartitionDirectory]) -> Variant:
    """Return the variant whose logs use another partition directory."""

    class Log(PartitionLog):
        def __init__(self, *args: Any, **settings: Any) -> None:
            super().__init__(*args, **settings)
            self._files.__class__ = directory

    return Variant(log=Log)


# --- appending -----------------------------------------------------------------------------------


class _NeverLate(AppenderState):
    def is_recent(self, tail: LogTail) -> bool:
        return True


class _TakesExistsForAnothers(Appender):
    def _try_put(self, segment: StagedSegment, base_offset: int) -> PutResult | None:
        put = super()._try_put(segment, base_offset)
        return put and replace(put, is_ours=put.winner is None)


class _TakesExistsForItsOwn(Appender):
    def _try_put(self, segment: StagedSegment, base_offset: int) -> PutResult | None:
        put = super()._try_put(segment, base_offset)
        return put and replace(put, is_ours=True)


class _PutsAgainWithoutLooking(Appender):
    def _find_lost(self, segment: StagedSegment, unknown: set[int]) -> tuple[int | None, LogTail]:
        return None, self._state.observe(segment)


class _TakesSilenceForSuccess(Appender):
    def _try_put(self, segment: StagedSegment, base_offset: int) -> PutResult | None:
        try:
            return super()._try_put(segment, base_offset)
        except UnknownOutcomeError:
            return PutResult(True, base_offset + segment.record_count, None)


class _TakesSilenceForFailure(Appender):
    def append_segment(
        self, segment: StagedSegment, expected_leo: int | None = None
    ) -> LogAppendInfo:
        try:
            return super().append_segment(segment, expected_leo)
        except UnknownOutcomeError as error:
            raise StorageError("nothing was appended") from error


class _MovesOn(Appender):
    def append_segment(
        self, segment: StagedSegment, expected_leo: int | None = None
    ) -> LogAppendInfo:
        if expected_leo is not None and self._state.observe(segment).log_end_offset == expected_leo:
            expected_leo = None
        return super().append_segment(segment, expected_leo)


class _IgnoresWinners(AppenderState):
    def _on_winner(self, winner: SegmentReader, tail: LogTail) -> None:
        if self._producers is not None:
            self._producers.offset = winner.end_offset


class _CatchesUpBlindly(AppenderState):
    """Continues behind the last listed segment, without reading the segments before it."""

    def _catch_up(self, segment: StagedSegment, tail: LogTail) -> LogTail:
        directory = self._directory
        listed = directory.store.list(directory.path, start_after=f"{tail.log_end_offset:020d}")
        plain = [name for file in listed if (name := _plain(file))]
        try:
            winner = directory.open(plain[-1]) if plain else None
        except NotFoundError:
            return self.observe(segment)
        if winner is None or not self._may_go_past(tail):
            return self.observe(segment)
        if self._producers is not None:
            self._producers.offset = winner.end_offset
        self.tail = LogTail(winner.end_offset, tail.observed_ms)
        return self.tail

    def _may_go_past(self, tail: LogTail) -> bool:
        return self.is_recent(tail)


class _CatchesUpLate(_CatchesUpBlindly):
    """Does so without any producer state, however old its view of the log is."""

    def _catch_up(self, segment: StagedSegment, tail: LogTail) -> LogTail:
        self._producers = None
        return super()._catch_up(segment, tail)

    def _may_go_past(self, tail: LogTail) -> bool:
        return True


class _ForgetsRepeats(AppenderState):
    def duplicate_offset(self, segment: StagedSegment) -> int | None:
        return None


class _DoesNotFence(AppenderState):
    def check_producer(self, segment: StagedSegment) -> None:
        with suppress(InvalidProducerEpochError):
            super().check_producer(segment)


class _AsksTheProducerStateAlone(AppenderState):
    """Takes a lost append of an older epoch for refused."""

    def is_fenced(self, segment: StagedSegment) -> bool:
        return False


class _DoesNotMindGaps(AppenderState):
    def check_producer(self, segment: StagedSegment) -> None:
        with suppress(OutOfOrderSequenceError):
            super().check_producer(segment)


# --- reading -------------------------------------------------------------------------------------


class _PlainFirst(PartitionDirectory):
    """Prefers plain segments, and uses rewritten ones only where there is no plain one."""

    def live_log(self) -> LiveLog:
        files = list(self.store.list(self.path))
        live = live_log(files)
        plain = {name.base_offset: file for file in files if (name := _plain(file))}
        return replace(
            live,
            segments=tuple(
                LiveSegment(
                    SegmentName(segment.start_offset),
                    plain[segment.start_offset],
                    segment.start_offset,
                    segment.end_offset if segment is not live.segments[-1] else None,
                )
                if segment.start_offset in plain
                else segment
                for segment in live.segments
            ),
        )


class _SticksOut(PartitionDirectory):
    """Continues behind a rewritten segment in any plain one that ends after it."""

    def live_log(self) -> LiveLog:
        files = list(self.store.list(self.path))
        live = live_log(files)
        for number, segment in enumerate(live.segments):
            end = segment.end_offset
            if end is None or not segment.name.generation:
                continue
            for file in files:
                name = _plain(file)
                with suppress(NotFoundError):
                    if name is not None and name.base_offset < end < self.open(name).end_offset:
                        more = LiveSegment(name, file, end, None)
                        return replace(live, segments=(*live.segments[: number + 1], more))
        return live


class _CrossesHoles(PartitionDirectory):
    """Takes the result of one listing for the log, even with a hole."""

    def live_log(self) -> LiveLog:
        return replace(super().live_log(), base_after_gap=None)

    def walk(
        self, view: LogView, start_offset: int, end_offset: int
    ) -> Iterator[tuple[int, LiveSegment, SegmentReader]]:
        view.check_offset(start_offset, self.path)
        for segment in view.live.segments:
            behind = segment.end_offset or view.log_end_offset
            if start_offset < behind and segment.start_offset < end_offset:
                yield max(start_offset, segment.start_offset), segment, self.open(segment.name)


class _BelievesEveryRange(PartitionDirectory):
    def check_unchanged(self, reader: SegmentReader, observed_ms: float) -> None:
        pass


class _TrustsSlowListings(PartitionDirectory):
    def is_outdated(self, observed_ms: float) -> bool:
        return False


class _ListsOnce(LogReader):
    """Never lists again: its first listing stays valid."""

    def __setattr__(self, name: str, value: object) -> None:
        if isinstance(value, TailView):
            value._valid_ms = math.inf
        super().__setattr__(name, value)


class _NeverListsAgain(PartitionLog):
    """Reads with a reader that never lists again."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._reader.__class__ = _ListsOnce


def _plain(file: FileInfo) -> SegmentName | None:
    name = SegmentName.parse(file.name)
    return None if name is None or name.generation else name


# --- rewriting and deleting ----------------------------------------------------------------------


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
            path = directory.file_path(name.log)
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
        self, view: LogView, start_offset: int, end_offset: int
    ) -> Iterator[tuple[int, LiveSegment, SegmentReader]]:
        for position, segment, reader in super().walk(view, start_offset, end_offset):
            reader.__dict__["end_offset"] = min(reader.end_offset, end_offset)
            yield position, segment, reader


class _MergesPartsOfWider(Merger):
    def _merge(self, view: LogView, first: int, last: int) -> SegmentName:
        directory = self._world.directory()
        directory.__class__ = _TakesAll
        return merger.merge(directory, view, first, last).name


class _RemembersForEver(TailMerger):
    """Takes the log end that it once knew for the current one, however old it is."""

    def _remembered_view(self) -> LogView | None:
        self._observed_ms = self._clock.monotonic_ms()
        return super()._remembered_view()


class _FreesItsOwnAtOnce(TailMerger):
    def _merge(self, view: LogView, run: range) -> SegmentSummary:
        merged = super()._merge(view, run)
        _, names = self._covered.pop()
        self._covered.append((self._clock.monotonic_ms(), names))
        return merged


def _tail_merging(merger_class: type[TailMerger]) -> Variant:
    class Merging(Appender):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self._derived.merger.__class__ = merger_class

    return _appending(Merging)


def _cleaning(cleaner_class: type[PartitionCleaner]) -> Variant:
    """Return the variant whose cleaners use another class."""
    cleaner: type[Cleaner] = type("Cleaning", (Cleaner,), {"cleaner_class": cleaner_class})
    return Variant(cleaner=cleaner)


class _FreesAtOnce(PartitionCleaner):
    def _deletable(self) -> DeletableFiles:
        at_once = find_deletable(self._log.files, 0)
        return replace(super()._deletable(), segments=at_once.segments)


class _FreesWithoutCover(PartitionCleaner):
    """Deletes old segments that no rewritten segment covers."""

    def _deletable(self) -> DeletableFiles:
        directory = self._log.files
        old_us = self._now_us - self._config.file_delete_delay_ms * 1000
        files = directory.store.list(directory.path)
        old = [file for file in files if file.modified_us <= old_us]
        return DeletableFiles(segments=tuple(file for file in old[:-1] if _plain(file)))


class _GoesByItsOwnClock(PartitionCleaner):
    """Decides by its own wall clock; reads the storage's time only to compare them."""

    def _storage_time_us(self) -> int:
        super()._storage_time_us()
        return self._log.clock.time_us()


class _CleansAtAnyTime(PartitionCleaner):
    """Does not compare its clock with the storage's."""

    def _storage_time_us(self) -> int:
        return storage_time_us(self._log.files.store, self._log.files.path)


class _RemovesMarkersAtOnce(PartitionCleaner):
    def _deletable(self) -> DeletableFiles:
        at_once = find_deletable(self._log.files, 0)
        return replace(super()._deletable(), markers=at_once.markers)


class _RemovesEveryOther(Retention):
    """Removes all start markers but its own."""

    def _delete_records(self, log: PartitionLog, offset: int) -> None:
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


class _ForgetsByItsOwnClock(PartitionLog):
    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._snapshots.__class__ = _DatesByItsOwnClock


class _ExpiresByItsOwnClock(AppenderState):
    """Accepts any sequence number of a producer that has expired by its own wall clock."""

    def check_producer(self, segment: StagedSegment) -> None:
        self._storage_us = self._clock.time_us()
        super().check_producer(segment)


class _SavesNothing(PartitionLog):
    def write_snapshot(self) -> Snapshot:
        return Snapshot(0, (), ProducerState())


RULES: dict[str, Variant] = {
    "a late success is looked at": _knowing(_NeverLate),
    "a name that is taken may be one's own": _appending(_TakesExistsForAnothers),
    "a name that is taken may be another's": _appending(_TakesExistsForItsOwn),
    "look before putting again": _appending(_PutsAgainWithoutLooking),
    "a lost answer is not success": _appending(_TakesSilenceForSuccess),
    "a lost answer is not failure": _appending(_TakesSilenceForFailure),
    "a conditional append never moves on": _appending(_MovesOn),
    "state before put": _knowing(_IgnoresWinners),
    "state before put, also of what was passed at once": _knowing(_CatchesUpBlindly),
    "what was passed at once was looked at lately": _knowing(_CatchesUpLate),
    "a repeat is answered": _knowing(_ForgetsRepeats),
    "an older epoch is fenced": _knowing(_DoesNotFence),
    "who was fenced looks at the place of a lost append": _knowing(_AsksTheProducerStateAlone),
    "a gap in the sequence is refused": _knowing(_DoesNotMindGaps),
    "a rewritten segment goes before a plain one": _seeing(_PlainFirst),
    "a plain segment counts at its exact base": _seeing(_SticksOut),
    "a listing with a hole is repeated": _seeing(_CrossesHoles),
    "a listing that took too long is made again": _seeing(_TrustsSlowListings),
    "a range is read of a file that is still the same": _seeing(_BelievesEveryRange),
    "a reader lists again within half the delay": Variant(log=_NeverListsAgain),
    "a rewrite keeps batch headers": Variant(merger=_DropsHeaders),
    "only headers that follow each other are joined": Variant(
        patches=((merger, "joined_headers", _joins_all_headers),)
    ),
    "a merge of a part of what another merged is given up": Variant(merger=_MergesPartsOfWider),
    "an appender merges what it knew lately": _tail_merging(_RemembersForEver),
    "an appender frees names after the delay": _tail_merging(_FreesItsOwnAtOnce),
    "a name is freed after the delay": _cleaning(_FreesAtOnce),
    "a name is freed only when it is covered": _cleaning(_FreesWithoutCover),
    "a start marker is removed only for a higher one": Variant(retention=_RemovesEveryOther),
    "a start marker is removed after the delay": _cleaning(_RemovesMarkersAtOnce),
    "a snapshot comes before the start moves": Variant(log=_SavesNothing),
    "what is old is old by the storage's time": _cleaning(_GoesByItsOwnClock),
    "who has the time wrong cleans nothing": _cleaning(_CleansAtAnyTime),
    "a snapshot forgets producers by the storage's time": Variant(log=_ForgetsByItsOwnClock),
    "an appender forgets producers by the storage's time": _knowing(_ExpiresByItsOwnClock),
}
"""The name of each safety rule, and the variant without it."""
