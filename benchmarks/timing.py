"""Measures the duration of a call, and the age of a record when another process reads it."""

import multiprocessing
import random
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

_PROCESSES = multiprocessing.get_context("spawn")
_STAMP = struct.Struct("<q")


def timed(action: Callable[[], object]) -> float:
    """Run ``action`` and return its duration in seconds."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def stamp_now() -> bytes:
    """Return the time as 8 bytes, for the beginning of a record's value."""
    return _STAMP.pack(time.monotonic_ns())


def age_ms(value: object) -> float:
    """Return the milliseconds since `stamp_now` made the first 8 bytes of ``value``.

    The clock is the machine's, so any process on the machine may call this.
    """
    assert isinstance(value, bytes)
    stamp_ns: int = _STAMP.unpack_from(value)[0]
    return (time.monotonic_ns() - stamp_ns) / 1e6


@contextmanager
def running(target: Callable[..., None], *arguments: Any) -> Iterator[Connection]:
    """Run a function in a process of its own, and end the process at the end.

    Args:
        target: the function; the last argument that it gets is its end of a pipe.
        arguments: its other arguments.

    Yields:
        The other end of the pipe.
    """
    theirs, own = _PROCESSES.Pipe()
    process = _PROCESSES.Process(target=target, args=(*arguments, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        yield own
    finally:
        process.join(60)
        process.terminate()


def ages_in_another_process(
    read: Callable[..., None],
    source: tuple[Any, ...],
    send: Callable[[bytes], object],
    *,
    count: int,
    every_ms: float,
    warmups: int = 100,
) -> list[float]:
    """Send stamps at random intervals, and return the age of each when a reader got it.

    Args:
        read: runs in a new process, as ``read(*source, count, pipe)``. It sends anything through
            the pipe when it waits for the first stamp, and at the end the ages in milliseconds.
        source: the first arguments of ``read``, which name its source.
        send: sends one value that begins with the given stamp.
        count: the number of stamps that are measured.
        every_ms: the mean interval.
        warmups: the number of stamps that are sent before those.
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
        pipe: the pipe from `ages_in_another_process`.
        next_values: waits for the next values, and returns them; an empty list if none arrived.
        count: the number of stamps to read.
    """
    pipe.send("ready")
    ages_ms: list[float] = []
    while len(ages_ms) < count:
        ages_ms += [age_ms(value) for value in next_values()]
    pipe.send(ages_ms)
