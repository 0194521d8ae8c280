"""Measures lookups of an offset or a timestamp in one segment of 10,000 batches.

    python -m benchmarks.log_segment_lookup

Compared are lookups with the indexes as written, lookups of the first reader after the index files
are lost (it rebuilds them), and, for timestamps, a scan of the batch headers. Each lookup opens the
file again. Prints a table in Markdown.
"""

from __future__ import annotations

import random
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.timing import timed
from spark_log.log import SegmentReader, SegmentWriter
from spark_log.log.files.file_names import SegmentName
from spark_log.record.schema import HEADERS_TYPE, RECORD_SCHEMA, TIMESTAMP_TYPE
from spark_log.storage.local import LocalStore

_DIRECTORY = "t.AAAAAAAAAAAAAAAAAAAAAA/t-0"
_NAME = SegmentName(0)
_BATCHES = 10_000
_ROWS = 20
_START_US = 1_700_000_000_000_000
_ROUNDS = 50


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as folder:
        store = LocalStore(folder)
        _write(store)
        chance = random.Random(4)
        offsets = [chance.randrange(_BATCHES * _ROWS) for _ in range(_ROUNDS)]
        index_files = [f"{_DIRECTORY}/{name}" for name in (_NAME.index, _NAME.time_index)]
        contents = [store.open_buffer(path).to_pybytes() for path in index_files]

        def with_indexes() -> None:
            for path, data in zip(index_files, contents, strict=True):
                store.put(path, data)

        def without() -> None:
            for path in index_files:
                store.delete(path)

        def by_offset(offset: int) -> None:
            assert next(_open(store).read(offset)).base_offset == offset

        def by_time(offset: int) -> None:
            assert _open(store).offset_for_time(_START_US + offset, 0) == (
                offset,
                _START_US + offset,
            )

        def by_headers(offset: int) -> None:
            reader = _open(store)
            for ordinal in range(reader.batch_count):
                if reader.headers(ordinal)[-1].max_timestamp_us >= _START_US + offset:
                    return

        print("| | median | slowest |\n|---|---|---|")
        for name, prepare, lookup in (
            ("offset, by its index", with_indexes, by_offset),
            ("offset, indexes missing: rebuilt", without, by_offset),
            ("time, by its indexes", with_indexes, by_time),
            ("time, indexes missing: rebuilt", without, by_time),
            ("time, by batch headers", with_indexes, by_headers),
        ):
            times_ms = [_timed_ms(prepare, lookup, offset) for offset in offsets]
            median_ms, slowest_ms = statistics.median(times_ms), max(times_ms)
            print(f"| {name} | {median_ms:.2f} ms | {slowest_ms:.2f} ms |")


def _write(store: LocalStore) -> None:
    writer = SegmentWriter(
        store, _DIRECTORY, topic_id="AAAAAAAAAAAAAAAAAAAAAA", partition=0, index_interval_bytes=4096
    )
    for first in range(0, _BATCHES * _ROWS, _ROWS):
        times = pa.array(np.arange(first, first + _ROWS) + _START_US, pa.int64())
        columns = [
            pa.array([b"12345678"] * _ROWS),
            pa.array([bytes(100)] * _ROWS),
            pa.nulls(_ROWS, HEADERS_TYPE),
            times.cast(TIMESTAMP_TYPE),
        ]
        writer.write(pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA))
    segment = writer.finish()
    store.put_if_absent(f"{_DIRECTORY}/{_NAME.file_name}", segment.staged, sync=False)
    for name, data in segment.derived_files(_NAME):
        store.put(str(Path(_DIRECTORY) / name), data)


def _open(store: LocalStore) -> SegmentReader:
    return SegmentReader(store, _DIRECTORY, _NAME, topic_id="AAAAAAAAAAAAAAAAAAAAAA", partition=0)


def _timed_ms(prepare: Callable[[], None], lookup: Callable[[int], None], offset: int) -> float:
    prepare()
    return timed(lambda: lookup(offset)) * 1000


if __name__ == "__main__":
    main()
