"""Lines of a file descriptor, in blocks, as they come."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterator
from typing import Final

from spark_log.clock import Clock
from spark_log.errors import InvalidRecordError

BLOCK_BYTES: Final = 1_048_576
"""So much is handed out at once: some ten thousand lines."""
MAX_LINE_BYTES: Final = 64 * 1_048_576
"""A longer line is refused: it would have to be held in memory."""

_IDLE_MS = 5
"""When nothing came for so long, what is there is handed out: someone may be waiting for it."""
_LINGER_MS = 100
"""So old a line may get while more keep coming, one by one."""


def line_blocks(
    descriptor: int, clock: Clock, before_wait: Callable[[], None] = lambda: None
) -> Iterator[bytes]:
    """Yield blocks of whole lines, and an empty block whenever no more is there for the moment.

    Only the very last line may lack its line feed. Memory is bounded by a block and a longest line.

    Args:
        descriptor: what to read: a file, a pipe or a terminal.
        clock: tells how old a line is.
        before_wait: called before waiting for as long as it takes.

    Raises:
        InvalidRecordError: a line is longer than `MAX_LINE_BYTES`.
    """
    pending = bytearray()
    whole = 0  # how many bytes of `pending` are whole lines
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
                f"a line is longer than {MAX_LINE_BYTES:,} bytes; is the input text?"
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
