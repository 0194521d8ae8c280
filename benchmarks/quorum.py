"""Compares a cluster root on a quorum of three roots with a single root, at a latency per request.

    python -m benchmarks.quorum --latency-ms 20 --repeats 20

The roots are directories behind a store that waits before it answers each request, as an object
store does, so the figures count round trips. A change of metadata: two producer ids are taken by
appends to the metadata log. A commit: offsets of one partition. Degraded: one of the three roots is
removed.
"""

import argparse
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, ClassVar
from unittest import mock

from benchmarks.command_line import positive
from benchmarks.log_report import Figure, Report, parser, run
from spark_log import Admin, NewTopic, OffsetAndMetadata, TopicPartition
from spark_log.cluster import Cluster
from spark_log.storage import factory
from spark_log.storage.local import LocalStore

_REQUESTS = ("put_if_absent", "put", "read", "read_tail", "open_buffer", "head", "delete")


class SlowStore(LocalStore):
    """A local store that delays its requests like an object store, and counts them."""

    is_mapped: ClassVar[bool] = False
    latency_s: ClassVar[float] = 0.0
    requests: ClassVar[Counter[str]] = Counter()
    lock: ClassVar[threading.Lock] = threading.Lock()

    def list(self, directory: str, start_after: str | None = None) -> Iterator[Any]:
        _wait("list")
        return super().list(directory, start_after)


def _wait(name: str) -> None:
    with SlowStore.lock:
        SlowStore.requests[name] += 1
    time.sleep(SlowStore.latency_s)


def _slowly(name: str) -> Callable[..., Any]:
    original = getattr(LocalStore, name)

    def request(self: LocalStore, *args: Any, **kwargs: Any) -> Any:
        _wait(name)
        return original(self, *args, **kwargs)

    return request


for _name in _REQUESTS:
    setattr(SlowStore, _name, _slowly(_name))


def main() -> int:
    """Run the benchmark as the command line says; return the exit status."""
    options = parser("quorum", __doc__)
    options.add_argument("--latency-ms", type=positive, default=20, help="of a request (20)")
    options.add_argument("--repeats", type=positive, default=20, help="of each change (20)")
    run(options, measure)
    return 0


def measure(options: argparse.Namespace) -> Report:
    """Measure puts, changes of metadata and commits of offsets, on one root and on three."""
    SlowStore.latency_s = options.latency_ms / 1000
    figures: list[Figure] = []
    with (
        tempfile.TemporaryDirectory(prefix="bench-", dir=options.directory) as directory,
        mock.patch.object(factory, "LocalStore", SlowStore),
    ):
        roots = [str(Path(directory) / name) for name in "abc"]
        for name, root in (("1 root", f"{directory}/one"), ("quorum of 3", ",".join(roots))):
            Admin(root).create_topics([NewTopic("t")])
            figures += _figures(name, root, options)
        shutil.rmtree(roots[2])
        figures += _figures("quorum of 3, one lost", ",".join(roots), options)
    notes = {"latency of a request": f"{options.latency_ms} ms", "repeats": options.repeats}
    return Report("quorum", figures, notes)


def _figures(name: str, root: str, options: argparse.Namespace) -> Iterator[Figure]:
    cluster = Cluster(root)
    cluster.image()
    numbers = iter(range(1_000_000))

    def put() -> None:
        cluster.store.put_if_absent(f"bench/{name}-{next(numbers)}", b"x" * 100)

    def change() -> None:
        cluster.producer_ids._take_block()

    admin = Admin(root)

    def commit() -> None:
        offsets = {TopicPartition("t", 0): OffsetAndMetadata(next(numbers))}
        admin.alter_group_offsets("g", offsets)

    for what, call in (("put", put), ("metadata change", change), ("offset commit", commit)):
        call()
        call()
        SlowStore.requests.clear()
        took_ms = []
        for _ in range(options.repeats):
            began_s = time.perf_counter()
            call()
            took_ms.append((time.perf_counter() - began_s) * 1000)
        requests = SlowStore.requests.total() / options.repeats
        yield Figure(f"{what}, {name}", median(took_ms), "ms")
        yield Figure(f"{what}, {name}: round trips", median(took_ms) / options.latency_ms)
        yield Figure(f"{what}, {name}: requests", requests)
    admin.close()


if __name__ == "__main__":
    raise SystemExit(main())
