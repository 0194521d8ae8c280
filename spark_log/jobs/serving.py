"""Gateways in Spark tasks, which the driver starts, watches and ends."""

from __future__ import annotations

import hmac
import json
import logging
import secrets
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

from pyspark import InheritableThread, SparkContext
from pyspark.sql import SparkSession

from spark_log.jobs.task import GatewayTask
from spark_log.threads import in_new_thread

_log = logging.getLogger(__name__)

_MAX_LINE_BYTES: Final = 4_096
_HELLO_TIMEOUT_S: Final = 10.0
_FIRST_PAUSE_S: Final = 1.0
_MAX_PAUSE_S: Final = 30.0

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


class GatewayTasks:
    """A number of gateways, each of which is the only task of a Spark job.

    A job of its own, and not a task of one barrier stage: a stage is repeated as a whole when an
    executor is lost, and would end the gateways of all others (docs/adr/0061). A gateway whose
    executor is lost starts in another one; so does one that fails.

    Each task is connected with this process. To close the connection ends the gateway, which
    answers the requests that it has received, and then its task.
    """

    def __init__(
        self,
        spark: SparkSession,
        new_task: NewTask,
        count: int,
        *,
        on_serving: Callable[[ServingGateway], None],
        on_failed: Callable[[int, Exception], None],
    ) -> None:
        """Wait for connections; no gateway is started before the block begins.

        Args:
            spark: the session.
            new_task: makes the task of each gateway.
            count: the number of gateways.
            on_serving: called, on another thread, with each gateway that serves.
            on_failed: called, on another thread, with the number of a gateway whose job failed, and
                the error. The gateway is started again.
        """
        self._spark = spark
        self._count = count
        self._on_serving = on_serving
        self._on_failed = on_failed
        conf = spark.sparkContext.getConf()
        host = conf.get("spark.driver.host", "127.0.0.1") or "127.0.0.1"
        self._listener = socket.create_server(
            (conf.get("spark.driver.bindAddress", host) or host, 0)
        )
        self._secret = secrets.token_hex(32)
        self._task = new_task((host, self._listener.getsockname()[1]), self._secret)
        self._lock = threading.Lock()
        self._connections: dict[int, socket.socket] = {}
        self._ending = threading.Event()
        self._jobs: list[InheritableThread] = []

    def __enter__(self) -> Self:
        in_new_thread(self._accept, name="gateway-tasks")
        for number in range(self._count):
            job = InheritableThread(target=self._run, args=(number,), name=f"gateway-{number}")
            job.start()
            self._jobs.append(job)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End all gateways, and wait until they have answered what they had received."""
        with self._lock:
            self._ending.set()
            connections = list(self._connections.values())
        for each in connections:
            _end(each)
        for job in self._jobs:
            job.join()
        _end(self._listener)

    def _run(self, number: int) -> None:
        """Run the job of one gateway, and run it again when it ends."""
        context = self._spark.sparkContext
        context.setJobDescription(f"gateway {number} of {self._count}: {self._task.root}")
        pause_s = _FIRST_PAUSE_S
        while not self._ending.is_set():
            try:
                context.parallelize([number], 1).foreach(self._task.serve)
                pause_s = _FIRST_PAUSE_S
            except Exception as error:
                if self._ending.is_set() or _is_stopped(context):
                    return
                _log.warning(
                    "the job of gateway %d failed; it is started again after %.0f s",
                    number,
                    pause_s,
                )
                self._on_failed(number, error)
                self._ending.wait(pause_s)
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
            try:
                connection.settimeout(_HELLO_TIMEOUT_S)
                hello = _document(lines.readline(_MAX_LINE_BYTES))
                if not hmac.compare_digest(str(hello["secret"]), self._secret):
                    return
                number = int(hello["number"])
                connection.settimeout(None)
                with self._lock:
                    # A task before it, whose executor was lost, may still be there.
                    before = self._connections.get(number)
                    self._connections[number] = connection
                    is_ending = self._ending.is_set()
                for each in (before, connection if is_ending else None):
                    if each is not None:
                        _end(each)
                while line := lines.readline(_MAX_LINE_BYTES):
                    found = _document(line)
                    self._on_serving(
                        ServingGateway(number, found["id"], found["host"], found["port"])
                    )
            except (OSError, ValueError, KeyError):
                _log.debug("the connection of a task ended", exc_info=True)


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
