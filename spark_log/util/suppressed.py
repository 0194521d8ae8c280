"""Suppressed errors: failures that do not fail the operation; all counted, each cause logged once.

Many files of a log are derived (indexes, snapshots, merged tails). If one of them cannot be
written, the append before it must not fail. No failure is silent, however: code that continues
after a failure reports it here.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter, OrderedDict
from typing import Final

_log = logging.getLogger(__name__)

MAX_CAUSES: Final = 1_000
"""Maximum number of remembered causes; the least recently seen ones are forgotten, and logged again
when they recur."""


class SuppressedErrors:
    """Counters of suppressed errors, one for each kind of action. Thread-safe.

    An error is also counted by the owner: the errors of a partition's log are also counted by the
    client that has opened the log.
    """

    def __init__(self, owner: SuppressedErrors | None = None) -> None:
        """Start with all counters at 0.

        Args:
            owner: the counters that count each error, too; None without an owner.
        """
        self._owner = owner
        self._counts: Counter[str] = Counter()

    def __repr__(self) -> str:
        return f"<SuppressedErrors {self.counts()}>"

    def counts(self) -> dict[str, int]:
        """Return the number of errors of each action that has failed."""
        with _lock:
            return dict(self._counts)

    def total(self) -> int:
        """Return the number of all errors."""
        with _lock:
            return self._counts.total()

    def figures(self) -> dict[str, float]:
        """Return the metrics ``suppressed-errors-total`` and ``<what>-errors-total``."""
        counts = self.counts()
        figures: dict[str, float] = {"suppressed-errors-total": sum(counts.values())}
        for what in sorted(counts):
            figures[f"{what.replace(' ', '-')}-errors-total"] = counts[what]
        return figures

    def add(self, what: str, path: str, error: BaseException) -> None:
        """Count an error, and log it unless its cause was logged before.

        A cause is an action, the type of the error, and a path.

        Args:
            what: the action that failed, in a few words, such as ``index``; one of a fixed set.
            path: the path of the partition, group or root, not that of a file with a unique name:
                each file would be a separate cause.
            error: the error that was raised.
        """
        with _lock:
            self._count(what)
            is_new = _remember((what, type(error).__name__, path))
        if is_new:
            _log.warning(
                "%s: %s failed and was skipped (%s: %s); further errors of this kind are counted, "
                "not logged",
                path or ".",
                what,
                type(error).__name__,
                error,
            )

    def count(self, what: str) -> None:
        """Count an error that the caller logs by itself.

        Args:
            what: the action that failed, in a few words; one of a fixed set.
        """
        with _lock:
            self._count(what)

    def _count(self, what: str) -> None:
        counter: SuppressedErrors | None = self
        while counter is not None:
            counter._counts[what] += 1
            counter = counter._owner

    def suppress(self, what: str, path: str, *kinds: type[Exception]) -> _Suppression:
        """Return a context that suppresses these errors, counts them, and logs each cause once.

        Args:
            what: the action of the block, in a few words; one of a fixed set.
            path: the path of the partition, group or root.
            *kinds: the errors to suppress.
        """
        return _Suppression(self, what, path, kinds)


class _Suppression:
    """The context of `SuppressedErrors.suppress`; a generator would take four times as long."""

    __slots__ = ("_counters", "_kinds", "_path", "_what")

    def __init__(
        self, counters: SuppressedErrors, what: str, path: str, kinds: tuple[type[Exception], ...]
    ) -> None:
        self._counters = counters
        self._what = what
        self._path = path
        self._kinds = kinds

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        if error is None or not isinstance(error, self._kinds):
            return False
        self._counters.add(self._what, self._path, error)
        return True


IN_PROCESS: Final = SuppressedErrors()
"""The counters of this process, for errors that belong to no client."""

_lock = threading.Lock()


def _renew_lock() -> None:
    """Replace the lock in a child process, where the thread that held it does not exist."""
    global _lock  # noqa: PLW0603 - once in each child
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)

_logged: OrderedDict[tuple[str, str, str], None] = OrderedDict()


def _remember(cause: tuple[str, str, str]) -> bool:
    """Remember a cause; return whether it is new. The caller holds the lock."""
    is_new = cause not in _logged
    _logged[cause] = None
    _logged.move_to_end(cause)
    if len(_logged) > MAX_CAUSES:
        _logged.popitem(last=False)
    return is_new
