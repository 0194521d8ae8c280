"""Measures how late records of quiet partitions are read beside busy partitions, on an S3 server.

    python -m benchmarks.quiet_partitions --latency-ms 20 --seconds 30

One consumer reads ten partitions through a proxy that delays each request. Six are quiet: they get
an append every second or so. The other four are empty (*alone*), get many appends a second (*beside
busy ones*), or have a backlog, which the consumer reads again and again (*beside a backlog*). An
append has 20 records of 100 bytes, in a backlog 1,000. The age of an append is the time from its
beginning, which does not pass the proxy, until a poll returns its first record. Appends and the
consumer are processes of their own.
"""

import argparse
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.latency_proxy import LatencyProxy
from benchmarks.log_report import Figure, Report, parser, percentile, run
from benchmarks.log_workload import SMALL_BATCH, records, stamped_batch
from benchmarks.timing import age_ms, running, stamp_now
from spark_log import Admin, Consumer, NewTopic, TopicPartition
from spark_log.cluster import Cluster
from spark_log.log import PartitionLog
from spark_log.testing.servers.s3_server import run_s3_server
from spark_log.types import ConsumerRecord

_TOPIC = "flights"
_BUSY = range(4)
_QUIET = range(4, 10)
_BACKLOG_RECORDS = 1_000
SITUATIONS = ("alone", "beside busy ones", "beside a backlog")
_WARM_UP_S = 3.0
_POLL_MS = 500

Root = tuple[str, dict[str, Any]]
"""The URL of a root, and its storage options."""


def main() -> None:
    """Run the benchmark as the command line says."""
    options = parser("quiet_partitions", __doc__)
    options.add_argument("--latency-ms", type=float, default=20.0, help="of a request (20)")
    options.add_argument("--seconds", type=float, default=30.0, help="of each situation (30)")
    options.add_argument("--appends", type=float, default=20.0, help="per s and busy one (20)")
    options.add_argument("--every-s", type=float, default=1.0, help="between quiet records (1)")
    options.add_argument("--backlog", type=int, default=200, help="appends of a backlog (200)")
    options.add_argument("situations", nargs="*", default=SITUATIONS, help="some (all)")
    options.add_argument("--turns", type=int, default=1, help="of all situations (1)")
    run(options, measure)


def measure(options: argparse.Namespace) -> Report:
    """Measure the three situations in turns."""
    found: dict[str, list[_Read]] = {situation: [] for situation in options.situations}
    with (
        run_s3_server() as server,
        LatencyProxy.running(server.endpoint_url, options.latency_ms) as proxy,
    ):
        for _ in range(options.turns):
            for situation, reads in found.items():
                url = f"{server.new_bucket()}/root"
                direct = url, server.storage_options
                slow = url, {**server.storage_options, "endpoint_url": proxy.url}
                reads.append(_measure(situation, direct, slow, proxy, options))
        notes = {"server": server.name, "latency of a request": f"{options.latency_ms:g} ms"}
    return Report("quiet_partitions", list(_figures(found)), notes)


class _Read:
    """Records and requests of a consumer in one situation.

    Attributes:
        ages_ms: the ages of the quiet records.
        busy_ages_ms: the ages of the first record of each busy append; empty for a backlog.
        busy_records: the number of records of busy partitions, per second.
        cpu_s: the processor time of the consumer's process, per second.
        requests: the number of requests of each kind, per second.
    """

    def __init__(self, seconds: float, pipe: Connection, requests: Counter[str]) -> None:
        self.ages_ms, self.busy_ages_ms, busy, cpu_s = pipe.recv()
        self.busy_records = busy / seconds
        self.cpu_s = cpu_s / seconds
        self.requests = {kind: number / seconds for kind, number in requests.items()}


def _measure(
    situation: str, direct: Root, slow: Root, proxy: LatencyProxy, options: argparse.Namespace
) -> _Read:
    backlog = options.backlog if situation == "beside a backlog" else 0
    _create(direct, backlog)
    with running(_consume, slow, backlog, options.seconds) as pipe:
        pipe.recv()  # the consumer has its positions
        with running(_append_quiet, direct, options.every_s) as quiet:
            quiet.recv()
            if situation == "beside busy ones":
                with running(_append_busy, direct, options.appends) as busy:
                    busy.recv()
                    read = _await(pipe, proxy, options.seconds)
                    busy.send("end")
            else:
                read = _await(pipe, proxy, options.seconds)
            quiet.send("end")
    return read


def _await(pipe: Connection, proxy: LatencyProxy, seconds: float) -> _Read:
    pipe.send("begin")
    pipe.recv()  # the consumer is warm
    proxy.begin()
    pipe.recv()  # the measured time is over
    return _Read(seconds, pipe, Counter(each.operation for each in proxy.requests()))


def _figures(found: dict[str, list[_Read]]) -> Iterator[Figure]:
    alone = [age for read in found.get("alone", ()) for age in read.ages_ms]
    for situation, reads in found.items():
        ages_ms = [age for read in reads for age in read.ages_ms]
        yield Figure(f"{situation}: appends to quiet partitions", len(ages_ms))
        for percent in (50, 99):
            yield Figure(f"{situation}: age, p{percent}", percentile(ages_ms, percent), "ms")
        if alone and situation != "alone":
            ratio = percentile(ages_ms, 99) / percentile(alone, 99)
            yield Figure(f"{situation}: p99 / alone", ratio, at_most=3)
        if situation != "alone":
            busy = sum(read.busy_records for read in reads) / len(reads)
            yield Figure(f"{situation}: records of busy partitions", busy, "/s")
        busy_ms = [age for read in reads for age in read.busy_ages_ms]
        if busy_ms:
            for percent in (50, 99):
                value = percentile(busy_ms, percent)
                yield Figure(f"{situation}: age of a busy record, p{percent}", value, "ms")
        cpu_s = sum(read.cpu_s for read in reads) / len(reads)
        yield Figure(f"{situation}: processor time of the consumer", cpu_s * 1e3, "ms/s")
        for kind in sorted({kind for read in reads for kind in read.requests}):
            number = sum(read.requests.get(kind, 0) for read in reads) / len(reads)
            yield Figure(f"{situation}: {kind} of the consumer", number, "/s")


# --- the processes -------------------------------------------------------------------------------


def _logs(root: Root, partitions: range) -> list[PartitionLog]:
    cluster = Cluster(*root)
    topic = cluster.topic(_TOPIC)
    return [cluster.partition_log(topic, partition) for partition in partitions]


def _create(root: Root, backlog: int) -> None:
    Admin(root[0], storage_options=root[1]).create_topics([NewTopic(_TOPIC, 10)])
    batch = records(_BACKLOG_RECORDS)
    for log in _logs(root, range(10)):
        log.append(stamped_batch(stamp_now()))
    for log in _logs(root, _BUSY):
        for _ in range(backlog):
            log.append(batch)


def _append_quiet(root: Root, every_s: float, pipe: Connection) -> None:
    logs = _begun_logs(root, _QUIET, pipe)
    pace = random.Random(0)
    while not pipe.poll(pace.uniform(0, 2 * every_s / len(logs))):
        pace.choice(logs).append(stamped_batch(stamp_now()))


def _append_busy(root: Root, appends_per_s: float, pipe: Connection) -> None:
    ended = threading.Event()

    def append(log: PartitionLog) -> None:
        due_s = time.monotonic()
        while not ended.wait(max(0.0, due_s - time.monotonic())):
            due_s = max(due_s, time.monotonic() - 1) + 1 / appends_per_s
            log.append(stamped_batch(stamp_now()))

    with ThreadPoolExecutor(len(_BUSY)) as threads:
        for log in _begun_logs(root, _BUSY, pipe):
            threads.submit(append, log)
        pipe.recv()
        ended.set()


def _begun_logs(root: Root, partitions: range, pipe: Connection) -> list[PartitionLog]:
    """Open logs, append once to each, which takes longer than later appends, and say so."""
    logs = _logs(root, partitions)
    for log in logs:
        log.append(stamped_batch(stamp_now()))
    pipe.send("ready")
    return logs


def _consume(root: Root, backlog: int, seconds: float, pipe: Connection) -> None:
    ages_ms: dict[bool, list[float]] = {True: [], False: []}
    busy, measured_from_s = 0, 0.0
    with Consumer(root=root[0], storage_options=root[1]) as consumer:
        partitions = [TopicPartition(_TOPIC, number) for number in range(10)]
        consumer.assign(partitions)
        consumer.seek_to_end()
        ends = {each: consumer.position(each) for each in partitions}
        pipe.send("ready")
        pipe.recv()
        began_s = time.monotonic()
        while (now_s := time.monotonic()) < began_s + _WARM_UP_S + seconds:
            if not measured_from_s and now_s >= began_s + _WARM_UP_S:
                measured_from_s, cpu_s = now_s, time.process_time()
                pipe.send("warm")
            for each in partitions if backlog else ():
                if each.partition in _BUSY and consumer.position(each) >= ends[each]:
                    consumer.seek(each, SMALL_BATCH)
            for each, found in consumer.poll(_POLL_MS).items():
                is_quiet = each.partition in _QUIET
                if measured_from_s:
                    busy += 0 if is_quiet else len(found)
                    ages_ms[is_quiet] += _ages_ms(found, is_stamped=is_quiet or not backlog)
        cpu_s = time.process_time() - cpu_s
        pipe.send("end")
        pipe.send((ages_ms[True], ages_ms[False], busy, cpu_s))


def _ages_ms(found: list[ConsumerRecord], *, is_stamped: bool) -> list[float]:
    """Return the ages of appends: the first record of each has a stamp."""
    if not is_stamped:
        return []
    return [age_ms(each.value) for each in found if each.offset % SMALL_BATCH == 0]


if __name__ == "__main__":
    main()
