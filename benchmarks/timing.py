"""Measure how long a call takes, and how old a record is when another process reads it."""

import multiprocessing
import random
import struct
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

_PROCESSES = multiprocessing.get_context("spawn")
_STAMP = struct.Struct("<q")


def timed(action: Callable[[], object]) -> float:
    """Run ``action`` and return how long it took, in seconds."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def stamp_now() -> bytes:
    """Return the time as 8 bytes, for the beginning of a record's value."""
    return _STAMP.pack(time.monotonic_ns())


def age_ms(value: object) -> float:
    """Return the milliseconds since `stamp_now` made the first 8 bytes of ``value``.

    The clock is the machine's, so any of its processes may ask.
    """
    assert isinstance(value, bytes)
    stamp_ns: int = _STAMP.unpack_from(value)[0]
    return (time.monotonic_ns() - stamp_ns) / 1e6


def ages_in_another_process(
    read: Callable[..., None],
    source: tuple[Any, ...],
    send: Callable[[bytes], object],
    *,
    count: int,
    every_ms: float,
    warmups: int = 100,
) -> list[float]:
    """Send stamps at random intervals, and return how old each was when a reader had it.

    Args:
        read: runs in a new process, as ``read(*source, count, pipe)``. It sends anything through
            the pipe once it waits for the first stamp, and at the end the ages in milliseconds.
        source: first arguments of ``read``: what it reads from.
        send: sends one value that begins with the stamp given.
        count: stamps that are measured.
        every_ms: mean interval.
        warmups: stamps sent before those.
    """
    theirs, own = _PROCESSES.Pipe()
    arguments = (*source, count + warmups, own)
    reader = _PROCESSES.Process(target=read, args=arguments, daemon=True)
    reader.start()
    own.close()  # a reader that fails then raises EOFError here
    theirs.recv()
    pace = random.Random(0)
    for _ in range(count + warmups):
        time.sleep(pace.uniform(0, 2 * every_ms) / 1000)
        send(stamp_now())
    ages_ms: list[float] = theirs.recv()
    reader.join()
    return ages_ms[warmups:]


def report_ages(pipe: Connection, next_values: Callable[[], list[object]], count: int) -> None:
    """Announce that a reader is ready, then read ``count`` stamps and send their ages.

    Args:
        pipe: the one that `ages_in_another_process` gave.
        next_values: waits for the next values, and returns them; an empty list where none arrived.
        count: stamps to read.
    """
    pipe.send("ready")
    ages_ms: list[float] = []
    while len(ages_ms) < count:
        ages_ms += [age_ms(value) for value in next_values()]
    pipe.send(ages_ms)
