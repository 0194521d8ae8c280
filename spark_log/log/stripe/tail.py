"""The known part of a stripe: a home marker, and the objects behind it."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Final

import numpy as np

from spark_log.errors import CorruptRecordError, NotFoundError, StorageTimeoutError
from spark_log.log.stripe.directory import StripeDirectory
from spark_log.log.stripe.state import StripeState
from spark_log.log.stripe.stripe_object import StripeObject
from spark_log.record import EntryDirectory
from spark_log.storage import map_requests

_MAX_SLOW_LISTINGS: Final = 5
"""Listings in a row that took longer than they are valid."""

OBJECTS_AHEAD: Final = 16
"""Number of objects that are read at once, if a listing shows them, or so many came one by one."""

OBJECTS_ONE_BY_ONE: Final = 8
"""Number of objects behind the listed ones that are read one by one: so many may have come since a
reader polled. If there are more, twice as many are read each time: others append as fast. At most
as many requests find nothing as found an object."""

Taken = Callable[[int], StripeObject | None]
"""Returns the object of a number if this process is known to have it; else None."""

OnObject = Callable[[StripeObject, np.ndarray], None]
"""Is called for each object that is taken in, with the base offset of each of its entries."""


def _nothing(number: int) -> None:
    return None


class StripeTail:
    """The known part of a stripe: the state at its known end, and how long that counts.

    All of it can be lost at any time: a listing, the newest home marker and the objects behind it
    restore it (protocol P1, P3, P4).

    Attributes:
        state: the state at the known end.
        home_number: number of the newest known home marker; 0 without one.
        taken_from: number from which on all objects before the known end were taken in.
        observed_ms: monotonic time at which the next number was unused, and before which no home
            marker above it appeared that is old enough to free it.
        storage_us: the newest last-modified time that a listing showed.
        listed_ms: monotonic time before the last listing began.
        listings: number of listings that have ended.
        taken: returns an object that this process has put, or has taken in elsewhere. It is part
            of the stripe, so it is taken in without a request.
    """

    def __init__(
        self,
        directory: StripeDirectory,
        on_object: OnObject = lambda found, offsets: None,
        lock: AbstractContextManager[object] | None = None,
    ) -> None:
        """Know nothing yet.

        Args:
            directory: the stripe's directory.
            on_object: function that is called for each object that is taken in.
            lock: held while the state changes, and ``on_object`` runs; no request is sent
                meanwhile. None if one thread uses all of this.
        """
        self.taken: Taken = _nothing
        self._lock = nullcontext() if lock is None else lock
        self.state = StripeState()
        self.home_number = 0
        self.taken_from = 0
        self.observed_ms = -math.inf
        self.storage_us = 0
        self._directory = directory
        self._on_object = on_object
        self.listed_ms = -math.inf
        self.listings = 0
        self._listed_home = 0
        self._listed_end = 0
        self._doubted: int | None = None
        self._ahead: deque[StripeObject] = deque()
        self._unlisted = 0

    @property
    def is_recent(self) -> bool:
        """Whether the next number, if it was unused, was not used and freed since."""
        return not self._directory.is_outdated(self.observed_ms)

    def doubt(self) -> None:
        """List the stripe before the next object is read or put."""
        self.observed_ms = -math.inf

    def refresh(self) -> None:
        """Take in objects until the next number is unused.

        At the end of a stripe that was observed a moment ago this costs one request.

        Raises:
            CorruptRecordError: an object or a home marker is damaged or missing.
            StorageTimeoutError: each listing took longer than it is valid.
            StorageError: the storage does not answer.
        """
        while self.take_next():
            pass

    def take_next(self) -> bool:
        """Take in the next object; return False if the stripe ends.

        Raises:
            SparkLogError: See `refresh`.
        """
        while not self._ahead:
            known = self.taken(self.state.next_number)
            if known is not None:
                self._ahead.append(known)
                break
            if not self.is_recent:
                self.list_stripe()
            number = self.state.next_number
            listed_end = self._listed_end
            asked_ms = self._directory.clock.monotonic_ms()
            found = self._open_from(number)
            # A number that was freed, and used by a late put, is not part of the stripe. A listing
            # without a marker above the number shows that it was not freed before this listing.
            if not self.is_recent and self.list_stripe():
                continue
            if found:
                self._ahead.extend(found)
            elif number < listed_end:
                self._doubt_missing(number)
            elif number >= self._listed_end:
                self.observed_ms = max(self.observed_ms, asked_ms)
                return False
        taken = self._ahead.popleft()
        with self._lock:
            self._on_object(taken, self.state.take(taken.directory))
        return True

    def on_own_object(self, directory: EntryDirectory, asked_ms: float) -> np.ndarray:
        """Take in the object that this process has put under the next number.

        Args:
            directory: the object's entries.
            asked_ms: monotonic time before the put: then the number was unused, and so was the one
                after it.

        Returns:
            The base offset of each entry, int64.
        """
        self.observed_ms = max(self.observed_ms, asked_ms)
        return self.state.take(directory)

    def list_stripe(self) -> bool:
        """List the stripe; begin again at the newest home marker if it is above the next number.

        Numbers are freed below a marker alone. So if none is above the next number, what is known
        holds, and a process that reads slower than a listing is valid comes to the end, too.

        Returns:
            Whether a home marker took the place of what was known.

        Raises:
            CorruptRecordError: the home marker is damaged.
            LogTruncatedError: the stripe ends before a number that it had reached.
            StorageTimeoutError: each listing took longer than it is valid.
            StorageError: the storage does not answer.
        """
        directory, has_jumped, lost = self._directory, False, False
        for _ in range(_MAX_SLOW_LISTINGS):
            asked_ms = directory.clock.monotonic_ms()
            listing = directory.list()
            number = listing.home_number
            try:
                if number > self.state.next_number:
                    self.begin_at(number)
                    has_jumped = True
            except NotFoundError:
                continue  # freed since, below a newer marker
            end_number = max(number, listing.end_number)
            reached = self.state.next_number or (not end_number and directory.has_had_objects())
            if end_number < reached:
                if lost:  # a listing may lack an object that was put during it
                    raise directory.truncated(end_number, int(reached))
                lost = True
                continue
            self.storage_us = max(self.storage_us, listing.newest_us)
            with self._lock:
                self.state.on_listed(listing.newest_us, directory.config.producer_id_expiration_ms)
            self._listed_home, self._listed_end = number, listing.end_number
            if not directory.is_outdated(asked_ms):
                self.listed_ms = asked_ms
                self.listings += 1
                self.observed_ms = max(self.observed_ms, asked_ms)
                return has_jumped
        raise StorageTimeoutError(
            f"{directory.path}: listing it takes more than {directory.valid_ms:.0f} ms, half of "
            f"file.delete.delay.ms, so that the result may be out of date. Raise "
            f"file.delete.delay.ms, or take the stripe home more often",
            path=directory.path,
        )

    def advance_home(self, *, is_recent_enough: bool = False) -> None:
        """List the stripe, and know its newest home marker, also one below the known end.

        Args:
            is_recent_enough: use the last listing if it was made within half of the delay.

        Raises:
            SparkLogError: See `list_stripe`.
        """
        if not is_recent_enough or self._directory.is_outdated(self.listed_ms):
            self.doubt()
            self.list_stripe()
        self.home_number = max(self.home_number, self._listed_home)

    def begin_at(self, number: int) -> None:
        """Take the state from a home marker, in the place of the known one."""
        state = self._directory.read_home(number)
        with self._lock:
            self.state = state
            self.home_number = self.taken_from = number
        self._ahead.clear()

    def _open_from(self, number: int) -> list[StripeObject]:
        """Open the object of a number, and those behind it that may be there.

        A listing showed them, or as many were found behind the listed ones.
        """
        guessed = 1 if self._unlisted < OBJECTS_ONE_BY_ONE else self._unlisted
        end = min(max(number + guessed, self._listed_end), number + OBJECTS_AHEAD)
        opened = map_requests(self._directory.store, self._directory.open, range(number, end))
        found: list[StripeObject] = []
        for each in opened:
            if each is None:
                break
            found.append(each)
        unlisted = end - max(number, self._listed_end)
        self._unlisted = 0 if len(found) < len(opened) else self._unlisted + max(0, unlisted)
        return found

    def _doubt_missing(self, number: int) -> None:
        """List again if an object is missing that a listing shows the successor of.

        Raises:
            CorruptRecordError: two listings show it.
        """
        if self._doubted != number:
            self._doubted = number
            self.doubt()
            return
        path = self._directory.file_path(number)
        raise CorruptRecordError(
            f"{path} is missing, but the stripe has objects behind it, and no home marker above "
            f"it. Restore it from a copy",
            path=path,
        )
