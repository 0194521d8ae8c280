"""Runs one call in its own thread, without importing asyncio, which few clients need."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

R = TypeVar("R")


def in_new_thread(function: Callable[[], R], name: str, *, is_daemon: bool = True) -> Future[R]:
    """Call a function in a thread of its own, and return a future that cannot be cancelled.

    Raises:
        RuntimeError: the system allows no more threads, or the interpreter is shutting down.
    """
    future: Future[R] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            result = function()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, name=name, daemon=is_daemon).start()
    return future
