"""Stripes: one put-if-absent orders the batches of many partitions. A prototype (ADR 29).

On storage::

    stripe-0/00000042.stripe     an object: entries of many partitions, without offsets
    stripe-0/00000042.home       the state before that object; all that is before it is at home
    partition-7/00000128-00000255.log    records of a partition, at home

The objects of a stripe follow each other. A partition belongs to one stripe, and its offsets follow
from the entries in their order. A writer puts an object under the next number only when it has
taken in all objects before, as an appender of a partition log does ("state before put"). A merger
takes entries home into files of their partitions, then puts a marker. A cleaner frees numbers below
a marker, once the marker is older than ``FREE_DELAY_MS``.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from spark_log.errors import AlreadyExistsError, NotFoundError, StorageError
from spark_log.storage import FileInfo, Store, is_listing_valid, listing_validity_ms
from spark_log.util.clock import Clock
from tests.simulation.log.profile import DELETE_DELAY_MS
from tests.simulation.stripes.stripe_state import (
    Entry,
    Refusal,
    StripeState,
    decode_object,
    encode_object,
)

FREE_DELAY_MS: Final = DELETE_DELAY_MS
"""Minimum age of a home marker before the numbers below it are freed."""

Outcome = int | Refusal
"""The base offset of an entry, or why it was refused."""


class HoleError(LookupError):
    """Records before the stripe's tail are not at home: the log has a hole."""


def stripe_directory(stripe: int) -> str:
    """Return the directory of a stripe."""
    return f"stripe-{stripe}"


def partition_directory(partition: int) -> str:
    """Return the directory of a partition's records at home."""
    return f"partition-{partition}"


def number_of(name: str) -> int:
    """Return the number of an object or a home marker."""
    return int(name.partition(".")[0])


def is_valid(clock: Clock, observed_ms: float) -> bool:
    """Return whether what was observed may be relied on: no number was used and freed since."""
    return is_listing_valid(clock, observed_ms, listing_validity_ms(FREE_DELAY_MS))


class StripeTail:
    """The known part of a stripe: the state at home, and the entries behind it.

    Attributes:
        home: the state at the newest home marker.
        state: the state at the end.
        batches: partition → base offset and records of each entry behind `home`.
        observed_ms: monotonic time at which the next number was unused.
    """

    def __init__(self, store: Store, stripe: int, clock: Clock) -> None:
        """Return a tail of which nothing is known; `refresh` reads it."""
        self._store = store
        self._stripe = stripe
        self._clock = clock
        self.home = StripeState()
        self.state = StripeState()
        self.batches: dict[int, list[tuple[int, tuple[str, ...]]]] = defaultdict(list)
        self.observed_ms = float("-inf")

    def path(self, suffix: str = ".stripe") -> str:
        """Return the path of the next object."""
        return f"{stripe_directory(self._stripe)}/{self.state.next_number:08}{suffix}"

    def take(self, entries: Sequence[Entry]) -> list[int]:
        """Take in the next object; return the base offsets of its entries."""
        offsets = self.state.apply(entries)
        for entry, offset in zip(entries, offsets, strict=True):
            self.batches[entry.partition].append((offset, entry.values))
        return offsets

    def refresh(self) -> None:
        """Take in objects until the next number is unused; list the stripe if it is long ago.

        Raises:
            StorageError: the storage does not answer.
        """
        while True:
            if not is_valid(self._clock, self.observed_ms):
                self._list()
            asked_ms = self._clock.monotonic_ms()
            entries = None
            with suppress(NotFoundError):
                entries = decode_object(self._store.open_buffer(self.path()).to_pybytes())
            if not is_valid(self._clock, self.observed_ms):
                continue  # the number may have been freed, and used again by a late put
            if entries is None:
                self.observed_ms = asked_ms
                return
            self.take(entries)

    def _list(self) -> None:
        """Observe that the next number was not freed, or begin again at the newest home marker.

        Numbers are freed below a marker alone. So if none is above the next number, what is known
        holds, and a process that reads slower than the listing is valid comes to the end, too.
        """
        asked_ms = self._clock.monotonic_ms()
        files = self._store.list(stripe_directory(self._stripe))
        markers = [file for file in files if file.name.endswith(".home")]
        if markers and number_of(markers[-1].name) > self.state.next_number:
            content = self._store.open_buffer(markers[-1].path).to_pybytes()
            self.home = StripeState.decode(content)
            self.state = self.home.copy()
            self.batches.clear()
        self.observed_ms = asked_ms


class StripeWriter:
    """Appends batches of many partitions with one put.

    Attributes:
        tail: what this process knows of the stripe.
        is_contended: whether others have appended since the last append: then it looks before it
            puts, because a read is cheaper than a put in vain.
    """

    def __init__(self, store: Store, stripe: int, clock: Clock) -> None:
        """Return a writer of one stripe."""
        self._store = store
        self._clock = clock
        self.tail = StripeTail(store, stripe, clock)
        self.is_contended = False

    def append(self, entries: Sequence[Entry]) -> dict[Entry, Outcome]:
        """Append entries, those that are neither repeats nor refused in one object.

        Raises:
            StorageError: the storage does not answer; the same call again finds out what happened.
        """
        outcomes: dict[Entry, Outcome] = {}
        if self.is_contended or not is_valid(self._clock, self.tail.observed_ms):
            known = self.tail.state.next_number
            self.tail.refresh()
            self.is_contended = self.tail.state.next_number > known
        while True:
            left = []
            for entry in entries:
                found = self.tail.state.check(entry)
                if found is None:
                    left.append(entry)
                else:
                    outcomes.setdefault(entry, found)
            if not left:
                return outcomes
            if self._put(left):
                outcomes.update(zip(left, self.tail.take(left), strict=True))
                return outcomes

    def _put(self, entries: Sequence[Entry]) -> bool:
        """Put the next object; return False if the tail has changed: check and try again."""
        asked_ms = self._clock.monotonic_ms()
        try:
            self._store.put_if_absent(self.tail.path(), encode_object(entries))
        except AlreadyExistsError:
            self.is_contended = True
            self.on_lost_race()
            return False
        except StorageError:
            self.on_unknown_outcome()
            return False
        if not self.is_final():
            self.on_unknown_outcome()
            return False
        self.tail.observed_ms = asked_ms
        return True

    def on_lost_race(self) -> None:
        """Take in the object that has the number, and those behind it."""
        self.tail.refresh()

    def on_unknown_outcome(self) -> None:
        """List the stripe: the entries are in it, as their producers' batches, or not."""
        self.tail.observed_ms = float("-inf")
        self.tail.refresh()

    def is_final(self) -> bool:
        """Return whether a put that succeeded is an append: its number was never used."""
        return is_valid(self._clock, self.tail.observed_ms)


class StripeReader:
    """Reads a partition: from its files at home, then from the stripe's tail."""

    def __init__(self, store: Store, stripe: int, clock: Clock) -> None:
        """Return a reader of the partitions of one stripe."""
        self._store = store
        self._tail = StripeTail(store, stripe, clock)

    def read(self, partition: int, offset: int) -> list[str]:
        """Return records from an offset on; none if the log ends there.

        The stripe comes first: what it does not have any more was at home before.

        Raises:
            HoleError: records are neither in the stripe nor at home.
            StorageError: the storage does not answer.
        """
        self._tail.refresh()
        if offset < self._tail.home.ends.get(partition, 0):
            return read_home(self._store, partition, offset)
        return self.read_tail(partition, offset)

    def read_tail(self, partition: int, offset: int) -> list[str]:
        """Return the records in the stripe from an offset on."""
        batches = self._tail.batches.get(partition, ())
        values = [value for base, batch in batches for value in batch[max(0, offset - base) :]]
        return values


def read_home(store: Store, partition: int, offset: int) -> list[str]:
    """Return the records, from an offset on, of the file at home that reaches farthest.

    Raises:
        HoleError: there is none.
        StorageError: the storage does not answer.
    """
    last = offset - 1
    for base, file_last, file in home_files(store, partition):
        if base <= offset and file_last > last:
            found, first, last = file, base, file_last
    if last < offset:
        raise HoleError(f"partition {partition} has no file with offset {offset}")
    values: list[str] = json.loads(store.open_buffer(found.path).to_pybytes())
    return values[offset - first :]


def home_files(store: Store, partition: int) -> Iterator[tuple[int, int, FileInfo]]:
    """Yield the first and last offset of each file at home, and the file."""
    for file in store.list(partition_directory(partition)):
        base, _, last = file.name.removesuffix(".log").partition("-")
        yield int(base), int(last), file


def take_home(store: Store, stripe: int, clock: Clock) -> None:
    """Put the entries behind the newest home marker into files of their partitions, then a marker.

    Two mergers may do so at once, and each may stop at any point: their files overlap, and have the
    same records at the same offsets.

    Raises:
        StorageError: the storage does not answer.
    """
    tail = StripeTail(store, stripe, clock)
    tail.refresh()
    if tail.state.next_number > tail.home.next_number:
        put_home(store, tail.batches)
        with suppress(AlreadyExistsError):
            store.put_if_absent(tail.path(".home"), tail.state.encode())


def put_home(store: Store, batches: Mapping[int, Sequence[tuple[int, tuple[str, ...]]]]) -> None:
    """Put the records of each partition into one file."""
    for partition, placed in sorted(batches.items()):
        base = placed[0][0]
        values = [value for _, batch in placed for value in batch]
        name = f"{base:08}-{base + len(values) - 1:08}.log"
        with suppress(AlreadyExistsError):
            store.put_if_absent(
                f"{partition_directory(partition)}/{name}", json.dumps(values).encode()
            )


def clean_stripe(store: Store, stripe: int) -> None:
    """Delete objects and markers below a marker that is old enough, by the storage's time.

    Raises:
        StorageError: the storage does not answer.
    """
    files = list(store.list(stripe_directory(stripe)))
    now_us = max((file.modified_us for file in files), default=0)
    spent_below = max(
        (number_of(file.name) for file in files if is_old_marker(file, now_us)), default=0
    )
    for file in files:
        if number_of(file.name) < spent_below:
            store.delete(file.path)


def is_old_marker(file: FileInfo, now_us: int) -> bool:
    """Return whether a file is a home marker below which numbers may be freed."""
    age_ms = (now_us - file.modified_us) / 1000
    return file.name.endswith(".home") and age_ms >= FREE_DELAY_MS
