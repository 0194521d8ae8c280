"""The directory of a striped partition: its files at home, and its entries in the stripe."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Final

from spark_log.errors import NotFoundError
from spark_log.log.directory import LogView, PartitionDirectory, SegmentOpener
from spark_log.log.files import LiveLog, LiveSegment, SegmentName
from spark_log.log.segment import SegmentReader
from spark_log.log.stripe.entries_reader import EntriesReader
from spark_log.log.stripe.reader import Place, StripeReader
from spark_log.record import NO_LEADER_EPOCH
from spark_log.storage import FileInfo

_VIEW_PLACES: Final = 1
"""Objects whose entries are in the view of a reader that follows the log. Those behind them it
finds one by one, as those that are appended: they are known, so this sends no request."""


class StripedDirectory(PartitionDirectory):
    """The directory of a partition whose newest records are in a stripe.

    A listing shows the files at home, and a plain segment for the partition's entries in each
    object behind the home marker. Such a segment has no file of its own: `open` returns the
    entries. A rewritten segment covers it when its records are at home, as any plain segment.

    The stripe is read first: what it has no more was at home before (protocol P7).

    Attributes:
        stripe: what the process has read of the stripe.
        at_home: the directory without the entries in the stripe.
        polls_at_end: whether a look for the next entries at the log's known end polls the stripe.
            False if another one polls it for many partitions.
    """

    polls_at_end = True

    def __init__(self, *where: Any, stripe: StripeReader, **how: Any) -> None:
        """Access no storage yet.

        Args:
            where: arguments of `PartitionDirectory`.
            stripe: what the process has read of the stripe.
            how: further arguments of `PartitionDirectory`.
        """
        how["existence_marker"] = None  # the stripe has one, and tells the end
        super().__init__(*where, **how)
        self.stripe = stripe
        self.at_home = PartitionDirectory(*where, **how)

    def check_not_removed(self) -> None:
        """Check nothing: before its first records are at home, the partition has no directory."""

    def list_files(self) -> Iterable[FileInfo]:
        """List the files at home, and the entries in the stripe as plain segments."""
        self.stripe.poll()
        return self._list_known()

    def list_with_hidden(self) -> tuple[Sequence[FileInfo], Sequence[FileInfo]]:
        """List the files at home, the entries in the stripe, and the hidden files at home."""
        self.stripe.poll()
        entries = self._list_entries()
        files, hidden = super().list_with_hidden()
        return [*files, *entries], hidden

    def observe_from(
        self, start_offset: int | None, end_offset: int | None = None
    ) -> tuple[LogView, SegmentReader | None]:
        """Return a view for a read from an offset on (`PartitionDirectory.observe_from`).

        If the stripe has the records from the offset on, the directory is not listed, and the view
        begins with the entries that contain it, or at the log's end. Once in half of the delay the
        stripe is listed. It is polled if its known end is before the end of the read.

        Args:
            start_offset: the first offset that is needed; None for all of the log.
            end_offset: the offset before which the read ends. With 0 the view ends where the last
                poll has seen the log end: many partitions may share a poll. None for the log's end,
                which is polled unless another one does that for many partitions.
        """
        polls = end_offset is None and self.polls_at_end
        first, most = start_offset or 0, _VIEW_PLACES if end_offset is None else None
        # No poll at all shows an empty stripe. A read to the log's end polls there.
        self.stripe.reach(self.partition, first + 1 if polls else end_offset or 0)
        if start_offset is None:
            view = self._observe_entries_alone()
        else:
            view = self._observe_entries(start_offset, most)
        if view is not None:
            return view, None
        return self._observe(self.live_log if polls else lambda: self.live_log(self._list_known()))

    def observe_and_open(self) -> tuple[LogView, SegmentReader | None]:
        """Return the log as it is now; as the last poll has seen it, if another one polls."""
        return super().observe_and_open() if self.polls_at_end else self.observe_from(None, 0)

    def _observe_entries_alone(self) -> LogView | None:
        """Return all of the log if nothing of it was at home when the stripe was polled last.

        Then nothing was deleted there either, so the directory need not be listed. One listing of
        the stripe tells it of all partitions.
        """
        if not self.stripe.has_all(self.partition):
            return None
        self.stripe.look_for_home_since_poll()
        return self._observe_entries(0, None) if self.stripe.has_all(self.partition) else None

    def _observe_entries(self, start_offset: int, most_places: int | None) -> LogView | None:
        """Return the entries in the stripe from an offset on.

        Args:
            start_offset: the first offset that is needed.
            most_places: maximum number of objects whose entries are shown; None for all.

        Returns:
            The view; None if some records may be at home alone, or the log ends before the offset.
        """
        # Else records that are at home, and were deleted there, would be read for ever.
        self.stripe.look_for_home(is_recent_enough=True)
        observed_ms = self.clock.monotonic_ms()
        places, end_offset = self.stripe.places_from(self.partition, start_offset, most_places)
        if start_offset > end_offset or (start_offset < end_offset and not places):
            return None
        begin = end_offset
        if places:
            begin, end_offset = places[0].base_offset, places[-1].end_offset
        segments = tuple(
            LiveSegment(
                SegmentName(place.base_offset),
                self._entries(place),
                place.base_offset,
                place.end_offset,
            )
            for place in places
        )
        self.on_log_end(end_offset)
        live = LiveLog(begin, segments, newest_us=self.stripe.storage_us if segments else 0)
        leader_epoch = NO_LEADER_EPOCH
        if end_offset:
            leader_epoch = self.stripe.leader_epoch(self.partition)
        return LogView(live, end_offset, observed_ms, leader_epoch, self.url)

    def _list_known(self) -> list[FileInfo]:
        """List the files at home, and the entries that the last poll showed."""
        entries = self._list_entries()
        return [*super().list_files(), *entries]

    def _list_entries(self) -> list[FileInfo]:
        """Return a file for the partition's entries in each object, as a listing would show it."""
        places, end_offset = self.stripe.places(self.partition)
        self.on_log_end(end_offset)
        return [self._entries(place) for place in places]

    def _entries(self, place: Place) -> FileInfo:
        """Return the file that stands for the entries of a place."""
        name = SegmentName(place.base_offset).file_name
        # Or later: the stripe's directory tells no times.
        return FileInfo(self.file_path(name), place.size_bytes, self.stripe.storage_us)

    def read_end(
        self, live: LiveLog, observed_ms: float
    ) -> tuple[int, int | None, SegmentReader | None]:
        """Return the log end offset, its leader epoch, and None: the stripe tells the end."""
        if live.segments and live.segments[-1].end_offset is None:
            name = live.segments[-1].name
            place = self.stripe.place(self.partition, name.base_offset)
            if place is None:
                if self._may_be_file(name.base_offset):
                    return super().read_end(live, observed_ms)
                raise self._gone(self.file_path(name.file_name))  # it is at home: list again
            return place.end_offset, self.stripe.leader_epoch(self.partition), None
        return super().read_end(live, observed_ms)

    def _may_be_file(self, offset: int) -> bool:
        """Return whether a plain segment at an offset may be a file.

        The topic may have had no stripes when it was appended.
        """
        is_moved = self.stripe.leader_epoch(self.partition) > 0
        return is_moved and offset < self.stripe.home_end(self.partition)

    def check_unchanged(self, reader: SegmentReader, observed_ms: float) -> None:
        """Check nothing of entries: their headers were compared with the object's directory."""
        if not isinstance(reader, EntriesReader):
            super().check_unchanged(reader, observed_ms)

    def check_identity(self, reader: SegmentReader, name: SegmentName) -> None:
        """Check nothing of entries: their object is opened by its append id.

        To keep one for each entry would take more memory than the entries.
        """
        if not isinstance(reader, EntriesReader):
            super().check_identity(reader, name)

    def opener(self, end_offset: int, last: SegmentReader | None = None) -> SegmentOpener:
        """Return an opener of segments in order (`PartitionDirectory.opener`).

        It opens ahead what is at home. Objects are opened ahead by the stripe, for all partitions.
        """
        return super().opener(min(end_offset, self.stripe.home_end(self.partition)), last)

    def is_known_end(self, offset: int) -> bool:
        """Return whether the stripe, which another one polls, is known to end at an offset."""
        return not self.polls_at_end and self.stripe.end_offset(self.partition) <= offset

    def open(self, name: SegmentName, size_bytes: int | None = None) -> SegmentReader:
        """Open a segment at home, or the entries that begin at an offset.

        Args:
            name: parsed file name.
            size_bytes: the file's size in a listing; not checked of entries.

        Raises:
            NotFoundError: there is no such file; or the stripe has no such entries, since the log
                ends there, or they are at home.
            CorruptRecordError: the segment or the object is damaged.
        """
        if name.last_offset is not None:
            return super().open(name, size_bytes)
        try:
            return self.stripe.open(
                self.partition, name.base_offset, polls_at_end=self.polls_at_end
            )
        except NotFoundError:
            if self._may_be_file(name.base_offset):
                with suppress(NotFoundError):
                    return super().open(name, size_bytes)
            # Where the end is further on, the records are at home: a view that ends here is short.
            self.on_log_end(self.stripe.end_offset(self.partition))
            raise
