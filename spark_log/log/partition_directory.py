"""The files of one partition: which of them are the log, and what each holds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from spark_log.clock import Clock
from spark_log.errors import (
    CorruptRecordError,
    LogTruncatedError,
    NotFoundError,
    OffsetOutOfRangeError,
    StorageTimeoutError,
)
from spark_log.log.file_names import SegmentName
from spark_log.log.live_log import LiveLog, LiveSegment, live_log
from spark_log.log.segment.identities import SegmentIdentities
from spark_log.log.segment.opener import SegmentOpener
from spark_log.log.segment.reader import SegmentReader
from spark_log.log.witness import Witness
from spark_log.storage import Store, is_known
from spark_log.suppressed import IN_PROCESS, SuppressedErrors

_MAX_SLOW_LISTINGS = 10
"""Listings that took too long before one gives up."""


@dataclass(frozen=True, slots=True)
class LogView:
    """What one listing showed of the log, with the end that its last file tells.

    Attributes:
        live: the chain of segments.
        log_end_offset: the next offset to be written.
        observed_ms: monotonic time before the listing began.
    """

    live: LiveLog
    log_end_offset: int
    observed_ms: float

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read."""
        return self.live.log_start_offset

    def check_offset(self, offset: int, where: str) -> None:
        """Check that the log can be read from ``offset``; its end waits for records.

        Raises:
            OffsetOutOfRangeError: with the valid range.
        """
        start, end = self.log_start_offset, self.log_end_offset
        if start <= offset <= end:
            return
        holds = (
            f"the log holds {start} to {end - 1}" if start < end else f"the log is empty at {end}"
        )
        raise OffsetOutOfRangeError(
            f"{where}: offset {offset} is out of range; {holds}",
            offset=offset,
            log_start_offset=start,
            log_end_offset=end,
        )


class PartitionDirectory:
    """One partition's directory, listed and its segments opened.

    Attributes:
        store: where it lies.
        path: relative to the store's root.
        topic_id: of the topic; checked against every segment.
        partition: its number; likewise.
        clock: dates what is observed.
        witness: names the file by which it is known that the log was begun; None: nothing is known.
        valid_ms: how long what was observed counts: half of ``file.delete.delay.ms``. Nothing that
            was part of the log then can have been freed by then.
        suppressed: failures that kept nothing from being done.
        identities: which segment has which name.
    """

    def __init__(
        self,
        store: Store,
        path: str,
        *,
        topic_id: str,
        partition: int,
        clock: Clock,
        valid_ms: float = math.inf,
        suppressed: SuppressedErrors = IN_PROCESS,
        witness: Witness | None = None,
    ) -> None:
        self.store = store
        self.path = path
        self.topic_id = topic_id
        self.partition = partition
        self.clock = clock
        self.valid_ms = valid_ms
        self.suppressed = suppressed
        self.identities = SegmentIdentities()
        self.witness = witness
        self._reached_offset = 0

    @property
    def reached_offset(self) -> int:
        """The highest end that the log had by what was seen through this directory."""
        return self._reached_offset

    def on_log_end(self, end_offset: int) -> None:
        """Remember how far the log reaches, as an append or a look for the next name showed."""
        self._reached_offset = max(self._reached_offset, end_offset)

    def observe(self) -> LogView:
        """Return what the log is now: one listing, and the last file's last header.

        Raises:
            CorruptRecordError: the last file is damaged, or a segment before others is missing.
            LogTruncatedError: the log ends before an offset that it had reached.
            StorageTimeoutError: listing takes longer, time and again, than what it shows counts.
        """
        hole: tuple[int, int] | None = None
        truncated: tuple[int, int] | None = None
        slow_listings = 0
        while slow_listings < _MAX_SLOW_LISTINGS:
            observed_ms = self.clock.monotonic_ms()
            live = self.live_log()
            if self.is_outdated(observed_ms):
                slow_listings += 1
                continue
            if live.base_after_gap is not None:
                # What appears during a listing may be left out of it although a later one is not.
                before, hole = hole, (live.chain_end_offset, live.base_after_gap)
                if hole != before:
                    continue
                raise CorruptRecordError(
                    f"{self.path}: the log ends at offset {hole[0]}, but there is a segment "
                    f"at {hole[1]}: what lies between them is missing. Restore it from a copy",
                    path=self.path,
                )
            end_offset = live.log_start_offset
            if live.segments:
                last = live.segments[-1]
                try:
                    end_offset = last.end_offset or self.open_listed(last, observed_ms).end_offset
                except NotFoundError:  # rewritten and freed since the listing: list again
                    slow_listings += self.is_outdated(observed_ms)
                    continue
            reached_offset = max(live.witnessed_offset, self._reached_offset)
            if not end_offset and not reached_offset:
                reached_offset = int(self.witness is not None and self.witness.exists(self.store))
            if end_offset < reached_offset:
                if truncated != (end_offset, reached_offset):
                    truncated = end_offset, reached_offset  # see above
                    continue
                raise self.truncated(end_offset, reached_offset)
            self._reached_offset = end_offset
            return LogView(live, end_offset, observed_ms)
        raise StorageTimeoutError(
            f"{self.path}: listing it takes more than {self.valid_ms:.0f} ms, half of "
            f"file.delete.delay.ms: what it shows may be out of date; raise that setting, or merge "
            f"the topic's segments",
            path=self.path,
        )

    def is_outdated(self, observed_ms: float) -> bool:
        """Whether what a listing shows may have been freed since it began.

        One that took so long may show neither a rewritten segment that came during it nor what
        that covers; and a name that it shows may be another file's by now.
        """
        return self.valid_ms > 0 and not is_known(self.clock, observed_ms, self.valid_ms)

    def live_log(self) -> LiveLog:
        """Return the log that one listing shows."""
        return live_log(self.store.list(self.path))

    def walk(
        self, view: LogView, start_offset: int, end_offset: int
    ) -> Iterator[tuple[int, LiveSegment, SegmentReader]]:
        """Open the live segments from an offset on, each with where to begin in it.

        Files that a rewrite replaces meanwhile are followed by their replacement.

        Raises:
            OffsetOutOfRangeError: with the valid range.
            CorruptRecordError: a segment is missing.
        """
        position = start_offset
        doubted: LiveSegment | None = None
        view.check_offset(position, self.path)
        with SegmentOpener(self, end_offset) as opener:
            while position < min(end_offset, view.log_end_offset):
                index = view.live.index_of(position)
                segment = view.live.segments[index]
                with suppress(NotFoundError):
                    reader = opener.open(view, index)
                    fits = segment.end_offset in (None, reader.end_offset)
                    if fits and reader.end_offset > position:
                        yield position, segment, reader
                        position = reader.end_offset
                        continue
                    if segment == doubted:
                        raise self.missing(segment, reader.end_offset)
                    doubted = segment  # what appeared during the listing may be left out of it
                view = self.observe()
                view.check_offset(position, self.path)

    def open(self, name: SegmentName, size_bytes: int | None = None) -> SegmentReader:
        """Open a segment.

        Args:
            name: its file's.
            size_bytes: as a listing showed it; checked, where that is known.

        Raises:
            NotFoundError: it is gone, or was never there.
            CorruptRecordError: it is damaged.
        """
        return SegmentReader(
            self.store,
            self.path,
            name,
            topic_id=self.topic_id,
            partition=self.partition,
            size_bytes=size_bytes,
            suppressed=self.suppressed,
        )

    def open_listed(self, segment: LiveSegment, observed_ms: float) -> SegmentReader:
        """Open a segment that a listing shows.

        Args:
            segment: which.
            observed_ms: monotonic time before the listing began.

        Raises:
            NotFoundError: it is gone; or the listing is so old that the name may have been freed,
                and taken by a put that came late.
            CorruptRecordError: it is damaged, or another segment than the one that got its name.
        """
        try:
            reader = self.open(segment.name, segment.file.size_bytes)
            reader.end_offset  # noqa: B018 - on an object store that may be read only now
        except CorruptRecordError:
            if not self.is_outdated(observed_ms):
                raise
        else:
            if not self.is_outdated(observed_ms):
                self.identities.check(reader.path, segment.name, reader.append_id)
                return reader
        raise self._gone(self.file_path(segment.name.log))

    def check_unchanged(self, reader: SegmentReader, observed_ms: float) -> None:
        """Check that what was read of a segment since it was opened is still that segment's.

        A mapped file stays what it is. On an object store each range is a request of its own.

        Args:
            reader: of the segment.
            observed_ms: monotonic time before the listing that showed it began.

        Raises:
            NotFoundError: its name may have been freed, and taken by a put that came late.
        """
        if not self.store.is_mapped and self.is_outdated(observed_ms):
            raise self._gone(reader.path)

    @staticmethod
    def _gone(path: str) -> NotFoundError:
        return NotFoundError(f"{path} may not be what was listed any more", path=path)

    def file_path(self, name: str) -> str:
        """Return the path of a file of this partition, relative to the store's root."""
        return f"{self.path}/{name}"

    def truncated(self, end_offset: int, reached_offset: int) -> LogTruncatedError:
        """Return the error for a log that ends before an offset that it had reached."""
        what = f"ends at offset {end_offset}" if end_offset else "is empty"
        return LogTruncatedError(
            f"{self.path}: the log {what}, but it had reached {reached_offset}: files were "
            f"removed. Restore them from a copy; nothing is appended meanwhile, since offsets "
            f"would be used again",
            path=self.path,
            log_end_offset=end_offset,
            witnessed_offset=reached_offset,
        )

    def missing(self, segment: LiveSegment, end_offset: int) -> CorruptRecordError:
        """Return the error for a hole between the end of a segment and the next one's base."""
        path = self.file_path(segment.name.log)
        return CorruptRecordError(
            f"{path} ends at offset {end_offset}, but the next segment begins at "
            f"{segment.end_offset}: a segment between them is missing. Restore it from a copy, "
            f"or read on from {segment.end_offset}",
            path=path,
        )
