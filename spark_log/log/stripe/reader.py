"""The part of a stripe that a process has read: the places of entries, and the newest objects."""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from typing import ClassVar, Final, NamedTuple

import numpy as np
import pyarrow as pa

from spark_log.errors import CorruptRecordError, NotFoundError, SparkLogError
from spark_log.log.cache_budget import LOG_CACHES, LogCache
from spark_log.log.producers import OpenTransaction, ProducerState
from spark_log.log.segment import StagedSegment
from spark_log.log.stripe.directory import StripeDirectory
from spark_log.log.stripe.entries_reader import EntriesReader
from spark_log.log.stripe.state import StripeState
from spark_log.log.stripe.stripe_object import StripeObject
from spark_log.log.stripe.tail import StripeTail
from spark_log.storage import map_requests

OBJECTS_PER_LISTING: Final = 1_024
"""Objects behind the known home marker with which a reader looks for a newer marker."""

MAX_OPEN_OBJECTS: Final = 32
"""Number of objects that a reader keeps open."""

MAX_OWN_OBJECTS: Final = 16
"""Number of objects that this process has put and not taken in, up to which they are kept."""

NO_OBJECTS: Final[Mapping[int, str]] = {}
"""No objects that are opened together with another one."""


class Place(NamedTuple):
    """The place of one partition's consecutive entries in an object.

    Attributes:
        base_offset: the first record's offset.
        end_offset: the offset after the last record.
        number: number of the object.
        first_entry: number of the first entry.
        end_entry: number of the entry after the last.
        size_bytes: approximate size of the records.
    """

    base_offset: int
    end_offset: int
    number: int
    first_entry: int
    end_entry: int
    size_bytes: int


class _Places:
    """The places of one partition's entries, in 32 bytes each. Each begins where the last ended.

    Attributes:
        end_offset: the offset after the last one.
    """

    def __init__(self) -> None:
        self.end_offset = 0
        self._bases, self._numbers, self._sizes = array("q"), array("q"), array("q")
        self._firsts, self._ends = array("i"), array("i")

    def __len__(self) -> int:
        return len(self._bases)

    def add(
        self,
        base_offset: int,
        end_offset: int,
        number: int,
        first_entry: int,
        end_entry: int,
        size_bytes: int,
    ) -> None:
        """Add the place behind the last one. The arguments are the fields of `Place`."""
        self._bases.append(base_offset)
        self._numbers.append(number)
        self._firsts.append(first_entry)
        self._ends.append(end_entry)
        self._sizes.append(size_bytes)
        self.end_offset = end_offset

    def forget_before(self, number: int) -> None:
        """Forget the places in objects below a number."""
        count = bisect_left(self._numbers, number)
        if count:
            for column in (self._bases, self._numbers, self._firsts, self._ends, self._sizes):
                del column[:count]

    def index_of(self, base_offset: int) -> int | None:
        """Return the index of the place that begins at an offset; None without one."""
        index = bisect_left(self._bases, base_offset)
        return index if index < len(self) and self._bases[index] == base_offset else None

    def around(self, offset: int) -> int:
        """Return the index of the place that contains an offset; -1 if all begin later."""
        return bisect_right(self._bases, offset) - 1

    def at(self, index: int) -> Place:
        """Return the place of an index."""
        following = index + 1
        end_offset = self._bases[following] if following < len(self) else self.end_offset
        return Place(
            self._bases[index],
            end_offset,
            self._numbers[index],
            self._firsts[index],
            self._ends[index],
            self._sizes[index],
        )

    def numbers(self, first: int, end: int) -> Sequence[int]:
        """Return the numbers of the objects of consecutive places.

        Args:
            first: index of the first place.
            end: the index after the last one; there may be fewer.
        """
        return self._numbers[max(0, first) : end]

    def between(self, first: int, end: int) -> list[Place]:
        """Return consecutive places, in offset order; the indexes are those of `numbers`."""
        return [self.at(index) for index in range(max(0, first), min(end, len(self)))]


class _Opening:
    """An object that one thread opens for others, too.

    Attributes:
        lock: held until the object is open.
        append_id: the append id that the object had.
        found: the object; None if it could not be opened, or the thread was interrupted.
        error: the reason why it could not be opened.
    """

    def __init__(self, lock: threading.Lock, append_id: str) -> None:
        self.lock = lock
        self.append_id = append_id
        self.found: StripeObject | None = None
        self.error: SparkLogError | None = None


class StripeReader(LogCache):
    """Reads the directories of a stripe's objects, for all threads and partitions of a process.

    `poll` learns the objects that were appended, for all partitions by one request at the stripe's
    end. Objects that were used last stay open.

    Attributes:
        directory: the stripe's directory.
        polls_begun: the number of polls that have begun.
        objects_in_turn: the number of consecutive objects that partitions may read in turn, so that
            each is opened once for all of them: half of those that stay open.
        keeps_own: whether objects that this process has put are kept until they are taken in.
    """

    tail_class: ClassVar[type[StripeTail]] = StripeTail
    """The class that keeps the stripe's end. A subclass may have another one."""

    lock_class: ClassVar[Callable[[], threading.Lock]] = threading.Lock
    """The class of the locks that are held during requests."""

    def __init__(self, directory: StripeDirectory) -> None:
        """Access no storage yet."""
        self.directory = directory
        self._turn = type(self).lock_class()  # who has it moves the tail, and sends its requests
        self._lock = threading.RLock()  # of what is known; no request is sent while it is held
        self._own: dict[int, pa.Buffer] = {}
        self._tail = self.tail_class(directory, self.on_object, lock=self._lock)
        self._tail.taken = self._open_own
        self.polls_begun = self._polled = self._listings_before_poll = 0
        self._failed: tuple[int, SparkLogError] | None = None
        self._home_checked_at = 0
        self._kept_from = 0
        self._places: dict[int, _Places] = {}
        self._append_ids: dict[int, str] = {}
        self._objects: OrderedDict[int, StripeObject] = OrderedDict()
        self.objects_in_turn = MAX_OPEN_OBJECTS // 2
        self.keeps_own = not directory.store.is_local
        self._opening: dict[int, _Opening] = {}
        self._home: StripeState | None = None
        self._share = LOG_CACHES.share(self)

    def drop(self) -> None:
        """Forget the open objects. They are read again when they are needed."""
        self._objects = OrderedDict()
        self._own = {}
        self._home = None

    # --- the stripe's end -------------------------------------------------------------------------

    def poll(self, since: int | None = None) -> None:
        """Take in the objects that were appended before this call.

        At the end of a stripe that was observed a moment ago this costs one request. Threads that
        call it at the same time share the request.

        Args:
            since: an earlier `polls_begun`: take in the objects that were appended before that.
                Nothing is done if a poll began since, and is over. None for this call's.

        Raises:
            StripesChangedError: the stripe has ended, and the topic has other stripes now.
            CorruptRecordError: an object or a home marker is damaged or missing.
            StorageError: the storage does not answer.
        """
        asked = self.polls_begun if since is None else since
        with self._turn:
            if self._polled > asked:
                return  # another thread began one after this call, and it is over
            if self._failed is not None and self._failed[0] > asked:
                raise copy(self._failed[1])
            begun = self.polls_begun = self.polls_begun + 1
            self._listings_before_poll = self._tail.listings
            try:
                self._poll()
            except SparkLogError as error:
                self._failed = begun, copy(error)
                raise
            self._failed = None
            self._polled = begun

    def _poll(self) -> None:
        tail = self._tail
        tail.refresh()
        with self._lock:
            self._forget_replaced()
            self._hold()
        behind = tail.state.next_number - max(tail.home_number, self._home_checked_at)
        if behind >= OBJECTS_PER_LISTING:
            self._home_checked_at = tail.state.next_number
            self._advance_home()
        if tail.state.is_ended:
            self.directory.check_stripes()

    def reach(self, partition: int, end_offset: int = 0) -> None:
        """Know the log of a partition up to an offset: poll, unless it is known already.

        Args:
            partition: number of the partition.
            end_offset: the offset. The log may end before it, also after the poll.

        Raises:
            CorruptRecordError: an object or a home marker is damaged or missing.
            StorageError: the storage does not answer.
        """
        if not self._polled or self.end_offset(partition) < end_offset:
            self.poll()

    def end_offset(self, partition: int) -> int:
        """Return the known log end offset of a partition."""
        with self._lock:
            return self._tail.state.end_offset(partition)

    def leader_epoch(self, partition: int) -> int:
        """Return the known leader epoch of a partition."""
        with self._lock:
            return self._tail.state.leader_epochs.get(partition, 0)

    @property
    def next_number(self) -> int:
        """Number of the object behind the known end."""
        return self._tail.state.next_number

    def home_end(self, partition: int) -> int:
        """Return the offset before which the known records of a partition are at home."""
        with self._lock:
            places = self._known_places(partition)
            return places.at(0).base_offset if places else self.end_offset(partition)

    def has_all(self, partition: int) -> bool:
        """Return whether no known record of a partition is at home, but not in the stripe."""
        return not self.home_end(partition)

    def known_end(self, partition: int) -> tuple[int, OpenTransaction | None]:
        """Return the known log end offset of a partition, and the first transaction open there.

        The last stable offset is the first offset of this transaction; without one it is the log
        end offset.
        """
        with self._lock:  # a poll moves both
            producers = self._tail.state.producers(partition)
            if producers is None:
                return 0, None
            return producers.offset, producers.transactions.first_open

    def known_ends(self, partitions: Iterable[int]) -> list[tuple[int, int]]:
        """Return the known log end offset of each partition, and the last stable offset there."""
        ends = []
        with self._lock:
            for partition in partitions:
                producers = self._tail.state.producers(partition)
                end = 0 if producers is None else producers.offset
                stable = 0 if producers is None else producers.transactions.last_stable_offset
                ends.append((end, stable))
        return ends

    @property
    def storage_us(self) -> int:
        """The newest last-modified time that a listing of the stripe showed; 0 before one."""
        return self._tail.storage_us

    def places(self, partition: int) -> tuple[Sequence[Place], int]:
        """Return the known places of a partition, and its log end offset.

        The records before the first place are at home: a listing that is made after this call shows
        them.
        """
        with self._lock:
            places = self._known_places(partition)
            found = places.between(0, len(places)) if places else []
            return found, self.end_offset(partition)

    def places_from(
        self, partition: int, offset: int, most: int | None
    ) -> tuple[Sequence[Place], int]:
        """Return the known places of a partition from an offset on, and its log end offset.

        Args:
            partition: number of the partition.
            offset: an offset in the first place; none are returned if it is at home.
            most: maximum number of places; None for all.
        """
        with self._lock:
            end_offset = self.end_offset(partition)
            places = self._known_places(partition)
            first = places.around(offset) if places and offset < end_offset else -1
            if places is None or first < 0:
                return [], end_offset
            end = len(places) if most is None else first + most
            return places.between(first, end), end_offset

    def place(self, partition: int, base_offset: int) -> Place | None:
        """Return the known place of the entries of a partition that begin at an offset.

        Returns:
            The place; None if none is known: the log ends before it, or its records are at home.
        """
        with self._lock:
            places = self._known_places(partition)
            index = places.index_of(base_offset) if places else None
            return None if places is None or index is None else places.at(index)

    def number_at(self, partition: int, offset: int) -> int | None:
        """Return the number of the object that has a record; None if it is not known, or at home.

        Args:
            partition: number of the partition.
            offset: the record's offset.
        """
        with self._lock:
            places = self._known_places(partition)
            index = places.around(offset) if places and offset < places.end_offset else -1
            return None if places is None or index < 0 else places.numbers(index, index + 1)[0]

    def _known_places(self, partition: int) -> _Places | None:
        self._forget_replaced()
        return self._places.get(partition)

    def look_for_home(self, *, is_recent_enough: bool = False) -> None:
        """Learn the newest home marker, by a listing.

        Args:
            is_recent_enough: use the last listing if it was made within half of the delay.

        Raises:
            StorageError: the storage does not answer.
        """
        with self._turn:
            self._advance_home(is_recent_enough=is_recent_enough)

    def look_for_home_since_poll(self) -> None:
        """Learn the newest home marker by a listing that began after the last poll did.

        All partitions share it until the next poll.

        Raises:
            StorageError: the storage does not answer.
        """
        with self._turn:
            is_listed = self._tail.listings > self._listings_before_poll
            self._advance_home(is_recent_enough=is_listed)

    def home_producers(self, partition: int) -> ProducerState | None:
        """Return the producers of a partition's records at home, from the newest home marker.

        Its transactions list the open ones alone.

        Returns:
            The state; None if the marker does not have the partition, or no marker is known.

        Raises:
            CorruptRecordError: the marker is damaged.
            StorageError: the storage does not answer.
        """
        with self._turn:
            while number := self._tail.home_number:
                home = self._home
                if home is not None and home.next_number == number:
                    return home.producers(partition)
                try:
                    found = self._home = self.directory.read_home(number)
                except NotFoundError as error:
                    self._advance_home()  # freed since, below a newer marker
                    if self._tail.home_number == number:
                        path = self.directory.file_path(number, is_home=True)
                        raise CorruptRecordError(
                            f"{path} is missing, but no home marker is above it. Restore it from a "
                            f"copy",
                            path=path,
                        ) from error
                else:
                    with self._lock:
                        self._hold()
                    return found.producers(partition)
            return None

    # --- objects ----------------------------------------------------------------------------------

    def add_own(self, number: int, staged: StagedSegment) -> None:
        """Keep an object that this process has put, so that a poll takes it in without a request.

        Nothing is kept if nobody polls, or if the file is local, where no request is saved.

        Args:
            number: the object's number. It counts: it was not used before.
            staged: the object.

        Raises:
            StorageError: the staged file cannot be read.
        """
        with self._lock:
            behind = number - self._tail.state.next_number
            if not self._polled or not self.keeps_own or not 0 <= behind < MAX_OWN_OBJECTS:
                return
            held_bytes = sum(each.size for each in self._own.values()) + staged.size_bytes
            if self._share.fits(2 * held_bytes):
                self._own[number] = staged.load()

    def _open_own(self, number: int) -> StripeObject | None:
        """Return the object of a number if this process has put it."""
        with self._lock:
            data = self._own.pop(number, None)
            for each in [each for each in self._own if each < number]:
                del self._own[each]
        return None if data is None else self.directory.open(number, data)

    def taken(self, number: int) -> StripeObject | None:
        """Return an object that was taken in, if it is open."""
        with self._lock:
            return self._objects.get(number)

    def open(self, partition: int, base_offset: int, *, polls_at_end: bool = True) -> EntriesReader:
        """Open the entries of a partition that begin at an offset.

        Args:
            partition: number of the partition.
            base_offset: the first record's offset.
            polls_at_end: whether to poll at the partition's known end; behind it this always polls.

        Raises:
            NotFoundError: the stripe has no such entries: the log ends there, or they are at home.
            CorruptRecordError: the object is damaged or missing.
            StorageError: the storage does not answer.
        """
        if base_offset >= self.end_offset(partition) + (not polls_at_end):
            self.poll()
        following: Mapping[int, str] = {}
        with self._lock:
            place = self.place(partition, base_offset)
            append_id = "" if place is None else self._append_ids[place.number]
            if place is not None and place.number not in self._objects:
                following = self._following(partition, base_offset)
        if place is None:
            path = self.directory.path
            raise NotFoundError(
                f"{path}: partition {partition} has no entries that begin at {base_offset}",
                path=f"{path}/{partition}/{base_offset}",
            )
        found = self.open_object(place.number, append_id, following)
        return EntriesReader(
            found,
            range(place.first_entry, place.end_entry),
            base_offset,
            size_bytes=place.size_bytes,
            check_not_freed=self.check_not_freed,
        )

    def _following(self, partition: int, base_offset: int) -> Mapping[int, str]:
        """Return the append ids of objects that are read next, by number, to be opened together.

        A reader of a partition opens its objects in order, each by a request. The first one tells
        nothing; with the second one it opens those that the partition's next entries are in.
        """
        places = self._known_places(partition)
        index = None if places is None else places.index_of(base_offset)
        if self.directory.store.is_local or places is None or not index:
            return {}
        if self._objects.keys().isdisjoint(places.numbers(index - 1, index)):
            return {}
        numbers = places.numbers(index, index + self.objects_in_turn)
        behind = numbers[0] + self.objects_in_turn
        return {each: self._append_ids[each] for each in numbers[1:] if each < behind}

    def open_object(
        self, number: int, append_id: str, following: Mapping[int, str] = NO_OBJECTS
    ) -> StripeObject:
        """Return an object that was taken in before, opened again if it has to be.

        A number that was freed may be used by a late put: then it has another append id.

        Args:
            number: the object's number.
            append_id: the append id that it had.
            following: append ids of objects that will be needed next, by number. If this one has to
                be opened, they are, too, at the same time.

        Raises:
            NotFoundError: the object was freed, since its records are at home.
            LogTruncatedError: the stripe has no files any more.
            CorruptRecordError: it is damaged or missing.
            StorageError: the storage does not answer.
        """
        while True:
            with self._lock:
                found = self._objects.get(number)
                if found is not None:
                    self._objects.move_to_end(number)
                    return found
                opening = self._opening.get(number)
                if opening is None:
                    wanted = {number: append_id, **following}
                    mine = {
                        each: _Opening(type(self).lock_class(), wanted[each])
                        for each in wanted.keys() - self._objects.keys() - self._opening.keys()
                    }
                    for each in mine.values():
                        each.lock.acquire()
                    self._opening |= mine
            if opening is None:
                return self._open_for_all(mine, number)
            with opening.lock:
                pass  # until it is open
            if opening.found is not None:
                return opening.found
            if opening.error is not None:
                raise copy(opening.error)

    def _open_for_all(self, openings: Mapping[int, _Opening], number: int) -> StripeObject:
        """Open objects that other threads may wait for, and return one of them."""

        def open_one(each: int) -> None:
            opening = openings[each]
            try:
                opening.found = self.open_again(each, opening.append_id)
            except SparkLogError as error:
                opening.error = error  # of one that is only needed later: then it is raised

        try:
            map_requests(self.directory.store, open_one, sorted(openings))
        finally:
            with self._lock:
                for each, opening in openings.items():
                    del self._opening[each]
                    opening.lock.release()
        asked = openings[number]
        if asked.found is None:
            assert asked.error is not None
            raise asked.error
        return asked.found

    def open_again(self, number: int, append_id: str) -> StripeObject:
        """Open an object that was taken in before. The arguments are those of `open_object`."""
        damage: CorruptRecordError | None = None
        try:
            found = self.directory.open(number)
        except CorruptRecordError as error:
            found, damage = None, error
        if found is not None and found.append_id == append_id:
            with self._lock:
                self._keep(found)
                self._hold()
            return found
        self.check_not_freed(number)
        path = self.directory.file_path(number)
        raise damage or CorruptRecordError(
            f"{path} is missing, but no home marker is above it. Restore it from a copy", path=path
        )

    def check_not_freed(self, number: int) -> None:
        """Check, by a listing, that an object that is damaged or missing was not freed.

        Args:
            number: the object's number. Another file may have it if it was freed.

        Raises:
            NotFoundError: a home marker is above the number: its records are at home.
            LogTruncatedError: the stripe has no files any more.
            StorageError: the storage does not answer.
        """
        path = self.directory.file_path(number)
        with self._turn:
            self._advance_home()
            if self._tail.home_number > number:
                raise NotFoundError(f"{path} was freed", path=path)

    # --- what is known ----------------------------------------------------------------------------

    def on_object(self, found: StripeObject, offsets: np.ndarray) -> None:
        """Keep the places of an object's entries, and the object itself."""
        self._forget_replaced()
        directory = found.directory
        firsts = directory.firsts()
        ends = np.append(firsts[1:], len(directory))
        rows = directory.array["base_offset_delta"][firsts].astype(np.int64)
        counts = np.append(rows[1:], directory.row_count) - rows
        sizes = np.rint(counts * (found.size_bytes / directory.row_count)).astype(np.int64)
        for partition, base_offset, count, first, end, size_bytes in zip(
            directory.partitions[firsts].tolist(),
            offsets[firsts].tolist(),
            counts.tolist(),
            firsts.tolist(),
            ends.tolist(),
            sizes.tolist(),
            strict=True,
        ):
            places = self._places.get(partition)
            if places is None:
                places = self._places[partition] = _Places()
            places.add(base_offset, base_offset + count, found.number, first, end, size_bytes)
        self._append_ids[found.number] = found.append_id
        self._keep(found)

    def _advance_home(self, *, is_recent_enough: bool = False) -> None:
        self._tail.advance_home(is_recent_enough=is_recent_enough)
        with self._lock:
            self._forget_replaced()
            self._forget_before(self._tail.home_number)

    def _forget_replaced(self) -> None:
        """Forget the places of objects in whose place the tail has taken a home marker."""
        self._forget_before(self._tail.taken_from)

    def _forget_before(self, number: int) -> None:
        """Forget the places in objects below a number: their records are at home."""
        if number <= self._kept_from:
            return
        self._kept_from = number
        for each in [each for each in self._append_ids if each < number]:
            del self._append_ids[each]
        for places in self._places.values():
            places.forget_before(number)
        self._places = {partition: each for partition, each in self._places.items() if len(each)}

    def _keep(self, found: StripeObject) -> None:
        """Keep an object open, and close those that were used longest ago."""
        objects = self._objects
        objects[found.number] = found
        objects.move_to_end(found.number)
        held_bytes = sum(each.memory_bytes for each in objects.values())
        while len(objects) > 1 and (
            len(objects) > MAX_OPEN_OBJECTS or not self._share.fits(2 * held_bytes)
        ):
            held_bytes -= objects.popitem(last=False)[1].memory_bytes
        most, mean_bytes = MAX_OPEN_OBJECTS, held_bytes / len(objects)
        while most > 2 and not self._share.fits(round(2 * mean_bytes * most)):
            most -= 1
        self.objects_in_turn = most // 2

    def _hold(self) -> None:
        """Report the memory of the open objects, and of the home marker's state, to the budget."""
        home_bytes = 0 if self._home is None else self._home.memory_bytes
        objects_bytes = sum(each.memory_bytes for each in self._objects.values())
        own_bytes = sum(each.size for each in self._own.values())
        self._share.hold(home_bytes + objects_bytes + own_bytes)
