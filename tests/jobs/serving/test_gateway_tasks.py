"""The driver's side of gateways in tasks, with a context that runs them on threads."""

import json
import socket
import threading
from collections import deque
from types import SimpleNamespace
from typing import Any, cast

import pytest

from spark_log.jobs.serving import GatewayTasks
from spark_log.util.clock import ManualClock
from tests.waiting import wait_until


class Executors:
    """As much of a SparkContext as `GatewayTasks` uses, with a number of cores."""

    def __init__(self, cores):
        self._cores = threading.Semaphore(cores)
        self._local = threading.local()
        self._cancelled = set()
        self._jsc = SimpleNamespace(sc=lambda: self)
        self.waiting = 0

    def getConf(self):  # noqa: N802
        return {}

    def isStopped(self):  # noqa: N802
        return False

    def setJobGroup(self, group, description):  # noqa: N802
        self._local.group = group

    def cancelJobGroupAndFutureJobs(self, group):  # noqa: N802
        self._cancelled.add(group)

    def parallelize(self, numbers, slices):
        assert slices == 1
        return SimpleNamespace(foreach=lambda call: self._run(call, *numbers))

    def _run(self, call, number):
        self.waiting += 1
        has_core = False
        while not has_core and self._local.group not in self._cancelled:
            has_core = self._cores.acquire(timeout=0.01)
        self.waiting -= 1
        try:
            if self._local.group in self._cancelled:
                raise RuntimeError("cancelled")
            call(number)
        finally:
            if has_core:
                self._cores.release()


class Task:
    """A task without a gateway, which tells the loads that a test has for it."""

    root = "memory://"

    def __init__(self, driver, secret):
        self._driver = driver
        self._secret = secret
        self.loads: dict[int, deque[float]] = {number: deque() for number in range(5)}
        self.drained = []

    def serve(self, number):
        with socket.create_connection(self._driver) as driver, driver.makefile("w") as lines:

            def tell(document):
                lines.write(json.dumps(document) + "\n")
                lines.flush()

            tell({"number": number, "secret": self._secret})
            tell({"id": 1001 + number, "host": "h", "port": 1})
            for load in self.loads[number]:
                tell({"load": load, "connections": 2, "bytes": 30})
            assert not driver.recv(1)
        self.drained.append(number)


@pytest.fixture
def world():
    tasks = []

    def new_task(driver, secret):
        tasks.append(Task(driver, secret))
        return tasks[0]

    def serving(cores, count, clock=None):
        executors = Executors(cores)
        found = GatewayTasks(
            cast(Any, SimpleNamespace(sparkContext=executors)),
            cast(Any, new_task),
            count,
            on_serving=lambda gateway: served.append(gateway.number),
            on_failed=lambda number, error: failed.append((number, error)),
            clock=clock or ManualClock(),
        )
        return found, tasks[0], executors

    served: list[int] = []
    failed: list[tuple[int, Exception]] = []
    yield SimpleNamespace(start=serving, served=served)
    assert not failed


def until(condition):
    wait_until(condition, "the gateways are not as expected", timeout_s=20)


def test_gateways_start_and_the_newest_drain(world):
    gateways, task, _ = world.start(3, 1)
    with gateways:
        until(lambda: world.served == [0])
        gateways.resize(3)
        until(lambda: sorted(world.served) == [0, 1, 2])
        gateways.resize(1)
        until(lambda: sorted(task.drained) == [1, 2])
        gateways.resize(2)
        until(lambda: sorted(world.served) == [0, 1, 1, 2])
    assert sorted(task.drained) == [0, 1, 1, 2]


def test_a_gateway_without_an_executor_is_given_up(world):
    gateways, task, executors = world.start(1, 2)
    with gateways:
        until(lambda: world.served and executors.waiting == 1)
        gateways.resize(1)
        until(lambda: executors.waiting == 0)
    assert len(world.served) == len(task.drained) == 1


def test_the_end_of_the_job_waits_for_no_executor(world):
    gateways, task, executors = world.start(1, 3)
    with gateways:
        until(lambda: world.served and executors.waiting == 2)
    assert len(task.drained) == 1


def test_only_gateways_that_told_their_load_lately_serve(world):
    clock = ManualClock()
    gateways, task, _ = world.start(2, 2, clock)
    task.loads[0].append(0.5)
    with gateways:
        until(lambda: sorted(world.served) == [0, 1] and gateways.loads().loads)
        assert gateways.loads().loads == {0: 0.5}
        families = {each.definition.name: list(each.samples) for each in gateways.families()}
        assert families == {
            "spark_log_serve_gateways_wanted": [((), 2)],
            "spark_log_serve_gateways": [((), 1)],
            "spark_log_serve_gateway_load": [(("0",), 0.5)],
            "spark_log_serve_gateway_connections": [(("0",), 2)],
            "spark_log_serve_gateway_bytes_total": [(("0",), 30)],
        }
        clock.advance_ms(10_001)
        assert not gateways.loads().loads


def test_a_connection_without_the_secret_is_closed(world):
    gateways, _, _ = world.start(0, 1)
    with gateways, socket.create_connection(gateways._task._driver) as stranger:  # noqa: SLF001
        stranger.sendall(json.dumps({"number": 0, "secret": "guessed"}).encode() + b"\n")
        assert not stranger.recv(1)
