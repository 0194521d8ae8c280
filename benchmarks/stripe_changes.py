"""Times changes of a topic's number of stripes, and counts their requests, on an S3 server.

    python -m benchmarks.stripe_changes --partitions 1000 --seconds 10

A producer sends a record of 100 bytes to each partition once a second (``linger.ms`` 1000) for some
seconds. Then the topic gets the next number of stripes, while the producer continues. The longest
time from `send` until acknowledged shows how long appends wait. The process that changes the topic
has a proxy that delays its requests and counts them.
"""

import argparse
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from multiprocessing.connection import Connection

from benchmarks.latency_proxy import LatencyProxy
from benchmarks.log_report import Figure, Report, parser, run
from benchmarks.striped_topics import Root, dollars_of
from benchmarks.timing import running
from spark_log import Admin, NewTopic, Producer
from spark_log.testing.servers.s3_server import run_s3_server

_TOPIC = "flights"


def main() -> None:
    """Run the benchmark as the command line says."""
    options = parser("stripe_changes", __doc__)
    options.add_argument("--latency-ms", type=float, default=20.0, help="of a request (20)")
    options.add_argument("--seconds", type=float, default=10.0, help="before each change (10)")
    options.add_argument("--partitions", type=int, default=1_000, help="of the topic (1000)")
    options.add_argument("--stripes", type=int, nargs="*", default=[1, 2, 0], help="(1 2 0)")
    run(options, measure)


def measure(options: argparse.Namespace) -> Report:
    """Change the topic from no stripes to each number in turn."""
    with run_s3_server() as server, ExitStack() as stack:
        url = f"{server.new_bucket()}/root"

        def slow() -> tuple[LatencyProxy, Root]:
            proxy = LatencyProxy.running(server.endpoint_url, options.latency_ms)
            found = stack.enter_context(proxy)
            return found, (url, {**server.storage_options, "endpoint_url": found.url})

        Admin(url, storage_options=server.storage_options).create_topics(
            [NewTopic(_TOPIC, options.partitions)]
        )
        proxy, root = slow()
        _, write_root = slow()
        writing = stack.enter_context(running(_produce, write_root, options.partitions))
        writing.recv()
        figures = list(_changes(options, proxy, root, writing))
        notes = {
            "server": server.name,
            "latency of a request": f"{options.latency_ms:g} ms",
            "partitions": str(options.partitions),
        }
    return Report("stripe_changes", figures, notes)


def _changes(
    options: argparse.Namespace, proxy: LatencyProxy, root: Root, writing: Connection
) -> Iterator[Figure]:
    before = 0
    with Admin(root[0], storage_options=root[1]) as admin:
        for count in options.stripes:
            time.sleep(options.seconds)
            name = f"{before} → {count} stripes"
            writing.send("measure")
            writing.recv()
            proxy.begin()
            began = time.perf_counter()
            admin.alter_stripes({_TOPIC: count})
            yield Figure(f"{name}: time", time.perf_counter() - began, "s")
            requests = Counter(each.operation for each in proxy.requests())
            writing.send("measure")
            yield Figure(f"{name}: longest wait of a record", writing.recv(), "s")
            others = sum(requests.values()) - requests["PUT"]
            yield Figure(f"{name}: PUT", requests["PUT"], "")
            yield Figure(f"{name}: other requests", others, "")
            yield Figure(f"{name}: requests", dollars_of(requests), "dollars")
            before = count
    writing.send("end")


def _produce(root: Root, partitions: int, pipe: Connection) -> None:
    """Send each second; answer with the longest time until acknowledged since the last answer."""
    longest_s = 0.0
    with Producer(root=root[0], storage_options=root[1], linger_ms=1_000) as producer:
        pipe.send(None)
        is_over = False
        while not is_over:
            began = time.perf_counter()
            futures = [
                producer.send(_TOPIC, b"x" * 100, partition=number) for number in range(partitions)
            ]
            for future in futures:
                future.result()
            longest_s = max(longest_s, time.perf_counter() - began)
            while pipe.poll():
                is_over = pipe.recv() == "end"
                if not is_over:
                    pipe.send(longest_s)
                    longest_s = 0.0


if __name__ == "__main__":
    main()
