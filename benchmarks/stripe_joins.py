"""Measures how long a new process takes to join a stripe whose objects are not at home.

    python -m benchmarks.stripe_joins
    python -m benchmarks.stripe_joins --objects 3600 --partitions 1000

Each object has a batch of one record of 100 bytes for each partition. The stripe is on a local
disk, and on an S3 server behind a proxy that delays and counts requests. A *writer joins* when it
knows the stripe's end and may append; a *reader* when it knows the places of all records. The third
figure is that of *taking home* all of it, which reads the records, too. The same is measured of
objects that a listing at the beginning did not show, since they were appended after it. Processor
time is that of this process.
"""

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from tempfile import TemporaryDirectory

from benchmarks.latency_proxy import LatencyProxy
from benchmarks.log_report import Figure, Report, parser, run
from benchmarks.striped_topics import dollars_of
from benchmarks.stripes import CONFIG, TOPIC, TOPIC_ID, batch_of
from spark_log.log import LocalLog, PartitionDirectory
from spark_log.log.stripe import (
    Stripe,
    StripeAppender,
    StripeDirectory,
    StripeEntry,
    stripe_path,
)
from spark_log.log.stripe.tail import StripeTail
from spark_log.storage import Store, open_store
from spark_log.testing.servers.s3_server import run_s3_server


def main() -> None:
    """Run the benchmark as the command line says."""
    options = parser("stripe_joins", __doc__)
    options.add_argument("--latency-ms", type=float, default=20.0, help="of a request (20)")
    options.add_argument("--objects", type=int, default=3_600, help="behind the marker (3600)")
    options.add_argument("--partitions", type=int, default=3, help="of the stripe (3)")
    run(options, measure)


def measure(options: argparse.Namespace) -> Report:
    """Measure both places."""
    figures: list[Figure] = []
    with TemporaryDirectory() as folder, run_s3_server() as server:
        store = open_store(f"{folder}/root")
        _fill(store, options)
        bucket = server.new_bucket()
        direct = open_store(f"{bucket}/root", server.storage_options)
        for each in store.list(_directory(store).path):
            direct.put_if_absent(each.path, store.open_buffer(each.path))
        figures += _figures("local", store, None)
        with LatencyProxy.running(server.endpoint_url, options.latency_ms) as proxy:
            slow = {**server.storage_options, "endpoint_url": proxy.url}
            figures += _figures("S3", open_store(f"{bucket}/root", slow), proxy)
        notes = {
            "server": server.name,
            "latency of a request": f"{options.latency_ms:g} ms",
            "objects": str(options.objects),
            "partitions": str(options.partitions),
        }
    return Report("stripe_joins", figures, notes)


def _fill(store: Store, options: argparse.Namespace) -> None:
    appender = StripeAppender(_directory(store))
    for number in range(options.objects):
        batch = batch_of(number)
        appender.append([StripeEntry(each, batch) for each in range(options.partitions)])


def _figures(place: str, store: Store, proxy: LatencyProxy | None) -> Iterator[Figure]:
    def take_home() -> None:
        Stripe(_directory(store), partial(_files, store)).take_home()

    steps: dict[str, Callable[[], object]] = {
        "a writer joins": StripeTail(_directory(store)).refresh,
        "a reader joins": Stripe(_directory(store), partial(_files, store)).reader.poll,
        "a writer joins, without a listing": partial(_refresh_unlisted, _directory(store)),
        "taking home": take_home,
    }
    for name, step in steps.items():
        if proxy is not None:
            proxy.begin()
        began_s, began_cpu_s = time.monotonic(), time.process_time()
        step()
        spent_s, cpu_s = time.monotonic() - began_s, time.process_time() - began_cpu_s
        yield Figure(f"{place}: {name}", spent_s, "s")
        yield Figure(f"{place}: {name}, processor time", cpu_s, "s")
        if proxy is not None:
            sent = Counter(each.operation for each in proxy.requests())
            for operation, count in sorted(sent.items()):
                yield Figure(f"{place}: {name}, {operation}", count)
            yield Figure(f"{place}: {name}, dollars of requests", dollars_of(sent))


def _refresh_unlisted(directory: StripeDirectory) -> None:
    """Take in all objects as a process does that is behind others which append all the time."""
    tail = StripeTail(directory)
    tail.list_stripe()
    tail._listed_end = 0
    tail.refresh()


def _directory(store: Store) -> StripeDirectory:
    return StripeDirectory(store, stripe_path(TOPIC, 0), topic_id=TOPIC_ID, stripe=0, config=CONFIG)


def _files(store: Store, partition: int) -> PartitionDirectory:
    path = f"{TOPIC}/flights-{partition}"
    return LocalLog(store, path, topic_id=TOPIC_ID, partition=partition, config=CONFIG).files


if __name__ == "__main__":
    main()
