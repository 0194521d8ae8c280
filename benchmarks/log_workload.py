"""Common parts of the benchmarks of the partition log: stores, logs and records."""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
from rich.console import Console

from spark_log.config import TopicConfig
from spark_log.log import LocalLog, MergeExecutor
from spark_log.record.schema import HEADERS_TYPE, RECORD_SCHEMA, TIMESTAMP_TYPE
from spark_log.storage import Store
from spark_log.storage.local import LocalStore

KEY_BYTES = 8
VALUE_BYTES = 100
RECORD_BYTES = KEY_BYTES + VALUE_BYTES
SMALL_BATCH = 20
"""Number of records in a small batch, which has about 2 KB."""

TOPIC_ID = "BAmGwfbUQVSsLzdzBSFxhA"
DIRECTORY = f"flights.{TOPIC_ID}/flights-0"
START_US = 1_700_000_000_000_000
_QUICK_US = 60
_WAITS, _WAIT_S = 12, 10
_WORDS = b"carrier=UA origin=EWR destination=IAH delay=4 distance=1400 tail=N14228".split()


@contextmanager
def local_stores(under: Path | None) -> Iterator[Callable[[], LocalStore]]:
    """Yield a function that creates a new root at every call; all roots are removed at the end.

    They are not removed earlier: ext4 without a journal does not reuse an inode in the minutes
    after its file was deleted, and the search for another inode is slow, which a benchmark after
    many deletions would measure. For the same reason this first waits until files are created fast,
    at most two minutes.
    """
    with tempfile.TemporaryDirectory(prefix="bench-", dir=under) as directory:
        _wait_for_quick_creation(Path(directory))
        numbers = count()

        def new() -> LocalStore:
            store = LocalStore(f"{directory}/{next(numbers)}")
            store.create_root()
            return store

        yield new


def _wait_for_quick_creation(directory: Path) -> None:
    os.sync()
    for waits in range(_WAITS + 1):
        took_us = median(creation_us_of(directory / f"{waits}-{number}") for number in range(50))
        if took_us < _QUICK_US or waits == _WAITS:
            break
        Console(stderr=True).print(f"creating a file takes {took_us:.0f} µs: waiting", style="dim")
        time.sleep(_WAIT_S)


def creation_us_of(path: Path) -> float:
    """Create an empty file, and return the duration in microseconds."""
    start = time.perf_counter()
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    return (time.perf_counter() - start) * 1e6


def open_log(
    store: Store, *, merge_executor: MergeExecutor | None = None, **config: object
) -> LocalLog:
    """Return a handle on the only log of a store."""
    settings = TopicConfig.parse(config)
    return LocalLog(
        store,
        DIRECTORY,
        topic_id=TOPIC_ID,
        partition=0,
        config=settings,
        merge_executor=merge_executor,
    )


def records(n: int, *, first: int = 0, text: bool = False) -> pa.RecordBatch:
    """Return ``n`` records of a key of 8 bytes and a value of 100, a millisecond apart.

    Args:
        n: the number of records.
        first: the number of the first record; keys and timestamps contain these numbers.
        text: whether values are words, which can be compressed; otherwise they are random.
    """
    keys = np.arange(first, first + n, dtype=">u8").tobytes()
    if text:
        chosen = np.random.default_rng(first).integers(0, len(_WORDS), n * 12)
        line = b" ".join(_WORDS[each] for each in chosen)
        values = line.ljust(n * VALUE_BYTES)[: n * VALUE_BYTES]
    else:
        values = np.random.default_rng(first).bytes(n * VALUE_BYTES)
    times_us = START_US + 1_000 * np.arange(first, first + n)
    columns = [
        binary_array(keys, n),
        binary_array(values, n),
        pa.nulls(n, HEADERS_TYPE),
        pa.array(times_us).cast(TIMESTAMP_TYPE),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)


def stamped_batch(stamp: bytes) -> pa.RecordBatch:
    """Return `SMALL_BATCH` records, the first of which has a value that begins with ``stamp``."""
    size_bytes = SMALL_BATCH * VALUE_BYTES
    values = binary_array(stamp.ljust(size_bytes, b"-"), SMALL_BATCH)
    batch = _small_batch()
    columns = [batch.column(0), values, *batch.columns[2:]]
    return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)


@cache
def _small_batch() -> pa.RecordBatch:
    return records(SMALL_BATCH)


def pin_to_one_core() -> None:
    """Restrict this process to one core, so that the work of its other threads counts, too."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def binary_array(data: bytes, count: int) -> pa.Array:
    """Return ``count`` binary values of equal length, ``data`` one after the other."""
    offsets = np.arange(count + 1, dtype=np.int32) * (len(data) // count)
    return pa.BinaryArray.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
