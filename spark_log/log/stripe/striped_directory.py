"""The directory of a striped partition: its files at home, and its entries in the stripe."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

from spark_log.errors import NotFoundError
from spark_log.log.directory import LogView, PartitionDirectory
from spark_log.log.files import LiveLog, LiveSegment, SegmentName
from spark_log.log.segment import SegmentReader
from spark_log.log.stripe.entries_reader import EntriesReader
from spark_log.log.stripe.reader import Place, StripeReader
from spark_log.storage import FileInfo


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

    def observe_polled(self, start_offset: int | None = None) -> LogView:
        """Return the log with what the last poll of the stripe has shown.

        Another partition's log may have polled, so that many share one request.

        Args:
            start_offset: the first offset that is needed; None for all of the log. If the stripe
                has the records from it on, the directory is not listed, and the view begins with
                the entries that contain it, or at the log's end. Once in half of the delay the
                stripe is listed.

        Raises:
            SparkLogError: See `observe`.
        """
        self.stripe.reach(self.partition)  # no poll at all shows an empty stripe
        view = None if start_offset is None else self._observe_entries(start_offset)
        return view or self._observe(lambda: self.live_log(self._list_known()))[0]

    def _observe_entries(self, start_offset: int) -> LogView | None:
        """Return the entries in the stripe from an offset on; None if some may be at home alone."""
        # Else records that are at home, and were deleted there, would be read for ever.
        self.stripe.look_for_home(is_recent_enough=True)
        observed_ms = self.clock.monotonic_ms()
        places, end_offset = self.stripe.places(self.partition)
        first = bisect_right(places, start_offset, key=lambda place: place.base_offset) - 1
        if first < 0 and start_offset < end_offset:
            return None
        places = places[first:] if start_offset < end_offset else ()
        begins = [place.base_offset for place in places]
        segments = tuple(
            LiveSegment(SegmentName(place.base_offset), self._entries(place), *between)
            for place, between in zip(places, pairwise([*begins, end_offset]), strict=True)
        )
        live = LiveLog(begins[0] if begins else end_offset, segments)
        epoch = self.stripe.leader_epoch(self.partition)
        return LogView(live, end_offset, observed_ms, epoch, self.url)

    def observe_from(self, offset: int) -> tuple[LogView, SegmentReader | None]:
        """Return a view for a read from an offset to the log's end.

        If the stripe has the records from it on, the directory is not listed.
        """
        if self.polls_at_end:
            self.stripe.poll()
        else:
            self.stripe.reach(self.partition)  # no poll at all shows an empty stripe
        is_in_log = offset <= self.stripe.end_offset(self.partition)
        view = self._observe_entries(offset) if is_in_log else None
        return self.observe_and_open() if view is None else (view, None)

    def observe_between(
        self, start_offset: int, end_offset: int
    ) -> tuple[LogView, SegmentReader | None]:
        """Return a view for a read between two offsets.

        It polls the stripe only if its known end is before the second offset, and lists what is at
        home only if records before the stripe's entries are needed.
        """
        self.stripe.reach(self.partition, end_offset)
        return self.observe_polled(start_offset), None

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
