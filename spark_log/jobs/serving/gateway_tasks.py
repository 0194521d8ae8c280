"""Gateways in Spark tasks, which the driver starts, watches and ends."""

from __future__ import annotations

import hmac
import json
import logging
import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

from pyspark import InheritableThread, SparkContext
from pyspark.sql import SparkSession

from spark_log.jobs.serving.scaling import GatewayLoads
from spark_log.jobs.task import GatewayTask
from spark_log.metrics import Family
from spark_log.metrics.definitions import (
    SERVE_BYTES,
    SERVE_CONNECTIONS,
    SERVE_GATEWAYS,
    SERVE_LOAD,
    SERVE_WANTED,
)
from spark_log.threads import in_new_thread
from spark_log.util import SYSTEM_CLOCK, Clock

_log = logging.getLogger(__name__)

_MAX_LINE_BYTES: Final = 4_096
_HELLO_TIMEOUT_S: Final = 10.0
_FIRST_PAUSE_S: Final = 1.0
_MAX_PAUSE_S: Final = 30.0
_MAX_REPORT_AGE_MS: Final = 10_000.0
"""Age of a gateway's last load after which it is not known to serve."""

NewTask = Callable[[tuple[str, int], str], GatewayTask]
"""Returns the task of a gateway, from the driver's address and the secret of its connections."""


@dataclass(frozen=True, slots=True)
class ServingGateway:
    """A gateway that serves.

    Attributes:
        number: its number among those of the job, from 0.
        gateway_id: its broker id.
        host: the host that clients connect to.
        port: the port that clients connect to.
    """

    number: int
    gateway_id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class _Report:
    """The facts that a gateway told of itself.

    Attributes:
        at_ms: when it arrived, by the driver's monotonic clock.
        load: the cores that the gateway uses.
        connections: its open connections.
        transferred_bytes: what it has received from clients, and sent to them.
    """

    at_ms: float
    load: float
    connections: int
    transferred_bytes: int


@dataclass(slots=True, eq=False)
class _Slot:
    """The place of one gateway: its job, and the connection of its task.

    Attributes:
        number: the gateway's number.
        job_group: the name by which Spark cancels the job.
        ending: set when the gateway is to end.
        is_started: whether a task of this slot may have been started.
        connection: the connection of the task; None while it has no executor.
        report: what the task told last.
        job: the thread that runs the job.
    """

    number: int
    job_group: str
    ending: threading.Event = field(default_factory=threading.Event)
    is_started: bool = False
    connection: socket.socket | None = None
    report: _Report | None = None
    job: InheritableThread | None = None


class GatewayTasks:
    """A number of gateways, each of which is the only task of a Spark job.

    A job of its own, and not a task of one barrier stage: a stage is repeated as a whole when an
    executor is lost, and would end the gateways of all others (docs/adr/0061). A gateway whose
    executor is lost starts in another one; so does one that fails.

    Each task is connected with this process, and tells its load each second. To close the
    connection ends the gateway, which answers the requests that it has received, and then its task.
    """

    def __init__(
        self,
        spark: SparkSession,
        new_task: NewTask,
        count: int,
        *,
        on_serving: Callable[[ServingGateway], None],
        on_failed: Callable[[int, Exception], None],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Wait for connections; no gateway is started before the block begins.

        Args:
            spark: the session.
            new_task: makes the task of each gateway.
            count: the number of gateways at the start.
            on_serving: called, on another thread, with each gateway that serves.
            on_failed: called, on another thread, with the number of a gateway whose job failed, and
                the error. The gateway is started again.
            clock: the driver's clock.
        """
        self._spark = spark
        self._count = count
        self._on_serving = on_serving
        self._on_failed = on_failed
        self._clock = clock
        conf = spark.sparkContext.getConf()
        host = conf.get("spark.driver.host", "127.0.0.1") or "127.0.0.1"
        self._listener = socket.create_server(
            (conf.get("spark.driver.bindAddress", host) or host, 0)
        )
        self._secret = secrets.token_hex(32)
        self._name = f"gateways-{secrets.token_hex(4)}"
        self._task = new_task((host, self._listener.getsockname()[1]), self._secret)
        self._lock = threading.Lock()
        self._slots: dict[int, _Slot] = {}
        self._ended: list[_Slot] = []

    def __enter__(self) -> Self:
        in_new_thread(self._accept, name="gateway-tasks")
        self.resize(self._count)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End all gateways, and wait until they have answered what they had received."""
        self.resize(0)
        for slot in self._ended:
            if slot.job is not None:
                slot.job.join()
        _end(self._listener)

    # --- how many --------------------------------------------------------------------------------

    def resize(self, count: int) -> None:
        """Start gateways, or end those with the largest numbers, without waiting for it.

        A gateway that ends leaves the registry, answers the requests that it has received, and then
        frees its core. One that waits for an executor is given up.

        Args:
            count: the number of gateways to have.
        """
        self._count = count
        for number in range(len(self._slots), count):
            self._start(number)
        for number in range(len(self._slots) - 1, count - 1, -1):
            self._end_slot(number)

    def loads(self) -> GatewayLoads:
        """Return the loads of the gateways that serve now."""
        now_ms = self._clock.monotonic_ms()
        return GatewayLoads(now_ms, {n: each.load for n, each in self._reports(now_ms).items()})

    def families(self) -> Iterator[Family]:
        """Yield the values of the metrics; any thread may call it."""
        found = self._reports(self._clock.monotonic_ms())
        labels = {number: (str(number),) for number in found}
        yield Family(SERVE_WANTED, [((), self._count)])
        yield Family(SERVE_GATEWAYS, [((), len(found))])
        yield Family(SERVE_LOAD, [(labels[n], each.load) for n, each in found.items()])
        yield Family(
            SERVE_CONNECTIONS, [(labels[n], each.connections) for n, each in found.items()]
        )
        yield Family(
            SERVE_BYTES, [(labels[n], each.transferred_bytes) for n, each in found.items()]
        )

    def _reports(self, now_ms: float) -> dict[int, _Report]:
        """Return what gateways told lately, by number."""
        with self._lock:
            found = {number: slot.report for number, slot in self._slots.items()}
        return {
            number: report
            for number, report in found.items()
            if report is not None and now_ms - report.at_ms <= _MAX_REPORT_AGE_MS
        }

    def _start(self, number: int) -> None:
        before = next((each for each in reversed(self._ended) if each.number == number), None)
        slot = _Slot(number, f"{self._name}-{number}")
        slot.job = InheritableThread(
            target=self._run, args=(slot, before), name=f"gateway-{number}"
        )
        with self._lock:
            self._slots[number] = slot
        slot.job.start()

    def _end_slot(self, number: int) -> None:
        with self._lock:
            slot = self._slots.pop(number)
            slot.ending.set()
            connection = slot.connection
        self._ended.append(slot)
        if connection is not None:
            _end(connection)
        elif not _is_stopped(self._spark.sparkContext):
            # Otherwise it would wait for an executor, perhaps for ever. The group's later jobs are
            # cancelled, too: its thread may be about to start one.
            context = self._spark.sparkContext
            context._jsc.sc().cancelJobGroupAndFutureJobs(slot.job_group)

    # --- jobs ------------------------------------------------------------------------------------

    def _run(self, slot: _Slot, before: _Slot | None) -> None:
        """Run the job of one gateway, and run it again when it ends.

        Args:
            slot: the gateway's place.
            before: the place of an earlier gateway of this number, which may still be ending.
        """
        if before is not None and before.job is not None:
            before.job.join()
        context = self._spark.sparkContext
        context.setJobGroup(slot.job_group, f"gateway {slot.number}: {self._task.root}")
        pause_s = _FIRST_PAUSE_S
        while True:
            with self._lock:
                if slot.ending.is_set():
                    return
                slot.is_started = True
            try:
                context.parallelize([slot.number], 1).foreach(self._task.serve)
                pause_s = _FIRST_PAUSE_S
            except Exception as error:
                if slot.ending.is_set() or _is_stopped(context):
                    return
                _log.warning(
                    "the job of gateway %d failed; it is started again after %.0f s",
                    slot.number,
                    pause_s,
                )
                self._on_failed(slot.number, error)
                slot.ending.wait(pause_s)
                pause_s = min(2 * pause_s, _MAX_PAUSE_S)

    # --- connections of tasks --------------------------------------------------------------------

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return  # closed
            in_new_thread(partial(self._listen, connection), name="gateway-task")

    def _listen(self, connection: socket.socket) -> None:
        """Read what a task tells, until its connection ends."""
        with connection, connection.makefile("rb") as lines:
            slot = None
            try:
                connection.settimeout(_HELLO_TIMEOUT_S)
                hello = _document(lines.readline(_MAX_LINE_BYTES))
                if not hmac.compare_digest(str(hello["secret"]), self._secret):
                    return
                slot = self._connected(int(hello["number"]), connection)
                if slot is None:
                    return
                connection.settimeout(None)
                while line := lines.readline(_MAX_LINE_BYTES):
                    self._take(slot, connection, _document(line))
            except (OSError, ValueError, KeyError):
                _log.debug("the connection of a task ended", exc_info=True)
            finally:
                if slot is not None:
                    self._disconnected(slot, connection)

    def _connected(self, number: int, connection: socket.socket) -> _Slot | None:
        """Return the place of a task that has connected; None if it is to end."""
        with self._lock:
            slot = self._slots.get(number)
            if slot is None or not slot.is_started:
                return None
            # A task before it, whose executor was lost, may still be there.
            before, slot.connection, slot.report = slot.connection, connection, None
        if before is not None:
            _end(before)
        return slot

    def _disconnected(self, slot: _Slot, connection: socket.socket) -> None:
        with self._lock:
            if slot.connection is connection:
                slot.connection, slot.report = None, None

    def _take(self, slot: _Slot, connection: socket.socket, found: dict[str, Any]) -> None:
        if "load" not in found:
            self._on_serving(ServingGateway(slot.number, found["id"], found["host"], found["port"]))
            return
        report = _Report(
            self._clock.monotonic_ms(),
            float(found["load"]),
            int(found["connections"]),
            int(found["bytes"]),
        )
        with self._lock:
            if slot.connection is connection:
                slot.report = report


def _is_stopped(context: SparkContext) -> bool:
    """Return whether the application has ended, as it does when its JVM gets a signal."""
    try:
        return bool(context._jsc.sc().isStopped())
    except Exception:
        _log.debug("the JVM does not answer", exc_info=True)
        return True


def _document(line: bytes) -> dict[str, Any]:
    document = json.loads(line)
    if not isinstance(document, dict):
        raise ValueError("not an object")
    return document


def _end(connection: socket.socket) -> None:
    """Close a socket under the thread that waits for it."""
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        _log.debug("a connection had ended already")
    finally:
        connection.close()
