"""The requests of writers that share a stripe, counted in simulated time.

``python -m tests.simulation.stripes.requests`` prints a table: each writer has an object ready each
second, with a batch of one record for each of ten partitions. A put takes 40 ms and a read 20 ms on
average. Requests are for each object that was acknowledged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from random import Random

import pyarrow as pa
import typer

from spark_log.log import BatchAppend
from spark_log.log.append import LogAppendInfo
from spark_log.log.stripe import StripeAppender, StripeDirectory, StripeEntry, stripe_path
from spark_log.record import ProducerAppend
from spark_log.storage import FileInfo, StagedFile
from tests.simulation.log.profile import draw_profile
from tests.simulation.log.records import Record, record_batch
from tests.simulation.scheduler import START_US, Scheduler, SimulatedClock
from tests.simulation.store import SimulatedDisk, SimulatedStore
from tests.simulation.stripes.true_stripes import TOPIC, TOPIC_ID, TrueStripes

_OBJECTS = 100
"""Number of objects of each writer."""

_PARTITIONS = 10


class CountingStore(SimulatedStore):
    """A simulated store that counts its requests.

    Attributes:
        counts: number of calls of each operation.
    """

    counts: Counter[str]

    def put_if_absent(
        self, path: str, source: bytes | pa.Buffer | StagedFile, *, sync: bool = True
    ) -> None:
        """Count a put."""
        self.counts["puts"] += 1
        super().put_if_absent(path, source, sync=sync)

    def open_buffer(self, path: str) -> pa.Buffer:
        """Count a read."""
        self.counts["reads"] += 1
        return super().open_buffer(path)

    def list(self, directory: str, start_after: str | None = None) -> Iterator[FileInfo]:
        """Count a listing."""
        self.counts["lists"] += 1
        return super().list(directory, start_after)


@dataclass(frozen=True, slots=True)
class Requests:
    """The requests of some writers.

    Attributes:
        writers: number of writers.
        objects_per_second: objects that were acknowledged in a second.
        puts: puts for each of these.
        reads: reads for each of these.
        lists: listings of all writers.
        p50_ms: median time from when an object is ready until it is acknowledged.
        p99_ms: the time that one object in a hundred exceeds.
    """

    writers: int
    objects_per_second: float
    puts: float
    reads: float
    lists: int
    p50_ms: float
    p99_ms: float


def count_requests(writers: int, seed: int = 1, objects: int = _OBJECTS) -> Requests:
    """Let writers append to one stripe, and count their requests.

    Args:
        writers: number of writers, each a process of its own.
        seed: determines every step.
        objects: number of objects of each writer.
    """
    scheduler = Scheduler(seed)
    clock = SimulatedClock(scheduler)
    disk = SimulatedDisk(clock, "stripes")
    disk.delete_directory(TOPIC)
    faults = replace(draw_profile(Random(seed)).without_faults(), latency_ms=20.0)
    store = CountingStore(disk, scheduler, TrueStripes(disk), faults)
    store.counts = Counter()
    took_ms: list[float] = []

    def write(producer_id: int) -> None:
        directory = StripeDirectory(
            store, stripe_path(TOPIC, 0), topic_id=TOPIC_ID, stripe=0, clock=clock
        )
        appender = StripeAppender(directory)
        ready_ms = scheduler.random.uniform(0, 1000)
        for number in range(objects):
            scheduler.pass_time(max(0.0, ready_ms - scheduler.now_ms))
            results = appender.append(
                [
                    StripeEntry(
                        partition,
                        BatchAppend(
                            record_batch(
                                [Record(b"%d:%d:%d" % (producer_id, partition, number), START_US)]
                            ),
                            ProducerAppend(producer_id, 0, number),
                        ),
                    )
                    for partition in range(_PARTITIONS)
                ]
            )
            assert all(isinstance(each, LogAppendInfo) for each in results)
            took_ms.append(scheduler.now_ms - ready_ms)
            ready_ms = max(ready_ms + 1000, scheduler.now_ms)

    for producer_id in range(writers):
        scheduler.spawn(f"writer {producer_id}", partial(write, producer_id), is_mortal=False)
    scheduler.run(lambda: False)
    took_ms.sort()
    count = len(took_ms)
    return Requests(
        writers,
        count / scheduler.now_ms * 1000,
        store.counts["puts"] / count,
        store.counts["reads"] / count,
        store.counts["lists"],
        took_ms[count // 2],
        took_ms[count * 99 // 100],
    )


def main() -> None:
    """Print the table."""
    typer.echo("| writers | objects a second | puts | reads | listings | p50 | p99 |")
    typer.echo("|---:|---:|---:|---:|---:|---:|---:|")
    for writers in (1, 2, 4, 8, 16):
        found = count_requests(writers)
        typer.echo(
            f"| {found.writers} | {found.objects_per_second:.1f} | {found.puts:.2f} | "
            f"{found.reads:.2f} | {found.lists} | {found.p50_ms:.0f} ms | {found.p99_ms:.0f} ms |"
        )


if __name__ == "__main__":
    main()
