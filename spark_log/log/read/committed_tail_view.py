"""The end of a log for a reader with ``read_committed``, and the segments that it holds back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Final

from spark_log.errors import NotFoundError
from spark_log.log.cache_budget import LOG_CACHES, LogCache
from spark_log.log.directory import LogView, PartitionDirectory
from spark_log.log.producers import NOT_LISTED_US, OpenTransaction, ProducerState, TransactionIndex
from spark_log.log.read.tail_view import TailView
from spark_log.log.segment import SegmentReader
from spark_log.log.snapshot import Snapshots

_MAX_LISTED: Final = 4_096
"""Maximum number of aborted transactions kept in memory. Beyond it, those of one segment are read
from the segment's headers."""


def compact_aborted(index: TransactionIndex, view: LogView) -> None:
    """Leave aborted transactions to the headers of their segments if there are many."""
    if index.aborted_count > _MAX_LISTED:
        ends = (each.end_offset or view.log_end_offset for each in view.live.segments)
        index.compact([view.log_start_offset, *ends])


class CommittedTailView(LogCache):
    """The followed end of a log, with the transactions that decide which records are returned.

    A transaction is decided by a marker behind its records. Therefore the headers of each new
    segment are read when it is found, and its records wait until nothing before them is undecided.
    Meanwhile the open segment is held, so that no file is opened or read twice. Segments for which
    the budget of the process has no room are opened again. The segments of a listing that lie
    behind the newest snapshot are followed like new ones.
    """

    def __init__(self, directory: PartitionDirectory, snapshots: Snapshots) -> None:
        """Access no storage yet."""
        self._directory = directory
        self._snapshots = snapshots
        self._state: ProducerState | None = None
        self._tail: TailView | None = None
        self._held: list[SegmentReader] = []  # a deque takes 760 bytes for each log
        self._held_bytes = 0
        self._is_doubted = False
        self._lock = Lock()
        self._users = 0
        self._share = LOG_CACHES.share(self)

    def drop(self) -> None:
        """Forget the listing, and the segments that are held, unless a read uses them."""
        with self._lock:
            if not self._users:
                self._tail = None
                self._let_go()

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep the listing and the held segments from `drop` during the block."""
        with self._lock:
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
            self._hold_share()

    def _hold_share(self) -> None:
        tail = self._tail
        self._share.hold(self._held_bytes + (0 if tail is None else tail.size_bytes))

    def _let_go(self) -> None:
        self._held.clear()
        self._held_bytes = 0

    def load(self, view: LogView) -> tuple[TransactionIndex, LogView]:
        """Return the transactions at the end of a view, and the view that they belong to.

        The returned view is newer than the given one if the log was rewritten meanwhile.
        """
        state, view = self._snapshots.transactions(view, self._state)
        self._set_state(state)
        compact_aborted(self.index, view)
        return self.index, view

    def _set_state(self, state: ProducerState) -> None:
        """Continue with a state; a new one does not know records that are held, and may be gone."""
        if state is not self._state:
            self._let_go()
        self._state = state

    # --- following -------------------------------------------------------------------------------

    def observe(self) -> LogView:
        """List the log, and follow it from the newest snapshot, or from the last followed offset.

        No segment is opened, unless the last listing did not fit the log.
        """
        self._tail = None
        observed, last = self._directory.observe_and_open()
        state, view = self._snapshots.initial_state(observed, self._state)
        self._set_state(state)
        is_followed = state.transactions.is_complete and state.offset <= view.log_end_offset
        if self._is_doubted or not is_followed:
            _, view = self.load(view)
        self._is_doubted = False
        compact_aborted(self.index, view)
        self.index.log_start_offset = view.log_start_offset
        self._tail = TailView(
            self._directory,
            view,
            last if view is observed else None,
            min(self.index.last_stable_offset, state.offset),
        )
        return view

    def forget(self) -> None:
        """Forget the listing: `holds` is False until the next `observe`."""
        self._tail = None

    def release(self) -> None:
        """Release the memory of the segment that was opened last; those held are kept."""
        if self._tail is not None:
            self._tail.release()

    @property
    def is_valid(self) -> bool:
        """Whether the listing is still valid."""
        return self._tail is not None and self._tail.is_valid

    def holds(self, offset: int) -> bool:
        """Return whether the listing is valid, and ``offset`` is in the log or is its end."""
        return self._tail is not None and self._tail.is_valid and self._tail.holds(offset)

    @property
    def observed_ms(self) -> float:
        """Monotonic time before the listing began."""
        assert self._tail is not None
        return self._tail.observed_ms

    @property
    def index(self) -> TransactionIndex:
        """The transactions as far as the log was followed."""
        assert self._state is not None
        return self._state.transactions

    @property
    def last_stable_offset(self) -> int:
        """Offset before which everything is decided, as far as the log was followed.

        A newer listing may have moved the log's start in the index, but not in this tail. Until
        this tail is listed again, offsets before that start are read, where transactions may be
        open.
        """
        tail, first = self._tail, self.index.first_open
        assert tail is not None
        end_offset = min(self.index.offset, tail.log_end_offset)
        if first is None:
            return end_offset
        return min(max(first.first_offset, tail.log_start_offset), end_offset)

    @property
    def blocking_transaction(self) -> OpenTransaction | None:
        """The transaction that begins at the last stable offset; None if none is open."""
        return self.index.first_open

    def open_at(self, offset: int) -> SegmentReader | None:
        """Return the segment that contains ``offset``; None if the listing has to be repeated."""
        assert self._tail is not None
        while self._held and self._held[0].end_offset <= offset:
            self._held_bytes -= self._held.pop(0).memory_bytes
        if self._held and self._held[0].base_offset <= offset:
            return self._held[0]
        return self._tail.open_at(offset)

    def advance(self) -> bool:
        """Replay the headers of the next segment: of the listing, or behind it at the log's end.

        Returns:
            Whether a next segment exists. It may be found only after the next `observe`.

        Raises:
            CorruptRecordError: the segment is damaged.
        """
        tail, state = self._tail, self._state
        assert tail is not None
        assert state is not None
        is_listed = state.offset < tail.log_end_offset
        if is_listed and not tail.is_valid:
            self.forget()
            return True
        reader = tail.open_at(min(state.offset, tail.log_end_offset))
        if reader is None:
            if is_listed:
                self._doubt()
            return is_listed
        self._tail = None  # until the headers are replayed
        try:
            for _, headers in reader.all_headers():
                state.replay(reader.base_offset, headers, NOT_LISTED_US)
            self._directory.check_unchanged(reader, tail.observed_ms)
        except NotFoundError:  # on an object store, it was deleted meanwhile
            self._state = None
            self._doubt()
            return True
        if not tail.is_behind:
            self._tail = tail
        state.offset = max(state.offset, reader.end_offset)  # its last records may be removed
        if self.index.last_stable_offset < reader.end_offset:
            self._hold(reader)
        return True

    def _doubt(self) -> None:
        """List the log again, and open all segments behind the snapshot: one may be missing."""
        self._is_doubted = True
        self.forget()

    def _hold(self, reader: SegmentReader) -> None:
        if self._held and self._held[-1].end_offset != reader.base_offset:
            if reader.base_offset > self._held[-1].end_offset:
                return  # those before it were beyond the bound
            self._let_go()
        held_bytes = self._held_bytes + reader.memory_bytes
        if reader.is_in_memory and self._share.fits(held_bytes):
            self._held.append(reader)
            self._held_bytes = held_bytes
