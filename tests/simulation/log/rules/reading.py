"""Readers without one of the safety rules of the log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace

from spark_log.consumer.fetch.completed_fetch import CompletedFetch
from spark_log.consumer.fetch.fetch_buffer import FetchBuffer
from spark_log.consumer.fetch.fetch_cursor import FetchCursor
from spark_log.errors import NotFoundError
from spark_log.log import LocalLog, SegmentReader
from spark_log.log.directory.log_view import LogView
from spark_log.log.directory.partition_directory import PartitionDirectory
from spark_log.log.files.file_names import SegmentName
from spark_log.log.files.live_segments import LiveLog, LiveSegment, live_log
from spark_log.log.read import log_reader
from spark_log.log.read.tail_view import TailView
from spark_log.storage import FileInfo
from tests.simulation.log.rules.variant import Variant, plain_name


def _seeing(directory: type[PartitionDirectory]) -> Variant:
    """Return the variant whose logs use another partition directory."""

    class Log(LocalLog):
        directory_class = directory

    return Variant(log=Log)


class _PlainFirst(PartitionDirectory):
    """Prefers plain segments, and uses rewritten ones only where there is no plain one."""

    def live_log(self, files: Iterable[FileInfo] | None = None) -> LiveLog:
        files = list(self.store.list(self.path) if files is None else files)
        live = live_log(files)
        plain = {name.base_offset: file for file in files if (name := plain_name(file))}
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

    def live_log(self, files: Iterable[FileInfo] | None = None) -> LiveLog:
        files = list(self.store.list(self.path) if files is None else files)
        live = live_log(files)
        for number, segment in enumerate(live.segments):
            end = segment.end_offset
            if end is None or not segment.name.generation:
                continue
            for file in files:
                name = plain_name(file)
                with suppress(NotFoundError):
                    if name is not None and name.base_offset < end < self.open(name).end_offset:
                        more = LiveSegment(name, file, end, None)
                        return replace(live, segments=(*live.segments[: number + 1], more))
        return live


class _CrossesHoles(PartitionDirectory):
    """Takes the result of one listing for the log, even with a hole."""

    def live_log(self, files: Iterable[FileInfo] | None = None) -> LiveLog:
        return replace(super().live_log(files), base_after_gap=None)

    def walk(
        self,
        view: LogView,
        start_offset: int,
        end_offset: int,
        last: SegmentReader | None = None,
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


class _IsAlwaysValid(TailView):
    """Shows the log as one listing did, however long ago that was."""

    @property
    def is_valid(self) -> bool:
        return True


_shipped_add = FetchBuffer.add


def _stays_where_it_was(
    buffer: FetchBuffer, cursor: FetchCursor, fetched: Iterable[CompletedFetch], now_ms: float
) -> bool:
    """Buffers what a consumer has fetched, and lets the next stream begin before it again."""
    offset = cursor.offset
    is_added = _shipped_add(buffer, cursor, fetched, now_ms)
    cursor.offset = offset
    return is_added


READING_RULES: dict[str, Variant] = {
    "a rewritten segment goes before a plain one": _seeing(_PlainFirst),
    "a plain segment counts at its exact base": _seeing(_SticksOut),
    "a listing with a hole is repeated": _seeing(_CrossesHoles),
    "a listing that took too long is made again": _seeing(_TrustsSlowListings),
    "a range is read of a file that is still the same": _seeing(_BelievesEveryRange),
    "a reader lists again within half the delay": Variant(
        patches=((log_reader, "TailView", _IsAlwaysValid),)
    ),
    "a consumer fetches on behind its last fetch": Variant(
        patches=((FetchBuffer, "add", _stays_where_it_was),)
    ),
}
"""The name of each safety rule of reads, and the variant without it."""
