"""What becomes of records that were not flushed when a process ends, or forks.

A regular end (the main thread returns, `sys.exit`, an exception that nobody caught) runs `atexit`:
what waits is sent within ``delivery.timeout.ms``, and a warning tells how many records were lost.

SIGTERM ends a Python process at once and runs nothing, where Java runs shutdown hooks: Kafka's own
tools close their producers in one, and whatever stops services sends SIGTERM. So, where nothing
handles it (the default action) when a producer is made in the main thread, SIGTERM flushes in a
thread of its own, as a shutdown hook does while all else goes on, and then ends the process by
SIGTERM as it would have. A handler that the program installs, before or after, is left alone: it
may call `sys.exit`. A second SIGTERM ends the process at once. ``flush.on.exit=false`` turns off
both this and the flush of a regular end.

A forked child has the parent's records but none of its threads: there they fail, and the producer
refuses to send.
"""

from __future__ import annotations

import _thread
import atexit
import os
import signal
import threading
import weakref
from typing import Protocol


class Flushable(Protocol):
    """What this module knows of a producer."""

    def flush_at_exit(self) -> None:
        """Send what waits, and warn of what was lost."""

    def forget_parent(self) -> None:
        """Be of no use any more: this process is a child."""


_open: set[Flushable] = set()
"""Producers to flush: held, so that one that nobody refers to any more is flushed as well."""

_all: weakref.WeakSet[Flushable] = weakref.WeakSet()
_prepared: list[bool] = []


def register(producer: Flushable, *, flushes: bool) -> None:
    """Let a producer take part.

    Args:
        producer: which.
        flushes: it is flushed when the process ends.
    """
    if not _prepared:
        _prepared.append(True)
        os.register_at_fork(after_in_child=_after_fork)
        atexit.register(_flush_all)
    _all.add(producer)
    if flushes:
        _open.add(producer)
        _handle_sigterm()


def unregister(producer: Flushable) -> None:
    """Forget a producer that is closed."""
    _open.discard(producer)


def _flush_all() -> None:
    for producer in list(_open):
        producer.flush_at_exit()


def _after_fork() -> None:
    _open.clear()
    for producer in list(_all):
        producer.forget_parent()


def _handle_sigterm() -> None:
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _on_sigterm)


def _on_sigterm(number: int, frame: object) -> None:
    signal.signal(number, signal.SIG_DFL)
    # The main thread may hold any lock just now, so that nothing is waited for here.
    if _open:
        _thread.start_new_thread(_flush_and_die, (number,))
    else:
        os.kill(os.getpid(), number)


def _flush_and_die(number: int) -> None:
    try:
        _flush_all()
    finally:
        os.kill(os.getpid(), number)
