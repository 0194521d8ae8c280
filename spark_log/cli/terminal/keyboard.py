"""Waits on a terminal until some time has passed, or until the user presses q."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from spark_log.cli.terminal.sigterm import exit_on_sigterm
from spark_log.util import Clock


@contextmanager
def quit_key(clock: Clock) -> Iterator[Callable[[float], bool]]:
    """Read single keys while the block runs, if stdin is a terminal.

    The terminal is restored after the block, also when SIGTERM ends the process.

    Args:
        clock: the clock that measures waits without a terminal.

    Yields:
        A function that waits for some milliseconds, and returns whether the user pressed q.
    """
    if not sys.stdin.isatty():

        def sleep(duration_ms: float) -> bool:
            clock.sleep_ms(duration_ms)
            return False

        yield sleep
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    def wait(duration_ms: float) -> bool:
        until_ms = clock.monotonic_ms() + duration_ms
        while (left_ms := until_ms - clock.monotonic_ms()) > 0:
            # Short waits: a signal that arrives just before `select` does not interrupt it.
            ready, _, _ = select.select([descriptor], [], [], min(left_ms / 1000, 0.5))
            if ready and os.read(descriptor, 1024).lower() in (b"q", b""):
                return True
        return False

    with exit_on_sigterm():
        tty.setcbreak(descriptor)  # Ctrl-C still interrupts
        try:
            yield wait
        finally:
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
