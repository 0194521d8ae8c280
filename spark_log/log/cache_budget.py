"""The memory budget of a process for the caches of its logs (docs/adr/0040).

A log keeps what it has read, so that it need not be read again: summaries of segments, listings,
open segments. All of it can be lost at any time. The caches of all logs of a process share one
budget. When they hold more, those that were used longest ago are dropped, until the rest fits.
"""

from __future__ import annotations

import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, Final, Self

LIMIT_BYTES: Final = 16_777_216
"""Approximate memory that the caches of all logs of a process hold together."""


class LogCache(ABC):
    """A cache of one log."""

    @abstractmethod
    def drop(self) -> None:
        """Forget everything that can be read again. Any thread may call it, at any time.

        Parts in use may stay. They are counted again by the next `CacheShare.hold`.
        """


class CacheShare(weakref.ref[LogCache]):
    """The share of a budget that one cache holds. It does not keep the cache alive.

    Attributes:
        size_bytes: memory that `hold` recorded last; 0 after the cache was dropped.
    """

    __slots__ = ("_budget", "size_bytes")

    _budget: CacheBudget
    size_bytes: int

    def __new__(cls, cache: LogCache, budget: CacheBudget) -> Self:
        """Begin with no memory held. The share is released when the cache is garbage-collected."""
        share = super().__new__(cls, cache, budget.release_later)
        share._budget = budget
        share.size_bytes = 0
        return share

    __hash__ = object.__hash__
    __eq__ = object.__eq__

    def hold(self, size_bytes: int) -> None:
        """Record that the cache was used, and the memory it holds now. May drop any caches.

        A cache that alone holds more than the budget is dropped too.

        Args:
            size_bytes: approximate memory that the cache holds.
        """
        self._budget.hold(self, size_bytes)

    def fits(self, size_bytes: int) -> bool:
        """Whether the cache may hold this number of bytes without being dropped itself."""
        return size_bytes <= self._budget.limit_bytes

    def drop(self) -> None:
        """Drop the cache if it still exists."""
        cache = self()
        if cache is not None:
            cache.drop()


class CacheBudget:
    """The budget of several caches. Thread-safe.

    Attributes:
        limit_bytes: maximum memory that the caches hold together. A lower value takes effect with
            the next `hold`.
        release_later: function that stops counting a share. It takes no lock, since a garbage
            collection may call it anywhere.
    """

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        """Begin without caches."""
        self.limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._shares: OrderedDict[CacheShare, None] = OrderedDict()  # used longest ago first
        self._held_bytes = 0
        self._gone: deque[CacheShare] = deque()
        self.release_later: Callable[[Any], None] = self._gone.append

    @property
    def held_bytes(self) -> int:
        """Approximate memory that the caches hold together."""
        with self._lock:
            self._release_gone()
            return self._held_bytes

    def share(self, cache: LogCache) -> CacheShare:
        """Return the share of a cache, which holds nothing yet."""
        return CacheShare(cache, self)

    def hold(self, share: CacheShare, size_bytes: int) -> None:
        """Record that a share was used, and the memory it holds; drop what is above the limit."""
        dropped: list[CacheShare] = []
        with self._lock:
            self._release_gone()
            self._held_bytes += size_bytes - share.size_bytes
            share.size_bytes = size_bytes
            self._shares[share] = None
            self._shares.move_to_end(share)
            while self._held_bytes > self.limit_bytes:
                oldest, _ = self._shares.popitem(last=False)
                self._held_bytes -= oldest.size_bytes
                oldest.size_bytes = 0
                dropped.append(oldest)
        for each in dropped:  # without the lock: it may release other caches
            each.drop()

    def renew_lock(self) -> None:
        """Replace the lock in a child process, where the thread that held it does not exist."""
        self._lock = threading.Lock()

    def _release_gone(self) -> None:
        while self._gone:
            share = self._gone.popleft()
            self._shares.pop(share, None)
            self._held_bytes -= share.size_bytes
            share.size_bytes = 0


LOG_CACHES: Final = CacheBudget()
"""The budget of all logs of this process."""

os.register_at_fork(after_in_child=LOG_CACHES.renew_lock)
