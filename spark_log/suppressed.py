"""Failures that keep nothing from being done: counted each time, logged once a cause.

Much of what lies in a log is derived (indexes, snapshots, merged tails): a write of it that fails
must not fail the append behind which it comes. But nothing fails in silence: whoever goes on
without it says so here.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_log = logging.getLogger(__name__)

MAX_CAUSES: Final = 1_000
"""Causes that are remembered as logged; of more the ones that were not seen for longest go."""


class SuppressedErrors:
    """Counts failures that were survived, by what was being done. For any thread.

    Each counter also adds to that of its owner: what a partition's log counts is counted by the
    client that has it open, for as long as the client lives.
    """

    def __init__(self, owner: SuppressedErrors | None = None) -> None:
        """Count nothing yet.

        Args:
            owner: is told of all that is counted here.
        """
        self._owner = owner
        self._counts: Counter[str] = Counter()

    def counts(self) -> dict[str, int]:
        """Return how many there were, by what was being done; only what ever failed."""
        with _lock:
            return dict(self._counts)

    def total(self) -> int:
        """Return how many there were."""
        with _lock:
            return self._counts.total()

    def figures(self) -> dict[str, float]:
        """Return them as metrics: ``suppressed-errors-total``, and each ``<what>-errors-total``."""
        counts = self.counts()
        figures: dict[str, float] = {"suppressed-errors-total": sum(counts.values())}
        for what in sorted(counts):
            figures[f"{what.replace(' ', '-')}-errors-total"] = counts[what]
        return figures

    def add(self, what: str, path: str, error: BaseException) -> None:
        """Count a failure, and log it unless this cause was logged before.

        Args:
            what: was being done, in a few words, such as ``index``; of a fixed set.
            path: of the partition, group or root concerned; not of a file of which there are ever
                new ones, which would each be a cause of its own.
            error: what was raised. A cause is what was done, the error's type and the path.
        """
        counter: SuppressedErrors | None = self
        with _lock:
            while counter is not None:
                counter._counts[what] += 1
                counter = counter._owner
            is_new = _remember((what, type(error).__name__, path))
        if is_new:
            _log.warning(
                "%s: %s failed, and was left out (%s: %s); more of this are counted, not logged",
                path or ".",
                what,
                type(error).__name__,
                error,
            )

    @contextmanager
    def suppress(self, what: str, path: str, *kinds: type[Exception]) -> Iterator[None]:
        """Go on behind the block where it raises one of these errors; see `add`."""
        try:
            yield
        except kinds as error:
            self.add(what, path, error)


IN_PROCESS: Final = SuppressedErrors()
"""Of what belongs to no client: the owner of every counter that is given none."""

_lock = threading.Lock()


def _renew_lock() -> None:
    """Begin anew in a child process: a thread that held the lock is not in it."""
    global _lock  # noqa: PLW0603 - once a child
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)

_logged: OrderedDict[tuple[str, str, str], None] = OrderedDict()


def _remember(cause: tuple[str, str, str]) -> bool:
    """Note that a cause was seen; return whether it is new. Called with the lock held."""
    is_new = cause not in _logged
    _logged[cause] = None
    _logged.move_to_end(cause)
    if len(_logged) > MAX_CAUSES:
        _logged.popitem(last=False)
    return is_new
