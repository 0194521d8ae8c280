"""Reading a partition's log by offset and by time, while it is appended to and rewritten."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, Literal, Self

from spark_log.config import DEFAULT_FILE_DELETE_DELAY_MS
from spark_log.errors import NotFoundError
from spark_log.log.cache_budget import LOG_CACHES, LogCache
from spark_log.log.directory import LogEnd, LogView, PartitionDirectory
from spark_log.log.producers import OpenTransaction, TransactionIndex
from spark_log.log.read.committed_tail_view import CommittedTailView
from spark_log.log.read.segment_batches import Batches, Selection, read_segment
from spark_log.log.read.tail_view import TailView
from spark_log.log.segment import LogBatch, SegmentReader
from spark_log.log.snapshot import Snapshots
from spark_log.storage import Store, listing_validity_ms
from spark_log.util import IN_PROCESS, SYSTEM_CLOCK, SuppressedErrors

if TYPE_CHECKING:
    from spark_log.log.read.key_lookup import KeyLookup, KeyQuery
    from spark_log.log.read.pruning import SegmentTimes

IsolationLevel = Literal["read_uncommitted", "read_committed"]
"""Whether a read returns records of transactions that are open or were aborted (Kafka's
``isolation.level``). With ``read_committed`` it ends at the last stable offset."""

MAX_READ_BYTES: Final = 52_428_800
"""Default of the approximate maximum size of one read (``fetch.max.bytes``)."""


class SeekResult(Enum):
    """The result of a listing of the log's last names, from a segment that is known."""

    LOG_ENDS = auto()
    """The log ends where the segment ends."""
    MAY_CONTINUE = auto()
    """The segment is part of the log, and others may follow: read from its end."""
    UNCONFIRMED = auto()
    """The segment may not be part of the log. The next read lists the whole log."""


class LogReader(LogCache):
    """Reads one partition's log. For one thread at a time.

    Readers take no locks. If a segment is rewritten and deleted during a read, the read
    continues in its replacement, so a reader sees each record once. Between two reads it keeps the
    tail of the log, so that a read at the end costs one request for the next segment. If the budget
    of the process has no room for the tail, the next read lists the log.

    Attributes:
        blocking_transaction: the transaction that held up the last read with ``read_committed``;
            None if this read came to the log's end.
        max_leader_epoch: a read raises `NewerLeaderEpochError` before a batch of a newer leader
            epoch; None for no limit.
    """

    max_leader_epoch: int | None = None

    def __init__(self, directory: PartitionDirectory, snapshots: Snapshots) -> None:
        self._directory = directory
        self._snapshots = snapshots
        self._tail: TailView | None = None
        self._times: SegmentTimes | None = None
        self._committed = CommittedTailView(directory, snapshots)
        self._keys: KeyLookup | None = None
        self._share = LOG_CACHES.share(self)
        self.blocking_transaction: OpenTransaction | None = None

    @classmethod
    def open(cls, store: Store, directory: str, *, topic_id: str, partition: int) -> Self:
        """Return the reader of a log that this process only reads. Accesses no storage yet.

        A `LocalLog` can do more. Its import, and that of the table of settings, takes longer than a
        short read.

        Args:
            store: the store that holds the log.
            directory: the log's directory, relative to the store's root.
            topic_id: the topic's id; checked against every segment.
            partition: number of the partition; checked against every segment.
        """
        files = PartitionDirectory(
            store,
            directory,
            topic_id=topic_id,
            partition=partition,
            clock=SYSTEM_CLOCK,
            valid_ms=listing_validity_ms(DEFAULT_FILE_DELETE_DELAY_MS),
            suppressed=SuppressedErrors(IN_PROCESS),
        )
        return cls(files, Snapshots(files))

    @property
    def files(self) -> PartitionDirectory:
        """The log's directory."""
        return self._directory

    def drop(self) -> None:
        """Forget the listing. A read that is under way keeps it."""
        self._tail = self._times = None

    def _hold(self) -> None:
        """Report the memory of what is kept between two reads to the budget."""
        tail, times = self._tail, self._times
        size_bytes = 0 if tail is None else tail.size_bytes
        if times is not None:
            size_bytes += times.view.memory_bytes
        self._share.hold(size_bytes)

    def stream(self, offset: int, selection: Selection, isolation_level: IsolationLevel) -> Batches:
        """Yield batches from ``offset`` to the log's end, each with the offset after it.

        Control batches are included. None is yielded in place of an aborted batch, and at the end
        of a segment, whose end offset may lie behind its last record.

        Args:
            offset: the first record's offset.
            selection: the columns, and whether checksums are checked.
            isolation_level: ``read_committed`` ends at the last stable offset, and yields no
                aborted batch.

        Raises:
            OffsetOutOfRangeError: ``offset`` is not in the log; has the valid range.
            NewerLeaderEpochError: the next batch has a newer leader epoch than `max_leader_epoch`.
            CorruptRecordError: a segment is damaged; has file and position.
        """
        if isolation_level == "read_committed":
            return self._stream_committed(offset, selection)
        return self._stream(offset, selection)

    def tail_ends_at(self, offset: int) -> bool:
        """Whether the log ends at ``offset``, where a read has ended. For any thread."""
        tail = self._tail
        return tail is not None and tail.ends_at(offset)

    def end_after(self, offset: int) -> tuple[LogEnd, int] | None:
        """Return the log's end as it was read, and the number of segments between an offset and it.

        Returns:
            The end and the number; None if they are not known any more.
        """
        tail = self._tail
        return tail.end_after(offset) if tail is not None and tail.is_valid else None

    def seek_past_segment(self, base_offset: int, end_offset: int) -> SeekResult:
        """Begin to read behind a known segment of a log that is never rewritten.

        This costs one listing of the names from this segment on, unless the next read needs none.

        Args:
            base_offset: the segment's base offset.
            end_offset: the segment's end offset.

        Raises:
            StorageError: the storage does not answer.
        """
        tail = self._tail
        if tail is not None and tail.is_valid and tail.holds(end_offset):
            return SeekResult.MAY_CONTINUE
        view = self._directory.observe_tail(base_offset, end_offset)
        if view is None:
            self._tail = None
            return SeekResult.UNCONFIRMED
        self._tail = TailView(self._directory, view)
        self._hold()
        self._directory.on_log_end(end_offset)
        is_last = view.live.base_after_gap is None
        return SeekResult.LOG_ENDS if is_last else SeekResult.MAY_CONTINUE

    def read_last(self) -> tuple[list[LogBatch], LogView]:
        """Return the batches of the log's last segment, and the listing that showed it.

        This costs one listing, and one request for the segment if it is small.

        Raises:
            CorruptRecordError: the segment is damaged, or one before it is missing.
        """
        while True:
            view, opened = self._directory.observe_and_open()
            self._tail = TailView(self._directory, view)
            self._hold()
            if not view.live.segments:
                return [], view
            last = view.live.segments[-1]
            with suppress(NotFoundError):
                reader = opened or self._directory.open_listed(last, view.observed_ms)
                batches = list(reader.read(last.start_offset))
                self._directory.check_unchanged(reader, view.observed_ms)
                return batches, view

    def observe(self) -> LogView:
        """Return the log as it is now: the next read begins with this listing.

        Raises:
            SparkLogError: `PartitionDirectory.observe` failed.
        """
        view, last = self._directory.observe_and_open()
        self._tail = TailView(self._directory, view, last)
        self._hold()
        return view

    def forget_last(self) -> None:
        """Release the last segment of the listing: no read follows `observe`, only probes."""
        tail = self._tail
        if tail is not None:
            tail.forget_last()

    def forget(self) -> None:
        """List the log again before the next read.

        A replica that left the in-sync replicas may have received a rewritten segment since it was
        listed. The names that this segment covers are free then, and a writer of an earlier leader
        epoch may put its segment at one of them. A reader with an old listing would read it.
        """
        self._tail = None
        self._committed.forget()
        if self._keys is not None:
            self._keys.forget()

    def on_appended(self, base_offset: int, end_offset: int) -> None:
        """Record a segment that this process appended: the next read need not probe for it."""
        tail = self._tail
        if tail is not None and tail.is_valid:
            tail.on_appended(base_offset, end_offset)
        else:
            self._tail = None

    def transactions(self, view: LogView) -> tuple[TransactionIndex, LogView]:
        """Return the transactions at the end of a view, and the view that they belong to.

        The returned view is newer than the given one if the log was rewritten meanwhile, or if
        this reader has followed the log further.
        """
        index, view = self._committed.load(view)
        return index.copy(), view

    def _stream(self, offset: int, selection: Selection) -> Batches:
        while True:
            tail, is_new = self._tail, False
            if tail is None or not tail.can_read(offset):
                tail, is_new = self._observe(offset), True
                if offset == tail.log_end_offset:
                    return
            found = tail.open_at(offset)
            if found is not None:
                try:
                    for batch, next_offset in self._read_segment(
                        found, offset, None, tail.observed_ms, selection
                    ):
                        yield batch, next_offset
                        offset = next_offset
                except NotFoundError:
                    self._tail = None
                else:
                    tail.release()
                    if tail.is_behind:
                        self._tail = None
                    self._hold()
            elif offset == tail.log_end_offset and tail.is_valid:
                return
            elif is_new:
                # Rewritten since the listing, or damaged.
                view = self._directory.observe()
                for batch, next_offset in self.scan_view(
                    view, offset, view.log_end_offset, selection
                ):
                    yield batch, next_offset
                    offset = next_offset
            else:
                self._tail = None

    def _observe(self, offset: int) -> TailView:
        """List the log, to read from an offset.

        Raises:
            OffsetOutOfRangeError: ``offset`` is not in the log; has the valid range.
        """
        self._tail = None
        view, last = self._directory.observe_from(offset)
        view.check_offset(offset, self._directory.path)
        if offset == view.log_end_offset:
            last = None
        else:
            self._snapshots.load_segment_ids(view)
        tail = self._tail = TailView(self._directory, view, last, offset)
        self._hold()
        return tail

    def _stream_committed(self, offset: int, selection: Selection) -> Batches:
        with self._committed.in_use():
            yield from self._follow_committed(offset, selection)

    def _follow_committed(self, offset: int, selection: Selection) -> Batches:
        committed = self._committed
        self.blocking_transaction = None
        while True:
            is_new = False
            if not committed.holds(offset):
                view, is_new = committed.observe().from_offset(offset, self._directory.path), True
                stable = committed.last_stable_offset
                selection = replace(selection, transactions=committed.index)
                for batch, next_offset in self.scan_view(view, offset, stable, selection):
                    yield batch, next_offset
                    offset = next_offset
            stable = committed.last_stable_offset
            if offset < stable:
                found = committed.open_at(offset)
                if found is None:
                    committed.forget()
                    continue
                end = min(stable, found.end_offset)
                selection = replace(selection, transactions=committed.index)
                try:
                    for batch, next_offset in self._read_segment(
                        found, offset, end, committed.observed_ms, selection
                    ):
                        yield batch, next_offset
                        offset = next_offset
                except NotFoundError:
                    committed.forget()
            elif not committed.advance():
                if committed.is_valid or is_new:
                    committed.release()
                    self.blocking_transaction = committed.blocking_transaction
                    return
                committed.forget()

    def scan(
        self,
        start_offset: int,
        end_offset: int | None,
        selection: Selection,
        isolation_level: IsolationLevel,
    ) -> Iterator[LogBatch]:
        """Yield the batches of records from ``start_offset`` to before ``end_offset``.

        Args:
            start_offset: the first record's offset.
            end_offset: records at and after it are left out. None reads to the current log end.
            selection: the columns, and whether checksums are checked.
            isolation_level: ``read_committed`` ends at the last stable offset, and leaves out
                aborted batches.

        Raises:
            OffsetOutOfRangeError: ``start_offset`` is not in the log; has the valid range.
            CorruptRecordError: a segment is damaged; has file and position.
        """
        observed, last = self._directory.observe_and_open()
        view, index = observed, None
        if isolation_level == "read_committed":
            index, view = self._committed.load(view)
        end = view.log_end_offset if end_offset is None else end_offset
        if index is not None:
            first_open = index.first_open
            self.blocking_transaction = first_open if index.last_stable_offset < end else None
            end = min(end, index.last_stable_offset)
        last = last if view is observed else None
        selection = replace(selection, transactions=index)
        for batch, _ in self.scan_view(view, start_offset, end, selection, last):
            if batch is not None and not batch.is_control:
                yield batch

    def offset_for_time(
        self, timestamp_us: int, view: LogView | None, *, isolation_level: IsolationLevel
    ) -> tuple[int, int] | None:
        """Return offset and timestamp of the first record at or after a time; None without one.

        Args:
            timestamp_us: microseconds since the epoch.
            view: the log's view from an earlier listing; None lists the log.
            isolation_level: ``read_committed`` returns no offset from the last stable offset on. A
                record of an aborted transaction counts, as in Kafka.

        Raises:
            CorruptRecordError: a segment is damaged or missing.
        """
        view = view or self._directory.observe()
        stable: int | None = None
        if isolation_level == "read_committed":
            index, view = self._committed.load(view)
            stable = index.last_stable_offset
        tail = self._tail
        last = tail.take_last(view) if tail is not None else None
        while True:
            try:
                found = self._offset_for_time(timestamp_us, view, last)
                is_stable = found is None or stable is None or found[0] < stable
                return found if is_stable else None
            except NotFoundError:  # a segment was rewritten, or deleted at the log's start
                _, view = self._snapshots.segments(self._directory.observe())
                last = None

    def _offset_for_time(
        self, timestamp_us: int, view: LogView, last: SegmentReader | None
    ) -> tuple[int, int] | None:
        times = self._times
        if times is None or times.view is not view:
            from spark_log.log.read.pruning import SegmentTimes  # late: few look for times

            times = self._times = SegmentTimes(self._snapshots, view)
            self._hold()
        for segment in times.segments_reaching(timestamp_us, last):
            opened = last if segment is view.live.segments[-1] else None
            reader = self._directory.open_listed(segment, view.observed_ms, opened)
            found = reader.offset_for_time(timestamp_us, segment.start_offset)
            self._directory.check_unchanged(reader, view.observed_ms)
            if found is not None:
                return found
        return None

    def find_key(self, query: KeyQuery) -> LogBatch | None:
        """Return the newest record of a key, in a batch of one row; None if the log has none.

        A tombstone is a record without a value.

        Args:
            query: the key, and the records that count.

        Raises:
            CorruptRecordError: a segment is damaged or missing.
        """
        if self._keys is None:
            from spark_log.log.read.key_lookup import KeyLookup  # most readers look up no key

            self._keys = KeyLookup(self._directory, self._snapshots)
        return self._keys.find(replace(query, max_leader_epoch=self.max_leader_epoch))

    def scan_view(
        self,
        view: LogView,
        offset: int,
        end_offset: int,
        selection: Selection,
        last: SegmentReader | None = None,
    ) -> Batches:
        """Yield the batches of a view between two offsets, each with the offset after it.

        If a segment is rewritten and deleted meanwhile, the read continues in its replacement. The
        read ends at the end of the view, or of a newer one that had to be listed.

        Args:
            view: the log's view from a listing of this directory.
            offset: the first record's offset.
            end_offset: records at and after it are left out.
            selection: the records to return.
            last: reader of the view's last segment if it is open, so that it is not opened again.

        Yields:
            Batches, control batches included; None in place of an aborted batch, and at the end of
            a segment.

        Raises:
            OffsetOutOfRangeError: ``offset`` is not in the log, or the log start offset has passed
                the next offset; has the valid range.
            CorruptRecordError: a segment is damaged; has file and position.
        """
        view.check_offset(offset, self._directory.path)
        while offset < min(end_offset, view.log_end_offset):
            self._snapshots.load_segment_ids(view)
            try:
                for begin, _, reader in self._directory.walk(view, offset, end_offset, last):
                    stop = min(end_offset, reader.end_offset)
                    for batch, next_offset in self._read_segment(
                        reader, begin, stop, view.observed_ms, selection
                    ):
                        yield batch, next_offset
                        offset = next_offset
            except NotFoundError:
                view, last = self._directory.observe_and_open()
                view.check_offset(offset, self._directory.path)

    def _read_segment(
        self,
        reader: SegmentReader,
        begin: int,
        end_offset: int | None,
        observed_ms: float,
        selection: Selection,
    ) -> Batches:
        return read_segment(
            self._directory,
            reader,
            begin,
            end_offset,
            observed_ms,
            selection,
            max_leader_epoch=self.max_leader_epoch,
        )
