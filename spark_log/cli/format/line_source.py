"""Reads the lines of a file descriptor in blocks, as they arrive."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterator
from typing import Final

from spark_log.errors import InvalidRecordError
from spark_log.util import Clock

BLOCK_BYTES: Final = 1_048_576
"""Size of a block: about ten thousand lines."""
MAX_LINE_BYTES: Final = 64 * 1_048_576
"""Maximum size of a line, because a line is held in memory."""

_IDLE_MS = 5
"""Lines are yielded when no more arrive for this time, because a user may wait for them."""
_LINGER_MS = 100
"""Lines are yielded at this age, even if more keep arriving."""


def line_blocks(
    descriptor: int, clock: Clock, before_wait: Callable[[], None] = lambda: None
) -> Iterator[bytes]:
    """Yield blocks of whole lines, and an empty block when no more lines are ready.

    Only the last line may lack its line feed. Memory is limited to a block and a line of maximum
    size.

    Args:
        descriptor: a file, a pipe or a terminal.
        clock: the clock that measures the age of lines.
        before_wait: the function that is called before each wait without a time limit.

    Raises:
        InvalidRecordError: a line is longer than `MAX_LINE_BYTES`.
    """
    pending = bytearray()
    whole = 0  # the number of bytes of `pending` that are whole lines
    since_ms = clock.monotonic_ms()
    while True:
        if not _is_ready(descriptor, _IDLE_MS):
            if whole:
                yield _take(pending, whole)
                whole = 0
            yield b""
            before_wait()
            _is_ready(descriptor, None)
            since_ms = clock.monotonic_ms()
        data = os.read(descriptor, BLOCK_BYTES)
        if not data:
            break
        line_end = data.rfind(b"\n") + 1
        whole = len(pending) + line_end if line_end else whole
        pending += data
        if len(pending) - whole > MAX_LINE_BYTES:
            raise InvalidRecordError(
                f"a line is longer than {MAX_LINE_BYTES:,} bytes, the maximum; check that the "
                f"input is text"
            )
        is_old = clock.monotonic_ms() - since_ms >= _LINGER_MS
        if whole and (is_old or len(pending) >= BLOCK_BYTES):
            yield _take(pending, whole)
            whole = 0
            since_ms = clock.monotonic_ms()
    if pending:
        yield bytes(pending)


def _take(pending: bytearray, count: int) -> bytes:
    taken = bytes(pending[:count])
    del pending[:count]
    return taken


def _is_ready(descriptor: int, timeout_ms: float | None) -> bool:
    timeout_s = None if timeout_ms is None else timeout_ms / 1000
    return bool(select.select([descriptor], [], [], timeout_s)[0])
