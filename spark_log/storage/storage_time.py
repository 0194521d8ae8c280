"""The storage's clock: the only clock by which anything is deleted or expired (protocol C2).

The clocks of two machines may be days apart without anybody noticing, so no process deletes by its
own wall clock. "Now" is the newest last-modified time that the storage has shown, in a listing or
for a file that was just written. This time is never in the storage's future, so a file that is old
by it is really old. A process whose own clock is far from the storage's deletes nothing at all: one
of the two is wrong, and a person has to find out which.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from spark_log.errors import ClockSkewError
from spark_log.storage.store import FileInfo, Store
from spark_log.util import Clock

_MAX_AGE_MS: Final = 60_000.0
"""Time for which `StorageClock` uses an object store's answer again."""


def newest_modified_us(files: Iterable[FileInfo]) -> int:
    """Return the newest last-modified time of a listing, in microseconds since the epoch.

    This is a lower bound of the storage's time that needs no request. 0 without files: then no file
    is old.
    """
    return max((file.modified_us for file in files), default=0)


def storage_time_us(store: Store, directory: str) -> int:
    """Return the storage's current time, in microseconds since the epoch.

    Writes a hidden file, reads its modification time and deletes it: three requests on an object
    store. A crash may leave the file, which no listing shows and a cleaner deletes.

    Args:
        store: the storage to ask.
        directory: the directory in which the file is written, relative to the store's root. It gets
            its time from the same clock as the other files of this directory.

    Raises:
        StorageError: the storage does not answer.
    """
    probe = f"{directory}/.{uuid.uuid4().hex}.tmp"
    store.put(probe, b"", sync=False)
    try:
        return store.head(probe).modified_us
    finally:
        store.delete(probe)


@dataclass(frozen=True, slots=True)
class StorageTime:
    """The time that a storage has shown.

    Attributes:
        shown_us: microseconds since the epoch: the storage's time then, which is not later than its
            present time. A file that is old by it is really old.
        asked_ms: monotonic time before the storage was asked.
    """

    shown_us: int
    asked_ms: float

    def present_us(self, clock: Clock) -> int:
        """Return the storage's present time, to compare clocks only; it decides no deletion."""
        return self.shown_us + int((clock.monotonic_ms() - self.asked_ms) * 1000)


class StorageClock:
    """Asks for the storage's time once a minute, for many directories. Thread-safe.

    All directories of an object store have one clock. On a file system each may be another mount,
    and asking sends no paid request, so there each directory is asked.
    """

    def __init__(self, clock: Clock) -> None:
        """Ask nothing yet.

        Args:
            clock: the clock whose monotonic time gives the age of an answer.
        """
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[int, tuple[Store, StorageTime]] = {}

    def read(self, store: Store, directory: str) -> StorageTime:
        """Return the time that a storage has shown, a minute ago at most.

        Raises:
            StorageError: the storage does not answer.
        """
        if store.is_local:
            return self._ask(store, directory)
        with self._lock:
            _, known = self._known.get(id(store), (store, None))
            if known is None or self._clock.monotonic_ms() - known.asked_ms >= _MAX_AGE_MS:
                known = self._ask(store, directory)
                self._known[id(store)] = store, known
            return known

    def _ask(self, store: Store, directory: str) -> StorageTime:
        asked_ms = self._clock.monotonic_ms()
        return StorageTime(storage_time_us(store, directory), asked_ms)


def check_clock_skew(clock: Clock, storage_us: int, max_skew_ms: int) -> None:
    """Check that the clock of this process is near the storage's clock.

    Args:
        clock: the clock of this process.
        storage_us: the storage's time, from a file that was written just now.
        max_skew_ms: ``max.clock.skew.ms``.

    Raises:
        ClockSkewError: the two clocks differ by more; the caller must not delete or expire.
    """
    clock_us = clock.time_us()
    skew_us = clock_us - storage_us
    if abs(skew_us) <= max_skew_ms * 1000:
        return
    raise ClockSkewError(
        f"the clock of this process is {timedelta(seconds=abs(skew_us) // 1_000_000)} "
        f"{'ahead of' if skew_us > 0 else 'behind'} the storage's, more than max.clock.skew.ms "
        f"({max_skew_ms} ms) allows: nothing is deleted or expired. Set the clock of this machine, "
        f"then run this again",
        clock_us=clock_us,
        storage_us=storage_us,
        max_skew_ms=max_skew_ms,
    )
