"""Measures one append of several producers' batches beside an append of each.

    python -m benchmarks.group_commit

The batches have ten records of 100 bytes each. Times are CPU times of this process, the medians of
several tries, in turns; a local directory, appends are not synced.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from statistics import median

import pyarrow as pa

from benchmarks.log_report import Figure, Report, parser, run
from spark_log.config import TopicConfig
from spark_log.log import BatchAppend, LocalLog
from spark_log.record import HEADERS_TYPE, RECORD_SCHEMA, TIMESTAMP_TYPE, ProducerAppend
from spark_log.storage import open_store

PRODUCERS = (1, 10, 100)
RECORDS = 10
TRIES = 15


def open_log(directory: str, name: str) -> LocalLog:
    """Return an empty log that merges nothing."""
    config = TopicConfig.parse({"flush.on.append": False, "merge.tail.segments": 0})
    store = open_store(f"file://{directory}")
    return LocalLog(
        store, f"{name}.BAmGwfbUQVSsLzdzBSFxhA/{name}-0", topic_id="BAmGwfbUQVSsLzdzBSFxhA",
        partition=0, config=config,
    )  # fmt: skip


def batches(producers: int, turn: int) -> list[BatchAppend]:
    """Return a batch of each producer, which follows the one of the turn before."""
    columns = [
        pa.nulls(RECORDS, pa.binary()),
        pa.array([b"x" * 100] * RECORDS, pa.binary()),
        pa.nulls(RECORDS, HEADERS_TYPE),
        pa.array([1_700_000_000_000_000] * RECORDS, pa.int64()).view(TIMESTAMP_TYPE),
    ]
    records = pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)
    return [
        BatchAppend(records, ProducerAppend(number, 0, turn * RECORDS))
        for number in range(producers)
    ]


def append_each(log: LocalLog, sent: list[BatchAppend]) -> None:
    """Append each batch by a put of its own."""
    for batch in sent:
        log.append(batch.records, producer=batch.producer)


def append_together(log: LocalLog, sent: list[BatchAppend]) -> None:
    """Append all batches by one put."""
    stage = partial(log.stager.stage_batches, compression="none", leader_epoch=0)
    appended = log.appender.append_batches(sent, stage)
    assert appended.put is not None
    appended.put[0].discard()


def read(log: LocalLog) -> int:
    """Read the whole log; return the number of batches that a reader gets."""
    return sum(1 for _ in log.scan(0))


def figures(directory: str) -> Iterator[Figure]:
    """Yield the figures."""
    for producers in PRODUCERS:
        ways = {"each": append_each, "together": append_together}
        logs = {way: open_log(directory, f"{way}{producers}") for way in ways}
        times: dict[str, list[float]] = {way: [] for way in ways}
        for turn in range(TRIES):
            for way, append in ways.items():
                sent = batches(producers, turn)
                began_s = time.process_time()
                append(logs[way], sent)
                times[way].append((time.process_time() - began_s) * 1e6 / producers)
        for way, found in times.items():
            log, name = logs[way], f"{producers} producers, {way}"
            yield Figure(f"{name}: append of a batch", median(found[1:]), "µs")
            segments = len(log.observe().live.segments)
            yield Figure(f"{name}: puts of a batch", segments / producers / TRIES)
            began_s = time.process_time()
            read(log)
            spent_s = time.process_time() - began_s
            yield Figure(f"{name}: read of a batch", spent_s * 1e6 / producers / TRIES, "µs")


def measure(options: argparse.Namespace) -> Report:
    """Measure everything."""
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        return Report("group_commit", list(figures(directory)))


def main() -> None:
    """Run the benchmark."""
    run(parser("group_commit", __doc__), measure)


if __name__ == "__main__":
    main()
