"""The requests of producers that send a little to many partitions of a stripe, in simulated time.

``python -m tests.simulation.stripes.producers`` prints them, with their dollars a day, for the
situations of ADR 29; it takes minutes. The producers are real ones, without threads. Each has its
own handles, and each request lets the others run: a put takes 40 ms and a read 20 ms on average. So
they race for the stripe's numbers, however slow the machine is.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar
from unittest import mock

import typer

from spark_log import Admin, NewTopic
from spark_log.cluster import Cluster
from spark_log.cluster import cluster as cluster_module
from spark_log.storage import Store, open_store
from tests.log.support import HookedStore
from tests.producer.support import ANY_TIME, SteppedProducer, by_hand
from tests.simulation.same_thread import SameThread
from tests.simulation.scheduler import Scheduler, SimulatedClock
from tests.storage.emptying import delete_everything

LATENCY_MS = 20
WARM_UP_S, SECONDS = 4, 12
"""The count begins when all producers have found the topic, and met each other."""

_LINGER_MS = 1_000
_WRITE, _READ = 0.005 / 1_000, 0.0004 / 1_000
"""Dollars of a put or listing, and of a read."""

_DAY_S, _HOUR_S = 86_400, 3_600


class RemoteStore(HookedStore):
    """A store whose requests take simulated time, and are counted."""

    executor_class: ClassVar[type[SameThread]] = SameThread

    def __init__(self, inner: Store, scheduler: Scheduler, counts: Counter[str]) -> None:
        """Wrap a store; ``counts`` has the number of requests of each operation."""
        super().__init__(inner, is_mapped=False)
        self._scheduler = scheduler
        self._counts = counts

    def _do(self, operation: str, path: str, call: Callable[[], Any]) -> Any:
        if operation in ("stage", "sync"):
            return call()
        self._counts[operation] += 1
        self._pass_time()
        try:
            return call()
        finally:
            if operation.startswith("put"):
                self._pass_time()

    def _pass_time(self) -> None:
        self._scheduler.pass_time(self._scheduler.random.uniform(0.5, 1.5) * LATENCY_MS)

    def is_gone(self, path: str) -> bool:
        """Return False, without a request, as an object store does."""
        return False


class StripedProducers:
    """Producers of a new topic with stripes, each of which sends to each partition each second.

    Attributes:
        root: the URL of the root.
    """

    def __init__(self, partitions: int, stripes: int = 1, seed: int = 1) -> None:
        """Create the topic.

        Args:
            partitions: the number of its partitions.
            stripes: the number of its stripes.
            seed: determines every step.
        """
        self._scheduler = Scheduler(seed)
        self._clock = SimulatedClock(self._scheduler)
        self._counts: Counter[str] = Counter()
        self._partitions = partitions
        self._acknowledged = 0
        self.root = f"memory://{uuid.uuid4().hex}"
        settings = {**ANY_TIME, "stripes": stripes}
        Admin(self.root).create_topics([NewTopic("t", partitions, topic_configs=settings)])

    def count(self, producers: int) -> Counter[str]:
        """Run producers; return the requests that they send in a second, by operation."""
        scheduler = self._scheduler
        end_ms = (WARM_UP_S + SECONDS) * 1_000
        opened = self._open(lambda: by_hand(self.root, self._clock, linger_ms=_LINGER_MS))
        for number in range(producers):
            producer = opened()
            producer.partitions_for("t")  # the first send would, on a thread of its own
            send = partial(self._send, producer, end_ms + 2 * _LINGER_MS)
            scheduler.spawn(f"producer {number}", send, is_mortal=False)
        scheduler.run(lambda: scheduler.now_ms >= WARM_UP_S * 1_000)
        self._counts.clear()
        self._acknowledged = 0
        scheduler.run(lambda: scheduler.now_ms >= end_ms)
        counts, acknowledged = dict(self._counts), self._acknowledged
        scheduler.close()
        assert acknowledged >= 0.9 * SECONDS * producers * self._partitions, "they do not keep up"
        return Counter({operation: number / SECONDS for operation, number in counts.items()})

    def count_home(self) -> Counter[str]:
        """Take the topic home; return the requests of this."""
        cluster = self._open(lambda: Cluster(self.root, clock=self._clock))()
        self._counts.clear()
        for stripe in cluster.stripes(cluster.topic("t")):
            stripe.take_home()
        return Counter(self._counts)

    def delete(self) -> None:
        """Delete the root."""
        delete_everything(open_store(self.root))

    def _open(self, open_client: Callable[[], Any]) -> Callable[[], Any]:
        """Return a function that opens a client whose requests are counted."""

        def opened() -> Any:
            with mock.patch.object(
                cluster_module,
                "guarded_root",
                lambda store, _: RemoteStore(store, self._scheduler, self._counts),
            ):
                return open_client()

        return opened

    def _send(self, producer: SteppedProducer, until_ms: float) -> None:
        """Send a record to each partition once a second, and append what is ready."""
        scheduler = self._scheduler
        due_ms = scheduler.random.uniform(0, 1_000)
        sent: list[Any] = []
        while due_ms < until_ms:
            scheduler.pass_time(max(0.0, due_ms - scheduler.now_ms))
            sent = [each for each in sent if not self._is_acknowledged(each)]
            sent += [
                producer.send("t", b"x" * 100, partition=number)
                for number in range(self._partitions)
            ]
            due_ms += 1_000
            while scheduler.now_ms < due_ms:
                if not producer.run_once():
                    ready_ms = min(producer.next_ready_ms(), due_ms)
                    scheduler.pass_time(max(0.001, ready_ms - scheduler.now_ms))

    def _is_acknowledged(self, future: Any) -> bool:
        if not future.done():
            return False
        future.result(0)
        self._acknowledged += 1
        return True


def writes(counts: Counter[str]) -> float:
    """Return the number of requests that cost as much as a put."""
    return sum(number for name, number in counts.items() if name.startswith(("put", "list")))


def main() -> None:
    """Print the table."""
    typer.echo(
        "| producers | partitions | puts a second | reads a second | dollars a day: puts | reads | "
        "taking home each hour, a thousand partitions |"
    )
    typer.echo("|---:|---:|---:|---:|---:|---:|---:|")
    for producers, partitions in ((1, 1_000), (8, 100), (8, 1_000)):
        found = StripedProducers(partitions)
        counts = found.count(producers)
        home = found.count_home()
        found.delete()
        puts = writes(counts)
        reads = sum(counts.values()) - puts
        home_puts = writes(home) * 1_000 / partitions
        objects = puts * _HOUR_S  # taking home reads each object once
        home_dollars = 24 * (home_puts * _WRITE + objects * _READ)
        typer.echo(
            f"| {producers} | {partitions} | {puts:.2f} | {reads:.2f} | "
            f"{puts * _WRITE * _DAY_S:.2f} | {reads * _READ * _DAY_S:.2f} | {home_dollars:.2f} | "
        )
        typer.echo(f"taken home by {dict(home)}")


if __name__ == "__main__":
    main()
