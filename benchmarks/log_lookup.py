"""Measures lookups of an offset and a timestamp in partitions of 100, 1,000 and 10,000 segments.

    python -m benchmarks.log_lookup

No peer; each figure has a goal. Segments have 10,000 records, appended one segment at a time: the
largest partition has 100 million records. They have neither keys nor values, which a lookup does
not read. After one listing, random lookups go through a store that counts reads of files.
"""

import argparse
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.counting_store import CountingStore
from benchmarks.log_report import Figure, Report, parser, percentile, run
from benchmarks.log_workload import START_US, local_stores, open_log
from spark_log.record.schema import HEADERS_TYPE, RECORD_SCHEMA, TIMESTAMP_TYPE

_SEGMENT_RECORDS = 10_000
_BATCH_RECORDS = 1_000
_SAME_TIME = 100
"""Number of consecutive records with the same timestamp, so that segments compress well."""
_MAX_READS = 3
_MAX_MS = 1


def main() -> None:
    """Run the benchmark as the command line says."""
    options = parser("log_lookup", __doc__)
    options.add_argument(
        "--segments", type=int, action="append", help="how many (100, 1000, 10000)"
    )
    options.add_argument("--lookups", type=int, default=1_000, help="of each kind (1000)")
    run(options, measure)


def measure(options: argparse.Namespace) -> Report:
    """Grow one log from size to size, and measure lookups at each."""
    figures = []
    with local_stores(options.directory) as new_store:
        store = CountingStore(new_store().url)
        writer = open_log(store, flush_on_append=False)
        appended = 0
        for segments in sorted(options.segments or [100, 1_000, 10_000]):
            for number in range(appended, segments):
                writer.append(_records(number), compression="lz4")
            appended = segments
            figures += lookup_figures(store, segments, options.lookups)
    return Report(
        "log_lookup",
        figures,
        {"records a segment": f"{_SEGMENT_RECORDS:,}", "lookups of each kind": options.lookups},
    )


def lookup_figures(store: CountingStore, segments: int, lookups: int) -> list[Figure]:
    """Measure one listing, then lookups of random offsets and times, each checked.

    After appends, up to ``snapshot.interval.segments`` of a log's segments are in no snapshot yet,
    and the first lookup of a time may have to open them. It is reported separately; the other
    lookups follow after a snapshot, with a new handle.
    """
    end_offset = segments * _SEGMENT_RECORDS
    chance = random.Random(segments)
    label = f"{segments:,} segments"
    found = Lookups(store, end_offset)
    found.time(chance.randrange(end_offset))
    figures = [
        Figure(f"{label}: the listing", found.listing_ms, "ms"),
        Figure(f"{label}: first time, before a snapshot: reads", found.reads[0]),
        Figure(f"{label}: first time, before a snapshot", found.took_ms[0], "ms"),
    ]
    open_log(store).snapshots.write()
    for kind in ("offset", "time"):
        found = Lookups(store, end_offset)
        for _ in range(lookups):
            getattr(found, kind)(chance.randrange(end_offset))
        figures += [
            Figure(f"{label}: {kind}, reads at most", max(found.reads), at_most=_MAX_READS),
            Figure(f"{label}: {kind}, p50", percentile(found.took_ms, 50), "ms", at_most=_MAX_MS),
            Figure(f"{label}: {kind}, p99", percentile(found.took_ms, 99), "ms"),
            Figure(f"{label}: {kind}, the first", found.took_ms[0], "ms"),
        ]
    return figures


class Lookups:
    """Lookups with a new handle after one listing.

    Attributes:
        listing_ms: the duration of the listing.
        reads: the number of requests to the store, for each lookup.
        took_ms: the latency of each lookup.
    """

    def __init__(self, store: CountingStore, end_offset: int) -> None:
        self._store = store
        self._log = open_log(store)
        start = time.perf_counter()
        self._view = self._log.observe()
        self.listing_ms = (time.perf_counter() - start) * 1000
        assert self._view.log_end_offset == end_offset
        self._log.read(end_offset)[0]  # a fetch lists the log from time to time, as this one does
        self.reads: list[int] = []
        self.took_ms: list[float] = []

    def offset(self, offset: int) -> None:
        """Find the record at an offset."""
        batches = self._counted(lambda: self._log.read(offset, max_bytes=1)[0])
        assert batches[0].base_offset == offset

    def time(self, offset: int) -> None:
        """Find the time of the record at an offset."""
        time_us = _time_us(offset)
        found = self._counted(lambda: self._log.offset_for_time(time_us, self._view))
        assert found == (offset - offset % _SAME_TIME, time_us)

    def _counted(self, find: Callable[[], Any]) -> Any:
        before = self._store.reads
        start = time.perf_counter()
        found = find()
        self.took_ms.append((time.perf_counter() - start) * 1000)
        self.reads.append(self._store.reads - before)
        return found


def _time_us(offset: int) -> int:
    return START_US + offset // _SAME_TIME * 1_000


def _records(segment: int) -> Iterator[pa.RecordBatch]:
    first = segment * _SEGMENT_RECORDS
    for base in range(first, first + _SEGMENT_RECORDS, _BATCH_RECORDS):
        times_us = START_US + np.arange(base, base + _BATCH_RECORDS) // _SAME_TIME * 1_000
        columns = [
            pa.nulls(_BATCH_RECORDS, pa.binary()),
            pa.nulls(_BATCH_RECORDS, pa.binary()),
            pa.nulls(_BATCH_RECORDS, HEADERS_TYPE),
            pa.array(times_us).cast(TIMESTAMP_TYPE),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)


if __name__ == "__main__":
    main()
