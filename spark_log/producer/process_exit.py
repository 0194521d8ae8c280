"""Flushes producers when the process ends, and disables them in a forked child.

A regular end of the process (the main thread returns, `sys.exit`, an uncaught exception) runs
`atexit` handlers: waiting records are appended within ``delivery.timeout.ms``, and a warning has
the number of lost records.

SIGTERM ends a Python process at once and runs no handlers, whereas Java runs shutdown hooks, in
which Kafka's own tools close their producers; and most service managers stop a service by SIGTERM.
Therefore, if SIGTERM has its default action when a producer is made in the main thread, a handler
is installed. It flushes in a thread of its own while the program continues, as a shutdown hook
does, and then ends the process by SIGTERM. A second SIGTERM ends the process at once. A handler
that the program installs, before or after, is left alone; it may call `sys.exit`.
``flush.on.exit=false`` turns off both the handler and the flush at a regular end.

A forked child has a copy of the parent's records but none of its threads. In the child these
records fail, and the producer refuses to send.
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
    """The part of a producer that this module calls."""

    def flush_at_exit(self) -> None:
        """Append the waiting records, and log the number of lost records."""

    def on_forked(self) -> None:
        """Become unusable: this process is a forked child."""


_open: set[Flushable] = set()
"""Producers to flush, by strong references, so that an unreferenced producer is flushed as well."""

_all: weakref.WeakSet[Flushable] = weakref.WeakSet()
_prepared: list[bool] = []


def register(producer: Flushable, *, flushes: bool) -> None:
    """Register a producer that was opened.

    Args:
        producer: the producer.
        flushes: whether to flush it when the process ends.
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
    """Remove a producer that is closed."""
    _open.discard(producer)


def _flush_all() -> None:
    for producer in list(_open):
        producer.flush_at_exit()


def _after_fork() -> None:
    _open.clear()
    for producer in list(_all):
        producer.on_forked()


def _handle_sigterm() -> None:
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _on_sigterm)


def _on_sigterm(number: int, frame: object) -> None:
    signal.signal(number, signal.SIG_DFL)
    # The interrupted main thread may hold any lock: this handler must not wait for one.
    if _open:
        _thread.start_new_thread(_flush_and_die, (number,))
    else:
        os.kill(os.getpid(), number)


def _flush_and_die(number: int) -> None:
    try:
        _flush_all()
    finally:
        os.kill(os.getpid(), number)
