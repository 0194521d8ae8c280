"""Reading the partitions of one stripe: records at home, then those in objects."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import ClassVar, Final, NamedTuple

import numpy as np

from spark_log.errors import CorruptRecordError, NotFoundError, OffsetOutOfRangeError
from spark_log.log.cache_budget import LOG_CACHES, LogCache
from spark_log.log.directory import LogView
from spark_log.log.local_log import LocalLog
from spark_log.log.producers import OpenTransaction, TransactionIndex
from spark_log.log.read import MAX_READ_BYTES, Batches, IsolationLevel, Selection, read_batches
from spark_log.log.segment import LogBatch
from spark_log.log.stripe.directory import StripeDirectory
from spark_log.log.stripe.stripe_object import StripeObject
from spark_log.log.stripe.tail import StripeTail

MAX_PLACES: Final = 1_000_000
"""Number of places of entries that a reader keeps; those of the oldest objects are forgotten."""

OBJECTS_PER_LISTING: Final = 1_024
"""Objects behind the known home marker with which a reader looks for a newer marker."""

MAX_OPEN_OBJECTS: Final = 32
"""Number of objects that a reader keeps open."""

_MAX_TRIES: Final = 10
"""Times in a row that records are neither in the stripe nor at home."""

OpenHome = Callable[[int], LocalLog]
"""Returns the log of a partition's records at home."""


class Place(NamedTuple):
    """The place of one partition's consecutive entries in an object.

    Attributes:
        number: number of the object.
        append_id: the object's append id.
        entries: numbers of the entries in the object.
        base_offset: the first record's offset.
    """

    number: int
    append_id: str
    entries: range
    base_offset: int


class ObjectPlaces(NamedTuple):
    """The places of all partitions' entries in an object, in 24 bytes each.

    Attributes:
        append_id: the object's append id.
        partitions: the partitions, int32, ascending.
        firsts: number of the first entry of each, int32.
        entry_count: number of entries.
        base_offsets: offset of the first record of each, int64.
        end_offsets: offset after the last record of each, int64.
    """

    append_id: str
    partitions: np.ndarray
    firsts: np.ndarray
    entry_count: int
    base_offsets: np.ndarray
    end_offsets: np.ndarray

    @classmethod
    def of(cls, found: StripeObject, offsets: np.ndarray) -> ObjectPlaces:
        """Return the places in an object.

        Args:
            found: the object.
            offsets: the base offset of each of its entries.
        """
        directory = found.directory
        partitions, firsts = np.unique(directory.partitions, return_index=True)
        lasts = np.append(firsts[1:], len(directory)) - 1
        counts = np.array([directory.headers[last].record_count for last in lasts.tolist()])
        return cls(
            found.append_id,
            partitions,
            firsts.astype(np.int32),
            len(directory),
            offsets[firsts],
            offsets[lasts] + counts,
        )

    def at(self, number: int, partition: int, offset: int) -> Place | None:
        """Return the place of a partition's record; None if this object does not have it.

        Args:
            number: number of the object.
            partition: number of the partition.
            offset: the record's offset.
        """
        at = int(np.searchsorted(self.partitions, partition))
        if at == len(self.partitions) or self.partitions[at] != partition:
            return None
        if not self.base_offsets[at] <= offset < self.end_offsets[at]:
            return None
        behind = self.firsts[at + 1] if at + 1 < len(self.firsts) else self.entry_count
        entries = range(int(self.firsts[at]), int(behind))
        return Place(number, self.append_id, entries, int(self.base_offsets[at]))


class KnownStripe:
    """The part of a stripe that a reader knows, from one home marker on.

    Attributes:
        tail: the state at the known end.
        home_checked_at: the next number when a newer home marker was looked for last.
        is_behind: whether the reader began again at a home marker to find what it had forgotten,
            and has not come to the stripe's end since.
    """

    tail_class: ClassVar[type[StripeTail]] = StripeTail
    """The class that keeps the stripe's end. A subclass may have another one."""

    def __init__(
        self, directory: StripeDirectory, on_object: Callable[[StripeObject], None]
    ) -> None:
        """Know nothing yet.

        Args:
            directory: the stripe's directory.
            on_object: function that is called for each object that is taken in.
        """
        self.tail = self.tail_class(directory, self.on_object, keeps_aborted=True)
        self.home_checked_at = 0
        self.is_behind = False
        self._on_taken = on_object
        self._places: OrderedDict[int, ObjectPlaces] = OrderedDict()
        self._count = 0
        self._found: dict[int, tuple[int, int]] = {}
        """Partition → an offset, and the number of the object that has it."""

    def find(self, partition: int, offset: int) -> Place | None:
        """Return the place of a partition's record; None if it is not known."""
        self.forget_before(self.tail.taken_from)  # a home marker may be in the place of objects
        if not self._places:
            return None
        number = next(iter(self._places))
        hint = self._found.get(partition)
        if hint is not None and hint[0] <= offset and hint[1] > number:
            number = hint[1]  # most reads continue where the last one ended
        for at in range(number, self.tail.state.next_number):
            place = self._places[at].at(at, partition, offset)
            if place is not None:
                self._found[partition] = offset, at
                return place
        return None

    def forget_before(self, number: int) -> None:
        """Forget the places in objects below a number."""
        while self._places and next(iter(self._places)) < number:
            _, forgotten = self._places.popitem(last=False)
            self._count -= len(forgotten.partitions)

    def on_object(self, found: StripeObject, offsets: np.ndarray) -> None:
        """Keep the places of an object's entries, and the object itself."""
        self.forget_before(self.tail.taken_from)
        places = self._places[found.number] = ObjectPlaces.of(found, offsets)
        self._count += len(places.partitions)
        while self._count > MAX_PLACES and len(self._places) > 1:
            self.forget_before(next(iter(self._places)) + 1)
        self._on_taken(found)


class StripeReader(LogCache):
    """Reads the partitions of one stripe. For one thread at a time.

    `poll` learns the objects that were appended, for all partitions by one request at the stripe's
    end. `stream` and `read` return records up to the end that is known. The stripe is looked at
    first: what it has no more was at home before (protocol P7). Readers take no locks.

    Attributes:
        blocking_transaction: the transaction that held up the last read with ``read_committed``;
            None if this read came to the partition's known end.
    """

    known_class: ClassVar[type[KnownStripe]] = KnownStripe
    """The class of the known part of the stripe. A subclass may have another one."""

    def __init__(self, directory: StripeDirectory, open_home: OpenHome) -> None:
        """Access no storage yet.

        Args:
            directory: the stripe's directory.
            open_home: returns the log of a partition's records at home.
        """
        self.blocking_transaction: OpenTransaction | None = None
        self._directory = directory
        self._open_home = open_home
        self._known: KnownStripe | None = None
        self._objects: OrderedDict[int, StripeObject] = OrderedDict()
        self._homes: dict[int, LocalLog] = {}
        self._views: dict[int, LogView] = {}
        self._share = LOG_CACHES.share(self)

    def drop(self) -> None:
        """Forget the open objects. They are read again when they are needed."""
        self._objects = OrderedDict()

    # --- the stripe's end ------------------------------------------------------------------------

    def poll(self) -> None:
        """Take in the objects that were appended.

        At the end of a stripe that was observed a moment ago this costs one request.

        Raises:
            CorruptRecordError: an object or a home marker is damaged or missing.
            StorageError: the storage does not answer.
        """
        known = self._known or self._begin()
        known.tail.refresh()
        known.is_behind = False
        behind = known.tail.state.next_number - max(known.tail.home_number, known.home_checked_at)
        if behind >= OBJECTS_PER_LISTING:
            known.home_checked_at = known.tail.state.next_number
            self._advance_home(known)
        self._hold()

    def end_offset(
        self, partition: int, *, isolation_level: IsolationLevel = "read_uncommitted"
    ) -> int:
        """Return the known log end offset; with ``read_committed`` the last stable offset."""
        known = self._known
        if known is None:
            return 0
        if isolation_level == "read_committed":
            return known.tail.state.transactions(partition).last_stable_offset
        return known.tail.state.end_offset(partition)

    # --- records ---------------------------------------------------------------------------------

    def read(
        self,
        partition: int,
        offset: int,
        max_bytes: int = MAX_READ_BYTES,
        *,
        check_crcs: bool = True,
        isolation_level: IsolationLevel = "read_uncommitted",
    ) -> tuple[list[LogBatch], int]:
        """Return batches of records from an offset on, and the offset to read next.

        Args:
            partition: number of the partition.
            offset: the first record's offset.
            max_bytes: approximate size of the answer; the first batch may be larger.
            check_crcs: whether to check the checksums of batches.
            isolation_level: ``read_committed`` ends at the last stable offset, and leaves out
                aborted batches.

        Raises:
            SparkLogError: See `stream`.
        """
        batches = self.stream(
            partition, offset, check_crcs=check_crcs, isolation_level=isolation_level
        )
        return read_batches(batches, offset, max_bytes)

    def stream(
        self,
        partition: int,
        offset: int,
        *,
        check_crcs: bool = True,
        isolation_level: IsolationLevel = "read_uncommitted",
    ) -> Batches:
        """Yield batches from an offset to the partition's known end, each with the offset after it.

        Control batches are included. None is yielded in place of an aborted batch, and at the end
        of a segment at home. The first call polls.

        Args:
            partition: number of the partition.
            offset: the first record's offset.
            check_crcs: whether to check the checksums of batches.
            isolation_level: ``read_committed`` ends at the last stable offset, and yields no
                aborted batch.

        Raises:
            OffsetOutOfRangeError: ``offset`` is not in the log; has the valid range.
            CorruptRecordError: a file is damaged, or records are neither in the stripe nor at home.
            StorageError: the storage does not answer.
        """
        if self._known is None:
            self.poll()
        is_committed = isolation_level == "read_committed"
        self.blocking_transaction = None
        if offset > self.end_offset(partition):
            self.poll()  # another process may know more of the stripe
        end = self.end_offset(partition)
        if offset > end:
            raise OffsetOutOfRangeError(
                f"{self._directory.path}, partition {partition}: offset {offset} is out of range; "
                f"the log ends at {end}",
                offset=offset,
                log_start_offset=0,
                log_end_offset=end,
            )
        tries = 0
        while self._is_before_end(partition, offset, isolation_level):
            before = offset
            for batch, next_offset in self._next(
                partition, offset, check_crcs=check_crcs, is_committed=is_committed
            ):
                yield batch, next_offset
                offset = next_offset
            tries = 0 if offset > before else tries + 1
            if tries > _MAX_TRIES:
                raise self._hole(partition, offset)
        if is_committed and offset < self.end_offset(partition):
            known = self._known
            assert known is not None
            self.blocking_transaction = known.tail.state.transactions(partition).first_open

    def _next(
        self, partition: int, offset: int, *, check_crcs: bool, is_committed: bool
    ) -> Batches:
        """Yield the next batches of a partition; none if its place has to be looked for again."""
        known = self._known or self._begin()
        level: IsolationLevel = "read_committed" if is_committed else "read_uncommitted"
        end = self.end_offset(partition, isolation_level=level)
        home_end = known.tail.home_ends.get(partition, 0)
        if offset < home_end:
            yield from self.read_home(
                known, partition, offset, min(end, home_end), check_crcs, is_committed=is_committed
            )
            return
        place = known.find(partition, offset)
        if place is None and offset < end:  # it was forgotten
            known = self._begin()
            known.tail.list_stripe()
            known.is_behind = True
            place = self._read_on(known, partition, offset, level)
            end = self.end_offset(partition, isolation_level=level)
        if place is None:
            return
        index = known.tail.state.transactions(partition) if is_committed else None
        try:
            batches = list(self._read_place(place, offset, end, check_crcs, index))
        except (NotFoundError, CorruptRecordError) as error:
            self._on_unread(known, place, error)
            return
        yield from batches

    def _read_place(
        self,
        place: Place,
        offset: int,
        end_offset: int,
        check_crcs: bool,
        index: TransactionIndex | None,
    ) -> Iterator[tuple[LogBatch | None, int]]:
        """Yield the records of a partition in an object.

        Raises:
            NotFoundError: the object does not exist any more.
            CorruptRecordError: the object is damaged, or was replaced while it was read.
        """
        found = self.open_again(place)
        for batch in found.read_log_batches(
            place.entries,
            place.base_offset,
            offset,
            end_offset,
            check_crcs=check_crcs,
            is_aborted=None if index is None else index.is_aborted,
        ):
            yield None if batch.is_aborted else batch, batch.end_offset

    def open_again(self, place: Place) -> StripeObject:
        """Return an object that was taken in before, opened again if it has to be.

        A number that was freed may be used by a late put: then it has another append id.

        Raises:
            NotFoundError: the object does not exist any more.
        """
        number = place.number
        found = self._objects.get(number)
        if found is None or found.append_id != place.append_id:
            found = self._directory.open(number)
            if found is None or found.append_id != place.append_id:
                path = self._directory.file_path(number)
                raise NotFoundError(f"{path} was freed", path=path)
        self._keep(found)
        self._hold()
        return found

    def _on_unread(
        self, known: KnownStripe, place: Place, error: NotFoundError | CorruptRecordError
    ) -> None:
        """Learn the newest home marker after an object could not be read.

        Raises:
            CorruptRecordError: no home marker is above the object: it is damaged or missing.
        """
        self._objects.pop(place.number, None)
        self._advance_home(known)
        if known.tail.home_number > place.number:
            return
        if isinstance(error, CorruptRecordError):
            raise error
        raise CorruptRecordError(
            f"{error}, but no home marker is above it. Restore it from a copy", path=error.path
        ) from error

    def _is_before_end(self, partition: int, offset: int, level: IsolationLevel) -> bool:
        """Return whether a record may be returned at an offset."""
        known = self._known
        if known is not None and known.is_behind:
            self._read_on(known, partition, offset, level)
        return offset < self.end_offset(partition, isolation_level=level)

    def _read_on(
        self, known: KnownStripe, partition: int, offset: int, level: IsolationLevel
    ) -> Place | None:
        """Take in objects until a record may be returned, or up to the stripe's end.

        Returns:
            The record's place; None if it is at home.
        """
        tail, place = known.tail, None
        while True:
            if offset < self.end_offset(partition, isolation_level=level):
                return place
            if not tail.take_next():
                known.is_behind = False
                return None
            # Objects behind it may be read until its transaction has ended.
            place = place or known.find(partition, offset)

    def read_home(
        self,
        known: KnownStripe,
        partition: int,
        offset: int,
        end_offset: int,
        check_crcs: bool,
        *,
        is_committed: bool,
    ) -> Batches:
        """Yield the records of a partition at home."""
        log = self._homes.get(partition)
        if log is None:
            log = self._homes[partition] = self._open_home(partition)
        view = self._views.get(partition)
        if (
            view is None
            or view.log_end_offset < end_offset
            or log.files.is_outdated(view.observed_ms)
        ):
            view = self._views[partition] = log.observe()
        if view.log_end_offset < end_offset:
            raise self._hole(partition, view.log_end_offset)
        index = None
        if is_committed:
            index = log.transactions(view)
            # Those of which the marker is in an object still.
            index.add_aborted(known.tail.state.transactions(partition).aborted)
        selection = Selection(None, check_crcs, index)
        yield from log.scan_view(view, offset, end_offset, selection)

    # --- what is known ---------------------------------------------------------------------------

    def _begin(self) -> KnownStripe:
        self._known = known = self.known_class(self._directory, self._keep)
        return known

    def _advance_home(self, known: KnownStripe) -> None:
        known.tail.advance_home()
        known.forget_before(known.tail.home_number)

    def _keep(self, found: StripeObject) -> None:
        """Keep an object open, and close those that were used longest ago."""
        objects = self._objects
        objects[found.number] = found
        objects.move_to_end(found.number)
        while len(objects) > MAX_OPEN_OBJECTS:
            objects.popitem(last=False)

    def _hold(self) -> None:
        self._share.hold(sum(each.memory_bytes for each in self._objects.values()))

    def _hole(self, partition: int, offset: int) -> CorruptRecordError:
        path = self._directory.path
        return CorruptRecordError(
            f"{path}: the records of partition {partition} from offset {offset} on are neither in "
            f"the stripe nor at home. Restore them from a copy",
            path=path,
        )
