"""The requests of producers that send a little to many partitions of a stripe, in simulated time.

The producers are real ones, without threads. Each has its own handles, and each request lets the
others run: a put takes 40 ms and a read 20 ms on average. So they race for the stripe's numbers.
"""

import uuid
from collections import Counter
from functools import partial
from typing import Any

import pytest

from benchmarks.request_operations import OPERATIONS
from spark_log import Admin, NewTopic
from spark_log.cluster import cluster as cluster_module
from spark_log.storage import open_store
from tests.log.support import HookedStore
from tests.producer.support import ANY_TIME, by_hand
from tests.simulation.same_thread import SameThread
from tests.simulation.scheduler import Scheduler, SimulatedClock
from tests.storage.emptying import delete_everything

BUDGETS = {each.name: each.most for each in OPERATIONS}
LATENCY_MS = 20
WARM_UP_S, SECONDS = 4, 12
"""The count begins when all producers have found the topic, and met each other."""


class RemoteStore(HookedStore):
    """A store whose requests take simulated time, and are counted."""

    executor_class = SameThread

    def __init__(self, inner, scheduler, counts):
        super().__init__(inner, is_mapped=False)
        self._scheduler = scheduler
        self._counts = counts

    def _do(self, operation, path, call):
        if operation in ("stage", "sync"):
            return call()
        self._counts[operation] += 1
        is_put = operation.startswith("put")
        self._pass_time()
        try:
            return call()
        finally:
            if is_put:
                self._pass_time()

    def _pass_time(self):
        self._scheduler.pass_time(self._scheduler.random.uniform(0.5, 1.5) * LATENCY_MS)

    def is_gone(self, path):
        return False  # as an object store does, without a request


class World:
    """A topic with stripes on a store of simulated requests."""

    def __init__(self, monkeypatch, partitions, stripes, seed=1):
        self.scheduler = Scheduler(seed)
        self.clock = SimulatedClock(self.scheduler)
        self.counts: Counter[str] = Counter()
        self.partitions = partitions
        self.root = f"memory://{uuid.uuid4().hex}"
        settings = {**ANY_TIME, "stripes": stripes}
        Admin(self.root).create_topics([NewTopic("t", partitions, topic_configs=settings)])
        monkeypatch.setattr(
            cluster_module,
            "guarded_root",
            lambda store, _: RemoteStore(store, self.scheduler, self.counts),
        )
        self.acknowledged = 0

    def write(self, producer, until_ms):
        """Send a record to each partition once a second, and append what is ready."""
        scheduler = self.scheduler
        due_ms = scheduler.random.uniform(0, 1_000)
        sent: list[Any] = []
        while due_ms < until_ms:
            scheduler.pass_time(max(0.0, due_ms - scheduler.now_ms))
            sent = [each for each in sent if not self._is_acknowledged(each)]
            sent += [
                producer.send("t", b"x" * 100, partition=number)
                for number in range(self.partitions)
            ]
            due_ms += 1_000
            while scheduler.now_ms < due_ms:
                if not producer.run_once():
                    ready_ms = min(producer.next_ready_ms(), due_ms)
                    scheduler.pass_time(max(0.001, ready_ms - scheduler.now_ms))

    def _is_acknowledged(self, future):
        if not future.done():
            return False
        future.result(0)
        self.acknowledged += 1
        return True

    def run(self, writers):
        """Run producers; return the requests that they send in a second, by operation."""
        begin_ms = WARM_UP_S * 1_000
        end_ms = begin_ms + SECONDS * 1_000
        producers = [by_hand(self.root, self.clock, linger_ms=1_000) for _ in range(writers)]
        for number, producer in enumerate(producers):
            producer.partitions_for("t")  # the first send would, on a thread of its own
            write = partial(self.write, producer, end_ms + 2_000)
            self.scheduler.spawn(f"producer {number}", write, is_mortal=False)
        self.scheduler.run(lambda: self.scheduler.now_ms >= begin_ms)
        self.counts.clear()
        self.acknowledged = 0
        self.scheduler.run(lambda: self.scheduler.now_ms >= end_ms)
        counts, acknowledged = dict(self.counts), self.acknowledged
        self.scheduler.close()
        assert acknowledged >= 0.9 * SECONDS * writers * self.partitions, "all keep up"
        return Counter({operation: number / SECONDS for operation, number in counts.items()})


@pytest.fixture
def open_world(monkeypatch):
    worlds = []

    def open_world(partitions, stripes=1):
        worlds.append(World(monkeypatch, partitions, stripes))
        return worlds[-1]

    yield open_world
    for world in worlds:
        delete_everything(open_store(world.root))


@pytest.mark.parametrize(
    ("writers", "partitions", "puts", "operation"),
    [
        (1, 1_000, 2, "a record to each of 1000 partitions of a stripe, a second"),
        # A hundred partitions: what the writers race for is the stripe's next number, which they do
        # for any number of partitions, and 8,000 batches a second would only take longer.
        (8, 100, 12, "a record to each of 100 partitions of a stripe by 8 producers, a second"),
    ],
)
def test_a_record_to_each_partition_a_second_is_few_requests(
    open_world, writers, partitions, puts, operation
):
    found = open_world(partitions).run(writers)
    assert found["put_if_absent"] + found["put"] <= puts
    assert sum(found.values()) <= BUDGETS[operation]


@pytest.mark.parametrize("stripes", [2, 4])
def test_more_stripes_are_an_object_more_for_each(open_world, stripes):
    found = open_world(40, stripes).run(1)
    assert found["put_if_absent"] + found["put"] <= 2 * stripes
