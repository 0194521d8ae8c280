"""Measures what merging and cleaning cost, and what they leave of many small appends.

    python -m benchmarks.log_maintenance --appends 100000 --days 365 --appends-a-day 240

One process, one partition, not synced, in four parts (``--only`` picks one):

- merges: speed of merging segments of 40,000 records in one thread, as they are, and words that are
  compressed with zstd on the way.
- latency: appends of one record to a log that merges inline, and to one that does not.
- small: appends of one record by an idempotent producer, merged inline, then cleaned; reading them
  all is compared with the same records in one segment.
- life: a partition that lived for a year on a manual clock, cleaned daily. Appends per day and
  ``segment.bytes`` are scaled down alike, so there are as many segments as with one append a
  second.

Reads are repeated, and the median is shown.
"""

import argparse
import os
import time
from functools import partial
from statistics import median

from benchmarks.counting_store import CountingStore
from benchmarks.log_report import Figure, Report, parser, percentile, run
from benchmarks.log_workload import DIRECTORY, TOPIC_ID, local_stores, records
from benchmarks.timing import timed
from spark_log.config import TopicConfig
from spark_log.log import LocalLog
from spark_log.log.clean.cleaner import PartitionCleaner
from spark_log.log.rewrite.merger import KEEP_COMPRESSION, merge
from spark_log.record import ProducerAppend
from spark_log.storage.local import LocalStore
from spark_log.util.clock import ManualClock

PARTS = ("merges", "latency", "small", "life")
DAY_MS = 86_400_000
_READS = 7
_ROWS = 65_536
_MERGED, _MERGED_ROWS = 100, 40_000
_ANY_TIME = {"message.timestamp.after.max.ms": 2**63 - 1, "retention.ms": -1}


def main() -> None:
    """Run the benchmark as the command line says."""
    options = parser("log_maintenance", __doc__)
    options.add_argument("--appends", type=int, default=100_000, help="of one record (100000)")
    options.add_argument("--days", type=int, default=365, help="of the long-lived partition (365)")
    options.add_argument("--appends-a-day", type=int, default=240, help="of it (240)")
    options.add_argument("--only", choices=PARTS, help="one part alone")
    run(options, measure)


def measure(options: argparse.Namespace) -> Report:
    """Measure the parts, one after the other."""
    figures: list[Figure] = []
    parts = [options.only] if options.only else PARTS
    with local_stores(options.directory) as new_store:
        if "merges" in parts:
            figures += merges("as they are", new_store(), KEEP_COMPRESSION, is_text=False)
            figures += merges("words, to zstd", new_store(), "zstd", is_text=True)
        if "latency" in parts:
            figures += latency(new_store(), new_store(), min(options.appends, 20_000))
        if "small" in parts:
            figures += small_appends(new_store(), new_store(), options.appends)
        if "life" in parts:
            figures += long_life(new_store(), options.days, options.appends_a_day)
    notes = {"appends": options.appends, "days": options.days, "a day": options.appends_a_day}
    return Report("log_maintenance", figures, notes)


def open_log(store: LocalStore, clock: ManualClock, **config: object) -> LocalLog:
    """Return a handle on the only log of a store."""
    settings = TopicConfig.parse({"flush.on.append": False, **_ANY_TIME, **config})
    return LocalLog(store, DIRECTORY, topic_id=TOPIC_ID, partition=0, config=settings, clock=clock)


def merges(name: str, store: LocalStore, compression: str, *, is_text: bool) -> list[Figure]:
    """Merge segments of some MB into one, without sync."""
    log = open_log(store, ManualClock(), **{"merge.tail.segments": 0})
    for number in range(_MERGED):
        log.append(records(_MERGED_ROWS, first=number * _MERGED_ROWS, text=is_text))
    view = log.observe()
    size_bytes = sum(segment.size_bytes for segment in log.segments(view)[0])
    os.sync()
    began = time.process_time()
    took_s = timed(
        lambda: merge(log.files, view, 0, _MERGED - 1, compression=compression, sync=False)
    )
    cpu_s = time.process_time() - began
    rows = _MERGED * _MERGED_ROWS
    return [
        Figure(f"merging, {name}", size_bytes / took_s / 1e6, "MB/s", at_least=200),
        Figure(f"merging, {name}, by CPU time", size_bytes / cpu_s / 1e6, "MB/s"),
        Figure(f"merging, {name}", rows / took_s / 1e6, "M records/s", at_least=1),
    ]


def latency(merging: LocalStore, other: LocalStore, appends: int) -> list[Figure]:
    """Append to a log that merges inline and to one that does not, in turns."""
    logs = {
        "merged inline": open_log(merging, ManualClock()),
        "not merged": open_log(other, ManualClock(), **{"merge.tail.segments": 0}),
    }
    took_ms: dict[str, list[float]] = {name: [] for name in logs}
    for number in range(appends):
        batch = records(1, first=number)
        for name, log in logs.items():
            took_ms[name].append(timed(partial(log.append, batch)) * 1000)
    return [
        Figure(f"append of one record, {name}, {label}", figure, "ms")
        for name, each in took_ms.items()
        for label, figure in (
            ("p50", percentile(each, 50)),
            ("p99", percentile(each, 99)),
            ("mean", sum(each) / len(each)),
        )
    ]


def small_appends(store: LocalStore, large: LocalStore, appends: int) -> list[Figure]:
    """Append one by one, clean, and read; compare with the same records in one segment."""
    store, clock = CountingStore(store.url), ManualClock()
    log = open_log(store, clock)
    began = time.perf_counter()
    for number in range(appends):
        log.append(records(1, first=number), producer=ProducerAppend(7, 0, number))
        clock.advance_ms(5)
    took_s = time.perf_counter() - began
    on_the_way = files_of(store)
    cleaned_s = timed(lambda: clean(store, clock))
    time.sleep(1.1)  # the store dates files in whole seconds
    clean(store, clock)
    left = files_of(store)
    whole = open_log(large, clock)
    whole.append([records(min(_ROWS, appends - at), first=at) for at in range(0, appends, _ROWS)])
    ratio = read_s(large, appends) / read_s(store, appends)
    return [
        Figure("appends a second", appends / took_s),
        Figure("files before the cleaner", on_the_way),
        Figure("files left", left, at_most=200),
        Figure("live segments left", len(open_log(store, clock).observe().live.segments)),
        Figure("bytes written / bytes appended", store.amplification, at_most=4),
        Figure("the cleaner took", cleaned_s, "s"),
        Figure("fetch of all / of one large segment", ratio, at_least=0.5),
    ]


def long_life(store: LocalStore, days: int, appends_a_day: int) -> list[Figure]:
    """Append for a year of the manual clock, then open the partition."""
    clock = ManualClock()
    # With one append per second, a segment of 1 GiB takes some weeks, and as many weeks here.
    segment_bytes = max(1_048_576, 1_073_741_824 * appends_a_day // 86_400)
    scaled = {"segment.bytes": segment_bytes, "segment.ms": days * DAY_MS}
    log = open_log(store, clock, **scaled)
    sequence = most_files = 0
    for _ in range(days):
        for _ in range(appends_a_day):
            log.append(records(1, first=sequence), producer=ProducerAppend(7, 0, sequence))
            sequence += 1
            clock.advance_ms(DAY_MS / appends_a_day)
        most_files = max(most_files, files_of(store))
        clean(store, clock, **scaled)
    time.sleep(1.1)
    clean(store, clock, **scaled)
    fresh, took_ms = CountingStore(store.url), []
    for _ in range(_READS):
        fresh.reads = fresh.listings = 0
        took_ms.append(timed(lambda: open_all(fresh, clock)) * 1000)
    return [
        Figure("a year: most files in the directory", most_files),
        Figure("a year: files at the end", files_of(store)),
        Figure("a year: live segments", len(log.observe().live.segments)),
        Figure("a year: opening it", median(took_ms), "ms", at_most=20),
        Figure("a year: reads and listings of that", fresh.reads + fresh.listings, at_most=5),
    ]


def open_all(store: LocalStore, clock: ManualClock) -> None:
    """Load the state of a partition: its offsets, segments and producers."""
    log = open_log(store, clock)
    view = log.observe()
    log.segments(view)
    log.producers()


def clean(store: LocalStore, clock: ManualClock, **config: object) -> None:
    """Clean without ``file.delete.delay.ms``."""
    log = open_log(store, clock, **{"file.delete.delay.ms": 0}, **config)
    # The manual clock is far from the machine's, which dates the files.
    PartitionCleaner(log, max_clock_skew_ms=2**62).clean()


def files_of(store: LocalStore) -> int:
    """Return the number of files in the partition's directory."""
    return sum(1 for _ in store.list(DIRECTORY))


def read_s(store: LocalStore, expected: int) -> float:
    """Return the median seconds to read everything, with a new handle each time."""

    def read() -> None:
        log = open_log(store, ManualClock())
        assert sum(batch.records.num_rows for batch in log.scan(0)) == expected

    return median(timed(read) for _ in range(_READS))


if __name__ == "__main__":
    main()
