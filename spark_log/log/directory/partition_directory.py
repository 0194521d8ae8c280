"""The directory of one partition: lists it and opens its segments."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from spark_log.errors import (
    CorruptRecordError,
    LogTruncatedError,
    NotFoundError,
    StorageTimeoutError,
    StorageUnavailableError,
)
from spark_log.log.directory.identities import SegmentIdentities
from spark_log.log.directory.log_view import DirectoryListing, LogView
from spark_log.log.directory.opener import SegmentOpener
from spark_log.log.files import (
    ExistenceMarker,
    LiveLog,
    LiveSegment,
    SegmentName,
    StartMarker,
    decode_leader_epoch,
    live_log,
)
from spark_log.log.segment import MOST_SMALL_FILE_BYTES, SegmentReader
from spark_log.record import NO_LEADER_EPOCH, file_template
from spark_log.storage import FileInfo, Store, is_listing_valid
from spark_log.util import IN_PROCESS, Clock, SuppressedErrors

_log = logging.getLogger(__name__)

_FEW_SMALL_FILES = 4
"""Number of small segments that are opened without a template: making it takes as long as that."""

_MAX_MISSES = 5
"""Number of failed reads of a listed file after which its storage counts as failed."""

_MAX_SLOW_LISTINGS = 10
"""Number of listings that take too long after which `PartitionDirectory.observe` fails."""


@dataclass(frozen=True, slots=True)
class _SegmentEnd:
    """The end offset and the leader epoch of a listing's last segment, kept after it was opened.

    A plain segment that two listings show as part of the log is the same file in both: its name is
    freed only when something durable covers it, and then it is never part of the log again. The
    segment is therefore not opened for a later listing.
    """

    file: FileInfo
    end_offset: int
    leader_epoch: int


class PartitionDirectory:
    """The directory of one partition.

    Attributes:
        store: the store that holds the directory.
        path: the directory's path, relative to the store's root.
        topic_id: the topic's id; checked against every segment.
        partition: number of the partition; checked against every segment.
        clock: the clock whose monotonic time dates listings.
        existence_marker: the file that shows that the log has had records; None without one.
        valid_ms: time for which a listing is valid: half of ``file.delete.delay.ms``. A file that
            was part of the log at the listing cannot have been deleted within this time.
        suppressed: counter of errors that fail no read and no append, such as those of indexes.
        identities: the append ids of the segments, by name.
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
        existence_marker: ExistenceMarker | None = None,
    ) -> None:
        self.store = store
        self.path = path
        self.topic_id = topic_id
        self.partition = partition
        self.clock = clock
        self.valid_ms = valid_ms
        self.suppressed = suppressed
        self.identities = SegmentIdentities()
        self.existence_marker = existence_marker
        self._reached_offset = 0
        self._last_end: _SegmentEnd | None = None
        self._is_missing_checked = False
        self._small_files = 0
        self._missed: tuple[str, float, int] | None = None
        """The path that was listed but not found, the monotonic time, and the times in a row."""

    @property
    def reached_offset(self) -> int:
        """The highest log end offset that was observed through this object."""
        return self._reached_offset

    def on_log_end(self, end_offset: int) -> None:
        """Record the log end offset after an append, or after the next segment was found."""
        self._reached_offset = max(self._reached_offset, end_offset)

    def check_not_removed(self) -> None:
        """Check once, before a file is staged, that the directory was not removed.

        Staging the first file of a log makes its directory. A directory that someone has
        moved away or removed must not be made again.

        Raises:
            LogTruncatedError: the log has had records, and its directory is missing.
        """
        if not self._is_missing_checked and self.store.is_gone(self.path):
            reached_offset = self._reached_offset
            if not reached_offset and self.existence_marker is not None:
                reached_offset = int(self.existence_marker.exists(self.store))
            # Another process may have made the directory and the marker between the two looks.
            if reached_offset and self.store.is_gone(self.path):
                raise self.truncated(0, reached_offset)
        self._is_missing_checked = True

    def observe(self) -> LogView:
        """Return the log as it is now: one listing, and the last header of the last segment.

        Raises:
            CorruptRecordError: the last segment is damaged, or a segment before it is missing.
            LogTruncatedError: the log ends before an offset that it had reached.
            StorageTimeoutError: each listing took longer than it is valid.
        """
        return self.observe_and_open()[0]

    def observe_and_open(self) -> tuple[LogView, SegmentReader | None]:
        """Return the log as `observe` does, and its last segment if that had to be opened.

        Raises:
            CorruptRecordError: the last segment is damaged, or a segment before it is missing.
            LogTruncatedError: the log ends before an offset that it had reached.
            StorageTimeoutError: each listing took longer than it is valid.
        """
        return self._observe(self.live_log)

    def observe_from(
        self, start_offset: int | None, end_offset: int | None = None
    ) -> tuple[LogView, SegmentReader | None]:
        """Return a view for a read from an offset on, and its last segment if that was opened.

        It may lack what is before the offset: then it begins at it, or before it.

        Args:
            start_offset: the first offset that is needed; None for all of the log.
            end_offset: the offset before which the read ends; None for the log's end. The log may
                end before it.

        Raises:
            SparkLogError: See `observe_and_open`.
        """
        return self.observe_and_open()

    def list_files(self) -> Iterable[FileInfo]:
        """List the files of the log: the plain ones of the directory."""
        return self.store.list(self.path)

    def list_with_hidden(self) -> tuple[Sequence[FileInfo], Sequence[FileInfo]]:
        """List the plain files and the hidden ones, such as those of a crashed writer."""
        return self.store.list_with_hidden(self.path)

    def observe_files(self) -> DirectoryListing:
        """Return the log as `observe` does, with all files of the same listing.

        Raises:
            SparkLogError: `observe` failed.
        """
        files: tuple[Sequence[FileInfo], Sequence[FileInfo]] = (), ()

        def list_files() -> LiveLog:
            nonlocal files
            files = self.list_with_hidden()
            return self.live_log(files[0])

        return DirectoryListing(*self._observe(list_files), files)

    def _observe(self, list_log: Callable[[], LiveLog]) -> tuple[LogView, SegmentReader | None]:
        hole: tuple[int, int] | None = None
        truncated: tuple[int, int] | None = None
        unproven: LiveSegment | None = None
        slow_listings = 0
        while slow_listings < _MAX_SLOW_LISTINGS:
            observed_ms = self.clock.monotonic_ms()
            live = list_log()
            if self.is_outdated(observed_ms):
                slow_listings += 1
                continue
            if live.base_after_gap is not None:
                # A listing may leave out a file that appeared during it and show a later one. So a
                # gap is an error only if the next listing shows it too.
                before, hole = hole, (live.chain_end_offset, live.base_after_gap)
                if hole != before:
                    continue
                raise CorruptRecordError(
                    f"{self.path}: the log ends at offset {hole[0]}, but a segment begins at "
                    f"{hole[1]}: the segments between them are missing. Restore them from a copy",
                    path=self.path,
                )
            if live.last_before_start not in (None, unproven):
                unproven = live.last_before_start
                continue  # a snapshot may have appeared during the listing, too
            try:
                end_offset, leader_epoch, opened = self.read_end(live, observed_ms)
            except NotFoundError:  # rewritten and deleted since the listing: list again
                slow_listings += self.is_outdated(observed_ms)
                continue
            reached_offset = max(live.reached_offset, self._reached_offset)
            if not end_offset and not reached_offset:
                reached_offset = int(
                    self.existence_marker is not None and self.existence_marker.exists(self.store)
                )
            if end_offset < reached_offset:
                if truncated != (end_offset, reached_offset):
                    truncated = end_offset, reached_offset  # an error if seen twice, as a gap
                    continue
                raise self.truncated(end_offset, reached_offset)
            self._reached_offset = end_offset
            if _log.isEnabledFor(logging.DEBUG):
                _log.debug(
                    "%s: listed offsets %d to %d in %d segments, in %d ms",
                    self.path,
                    live.log_start_offset,
                    end_offset,
                    len(live.segments),
                    self.clock.monotonic_ms() - observed_ms,
                )
            return LogView(live, end_offset, observed_ms, leader_epoch, self.url), opened
        raise StorageTimeoutError(
            f"{self.path}: listing it takes more than {self.valid_ms:.0f} ms, half of "
            f"file.delete.delay.ms, so that the result may be out of date. Raise "
            f"file.delete.delay.ms, or merge the topic's segments",
            path=self.path,
        )

    def observe_tail(self, base_offset: int, end_offset: int) -> LogView | None:
        """Return the end of a log that is never rewritten, from a listing of its last names.

        A segment of such a log is deleted only after a start marker with a higher offset was
        written, and the listing shows this marker.

        Args:
            base_offset: the base offset of a segment of the log.
            end_offset: the segment's end offset.

        Returns:
            A view of this segment alone, with `LiveLog.base_after_gap` where the next one begins.
            None if the listing does not tell whether the segment is part of the log.

        Raises:
            StorageError: the storage does not answer.
        """
        observed_ms = self.clock.monotonic_ms()
        listed = list(self.store.list(self.path, start_after=f"{base_offset:020d}"))
        live = live_log(listed)
        names = [name for file in listed if (name := SegmentName.parse(file.name))]
        bases = [name.base_offset for name in names]
        is_plain = not live.log_start_offset and not any(name.generation for name in names)
        is_next = bases[1:2] in ([], [end_offset])
        if not is_plain or bases[:1] != [base_offset] or not is_next:
            return None
        if self.is_outdated(observed_ms):
            return None
        name = SegmentName(base_offset)
        (file,) = (file for file in listed if file.name == name.file_name)
        segment = LiveSegment(name, file, base_offset, end_offset)
        following = end_offset if bases[1:] else None
        return LogView(
            LiveLog(base_offset, (segment,), following), end_offset, observed_ms, origin=self.url
        )

    def read_end(
        self, live: LiveLog, observed_ms: float
    ) -> tuple[int, int | None, SegmentReader | None]:
        """Return the log end offset, its leader epoch, and the last segment if it was opened.

        Args:
            live: the log that a listing shows.
            observed_ms: monotonic time before the listing began.

        Raises:
            NotFoundError: the last segment was deleted.
            CorruptRecordError: the last segment is damaged, or the start marker is another log's.
        """
        if not live.segments:
            if live.last_before_start is not None:
                self._check_start(live.log_start_offset, live.last_before_start)
            end_offset = live.log_start_offset
            return end_offset, None if end_offset else NO_LEADER_EPOCH, None
        last, known = live.segments[-1], self._last_end
        if last.end_offset is not None:
            return last.end_offset, None, None
        if known is not None and known.file == last.file:
            return known.end_offset, known.leader_epoch, None
        opened = self.open_listed(last, observed_ms)
        end_offset, leader_epoch = opened.end_offset, opened.leader_epoch
        self._last_end = _SegmentEnd(last.file, end_offset, leader_epoch)
        return end_offset, leader_epoch, opened

    def _check_start(self, start: int, last: LiveSegment) -> None:
        """Check that a start marker without a snapshot belongs to this log.

        Args:
            start: the log start offset, where the log is empty.
            last: the last segment before it.

        Raises:
            CorruptRecordError: the segment ends before the start.
        """
        try:
            end_offset = self.open(last.name).end_offset
        except (NotFoundError, CorruptRecordError):
            return  # deleted since; or not known
        if end_offset < start:
            path = self.file_path(StartMarker(start, start).name)
            raise CorruptRecordError(
                f"{path}: the marker says that all records before offset {start} were deleted, but "
                f"the log never reached it: its last segment ends at {end_offset}, and there is no "
                f"snapshot of {start}. It is another log's marker, or segments and snapshots are "
                f"missing. Remove it, or restore them from a copy",
                path=path,
            )

    def is_outdated(self, observed_ms: float) -> bool:
        """Whether files that a listing shows may have been deleted since it began.

        A listing that took too long may lack a rewritten segment that appeared during it as well as
        the segments that the rewritten one covers. A name in it may now belong to another file.

        Args:
            observed_ms: monotonic time before the listing began.
        """
        return self.valid_ms > 0 and not is_listing_valid(self.clock, observed_ms, self.valid_ms)

    def live_log(self, files: Iterable[FileInfo] | None = None) -> LiveLog:
        """Return the log that one listing shows.

        Args:
            files: the files of the listing; None lists the directory.
        """
        return live_log(self.list_files() if files is None else files)

    def walk(
        self,
        view: LogView,
        start_offset: int,
        end_offset: int,
        last: SegmentReader | None = None,
    ) -> Iterator[tuple[int, LiveSegment, SegmentReader]]:
        """Open the live segments between two offsets, one after the other.

        If a segment was rewritten and deleted meanwhile, the log is listed again, and the walk
        continues in the rewritten segment.

        Args:
            view: the log's view.
            start_offset: the offset at which the walk begins.
            end_offset: the offset before which the walk ends.
            last: reader of the view's last segment if it is open, so that it is not opened again.

        Yields:
            The offset to read from, the segment, and its reader.

        Raises:
            OffsetOutOfRangeError: ``start_offset`` is not in the log; has the valid range.
            CorruptRecordError: a segment is damaged or missing.
        """
        position = start_offset
        doubted: LiveSegment | None = None
        view.check_offset(position, self.path)
        with self.opener(end_offset, last) as opener:
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
                    doubted = segment  # the listing may lack a segment that appeared during it
                view = self.observe()
                view.check_offset(position, self.path)

    def opener(self, end_offset: int, last: SegmentReader | None = None) -> SegmentOpener:
        """Return an opener of segments in order; on an object store it opens some of them ahead.

        Args:
            end_offset: segments that begin at or after it are not opened ahead.
            last: reader of the first view's last segment if it is open; else None.
        """
        executor_class = None if self.store.is_local else self.store.executor_class
        return SegmentOpener(self.open_listed, end_offset, last, executor_class=executor_class)

    def open(self, name: SegmentName, size_bytes: int | None = None) -> SegmentReader:
        """Open a segment.

        Args:
            name: parsed file name.
            size_bytes: the file's size in a listing, to be checked; None if not known.

        Raises:
            NotFoundError: the file does not exist.
            CorruptRecordError: the segment is damaged.
        """
        is_plain = name.last_offset is None and self.store.is_mapped
        reads_many = is_plain and self._small_files >= _FEW_SMALL_FILES
        reader = SegmentReader(
            self.store,
            self.path,
            name,
            topic_id=self.topic_id,
            partition=self.partition,
            size_bytes=size_bytes,
            suppressed=self.suppressed,
            template=file_template(self.topic_id, self.partition) if reads_many else None,
        )
        if is_plain and not reads_many:
            self._small_files += reader.size_bytes < MOST_SMALL_FILE_BYTES
        return reader

    def open_listed(
        self, segment: LiveSegment, observed_ms: float, opened: SegmentReader | None = None
    ) -> SegmentReader:
        """Open a segment that a listing shows.

        Args:
            segment: a segment of the listing.
            observed_ms: monotonic time before the listing began.
            opened: the segment's reader if it was opened for this listing already. It is checked
                again, since more append ids may be known.

        Raises:
            NotFoundError: the file does not exist; or the listing is so old that the file may have
                been deleted, and its name used by a put that was delivered late.
            StorageUnavailableError: several listings in a row showed the file, and it was not
                found.
            CorruptRecordError: the segment is damaged, or its file was replaced by another one.
        """
        if opened is not None:
            self.check_identity(opened, segment.name)
            return opened
        try:
            reader = self.open(segment.name, segment.file.size_bytes)
            end_offset = reader.end_offset  # on an object store this may read the last batch
        except NotFoundError as error:
            self.on_missed(error, observed_ms)
            raise
        except CorruptRecordError:
            if not self.is_outdated(observed_ms):
                raise
        else:
            if not self.is_outdated(observed_ms):
                self.check_identity(reader, segment.name)
                _log.debug("%s: opened, it ends at offset %d", reader.path, end_offset)
                return reader
        raise self._gone(self.file_path(segment.name.file_name))

    def is_known_end(self, offset: int) -> bool:
        """Return whether the log is known to end at an offset, so that no file is looked for there.

        Args:
            offset: the end of what was read.
        """
        return False

    def check_identity(self, reader: SegmentReader, name: SegmentName) -> None:
        """Check that an open segment is the one that was appended under its name.

        Raises:
            CorruptRecordError: the file is another segment.
        """
        self.identities.check(reader.path, name, reader.append_id)

    def on_missed(self, error: NotFoundError, observed_ms: float) -> None:
        """Count the times in a row that a listed file was not found, each after a new listing.

        A file that was rewritten and deleted is not shown by the next listing.

        Args:
            error: the error of the storage, with the file's path.
            observed_ms: monotonic time before the listing began.

        Raises:
            StorageUnavailableError: the file was not found too many times in a row.
        """
        path, missed_ms, misses = error.path, self.clock.monotonic_ms(), 1
        if self._missed is not None and self._missed[0] == path:
            misses = self._missed[2] + (observed_ms >= self._missed[1])
        self._missed = path, missed_ms, misses
        if misses > _MAX_MISSES:
            raise StorageUnavailableError(
                f"{path} is listed, but cannot be found: {error}", path=path
            ) from error

    def leader_epoch_at_start(self, log_start_offset: int) -> int | None:
        """Return the leader epoch of the last batch of a log that was emptied.

        Args:
            log_start_offset: the log start offset, which is the log end offset, too.

        Returns:
            The epoch; None if the start marker does not contain it, as in older versions.

        Raises:
            StorageError: the storage does not answer.
        """
        marker = StartMarker(log_start_offset, log_start_offset)
        try:
            content = self.store.open_buffer(self.file_path(marker.name))
        except NotFoundError:
            return None
        return decode_leader_epoch(content.to_pybytes())

    def check_unchanged(self, reader: SegmentReader, observed_ms: float) -> None:
        """Check that all data read from an open segment belongs to this segment.

        A mapped file does not change, and neither does what was read when it was opened. On an
        object store each other range is a request of its own, which may read another file of the
        same name.

        Args:
            reader: the segment's reader.
            observed_ms: monotonic time before the listing that showed the segment began.

        Raises:
            NotFoundError: the file may have been deleted, and its name used by a put that was
                delivered late.
        """
        if not reader.is_in_memory and self.is_outdated(observed_ms):
            raise self._gone(reader.path)

    @staticmethod
    def _gone(path: str) -> NotFoundError:
        return NotFoundError(f"{path} may not be the file that was listed any more", path=path)

    @property
    def url(self) -> str:
        """URL of the directory, without credentials."""
        return f"{self.store.url}/{self.path}"

    def file_path(self, name: str) -> str:
        """Return the path of a file of this partition, relative to the store's root."""
        return f"{self.path}/{name}"

    def truncated(self, end_offset: int, reached_offset: int) -> LogTruncatedError:
        """Return the error for a log that ends before an offset that it had reached."""
        what = f"ends at offset {end_offset}" if end_offset else "is empty"
        return LogTruncatedError(
            f"{self.path}: the log {what}, but it had reached {reached_offset}: files were "
            f"removed. Restore them from a copy. Until then appends are refused, since they would "
            f"use offsets again",
            path=self.path,
            log_end_offset=end_offset,
            witnessed_offset=reached_offset,
        )

    def missing(self, segment: LiveSegment, end_offset: int) -> CorruptRecordError:
        """Return the error for a gap between the end of a segment and the base of the next one."""
        path = self.file_path(segment.name.file_name)
        return CorruptRecordError(
            f"{path} ends at offset {end_offset}, but the next segment begins at "
            f"{segment.end_offset}: a segment between them is missing. Restore it from a copy, "
            f"or continue to read at {segment.end_offset}",
            path=path,
        )
