"""The directory of a striped partition: its files at home, and its entries in the stripe."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from spark_log.log.directory import PartitionDirectory
from spark_log.log.files import LiveLog, SegmentName
from spark_log.log.segment import SegmentReader
from spark_log.log.stripe.reader import StripeReader
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
    """

    def __init__(self, *where: Any, stripe: StripeReader, **how: Any) -> None:
        """Access no storage yet.

        Args:
            where: arguments of `PartitionDirectory`.
            stripe: what the process has read of the stripe.
            how: further arguments of `PartitionDirectory`.
        """
        super().__init__(*where, **how)
        self.stripe = stripe
        self.at_home = PartitionDirectory(*where, **how)
        self._listed_end = 0

    def check_not_removed(self) -> None:
        """Check nothing: before its first records are at home, the partition has no directory."""

    def list_files(self) -> Iterable[FileInfo]:
        """List the files at home, and the entries in the stripe as plain segments."""
        entries = self._list_stripe()
        return [*super().list_files(), *entries]

    def list_with_hidden(self) -> tuple[Sequence[FileInfo], Sequence[FileInfo]]:
        """List the files at home, the entries in the stripe, and the hidden files at home."""
        entries = self._list_stripe()
        files, hidden = super().list_with_hidden()
        return [*files, *entries], hidden

    def _list_stripe(self) -> list[FileInfo]:
        """Return a file for the partition's entries in each object, as a listing would show it."""
        self.stripe.poll()
        places, self._listed_end = self.stripe.places(self.partition)
        self.on_log_end(self._listed_end)
        modified_us = self.stripe.storage_us  # or later: the stripe's directory tells no times
        return [
            FileInfo(
                self.file_path(SegmentName(each.base_offset).file_name),
                each.size_bytes,
                modified_us,
            )
            for each in places
        ]

    def read_end(
        self, live: LiveLog, observed_ms: float
    ) -> tuple[int, int | None, SegmentReader | None]:
        """Return the log end offset, its leader epoch, and None: the stripe tells the end."""
        if live.segments and live.segments[-1].end_offset is None:
            return self._listed_end, 0, None
        return super().read_end(live, observed_ms)

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
        if name.last_offset is None:
            return self.stripe.open(self.partition, name.base_offset)
        return super().open(name, size_bytes)
