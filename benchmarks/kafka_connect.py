"""Kafka Connect and MirrorMaker 2, from Maven: their workers as processes, and their REST API."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Self, TypeVar

from benchmarks.java_program import JavaProgram
from benchmarks.kafka_broker import KAFKA_VERSION, fetch_jars

_T = TypeVar("_T")

CONNECT_ARTIFACTS = (
    *(
        f"org.apache.kafka:connect-{name}:{KAFKA_VERSION}"
        for name in ("runtime", "file", "json", "transforms", "mirror")
    ),
    "org.slf4j:slf4j-simple:1.7.36",
)
PATIENCE_S = 300.0
"""Time that a worker may take for anything on a busy machine."""

_CLOSE_S = 30.0
_CONFLICTS = (404, 409, 500, 503)
_FLAGS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")


@cache
def connect_jars() -> Path:
    """Return the folder with the jars of Kafka Connect and of the connectors that Kafka has."""
    return fetch_jars("connect", CONNECT_ARTIFACTS)


def properties(settings: Mapping[str, object]) -> str:
    """Return the text of a properties file."""
    return "".join(f"{name}={value}\n" for name, value in settings.items())


class ConnectProcess(JavaProgram):
    """A process of Kafka Connect, which ends with the block.

    Args:
        folder: an existing folder for its files and its log.
        name: the name of the process, and of its files.
        program: a class in ``org.apache.kafka.connect``.
        texts: the properties files that are its arguments.
        options: options of the JVM.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        program: str,
        texts: Sequence[str],
        options: Sequence[str] = _FLAGS,
    ) -> None:
        files = [folder / f"{name}-{number}.properties" for number in range(len(texts))]
        for path, text in zip(files, texts, strict=True):
            path.write_text(text)
        super().__init__(
            folder / f"{name}.log",
            f"{connect_jars()}/*",
            f"org.apache.kafka.connect.{program}",
            *files,
            flags=options,
            folder=folder,
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.is_alive:
            self.close(_CLOSE_S)

    def pause(self) -> None:
        """Let it stand still (SIGSTOP)."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it run again (SIGCONT)."""
        os.kill(self.pid, signal.SIGCONT)

    def last_log_lines(self, count: int = 20) -> str:
        """Return the end of its log."""
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-count:])


class RestError(Exception):
    """A request that a worker has refused.

    Attributes:
        status: the HTTP status.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class DistributedWorker(ConnectProcess):
    """A worker that shares its work with others of its group.

    Attributes:
        address: the address of its REST API, which is also its name in the group.

    Args:
        folder: an existing folder for its files.
        name: the name of the process.
        bootstrap_servers: the gateways or brokers.
        port: a free port of 127.0.0.1 for its REST API.
        settings: its settings, in addition to those of `worker_settings`.
        options: options of the JVM.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        bootstrap_servers: str,
        port: int,
        settings: Mapping[str, object] | None = None,
        options: Sequence[str] = _FLAGS,
    ) -> None:
        self.address = f"127.0.0.1:{port}"
        text = properties(worker_settings(bootstrap_servers, port) | dict(settings or {}))
        super().__init__(folder, name, "cli.ConnectDistributed", [text], options)

    def __enter__(self) -> Self:
        super().__enter__()
        self.wait_until_ready()
        return self

    def wait_until_ready(self) -> None:
        """Wait until it has joined its group and knows the connectors.

        Raises:
            TimeoutError: It has not.
        """

        def answers() -> bool:
            try:
                return isinstance(self.request("GET", "/connectors"), list)
            except (OSError, RestError):
                return False

        self.wait_for(answers, "the worker is not ready")

    def request(self, method: str, path: str, body: object = None) -> Any:
        """Return the answer of its REST API.

        Raises:
            RestError: It refuses the request.
            OSError: It does not listen.
        """
        request = urllib.request.Request(
            f"http://{self.address}{path}",
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=100) as response:
                text = response.read()
        except urllib.error.HTTPError as error:
            raise RestError(error.code, error.read().decode(errors="replace")) from None
        return json.loads(text) if text else None

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Return the answer of its REST API, if need be after the group's rebalance.

        Raises:
            TimeoutError: It has refused the request all the time.
        """
        refusals: list[object] = []

        def asked() -> tuple[Any] | None:
            try:
                return (self.request(method, path, body),)
            except RestError as error:
                if error.status not in _CONFLICTS:
                    raise
                refusals.append(error)
            except OSError as error:
                refusals.append(error)
            return None

        answer = self.wait_for(asked, lambda: f"{method} {path}: {refusals[-1]}")
        assert answer is not None
        return answer[0]

    def put(self, connector: str, config: Mapping[str, object]) -> None:
        """Create a connector, or give it another config."""
        texts = {name: str(value) for name, value in config.items()}
        self.ask("PUT", f"/connectors/{connector}/config", texts)

    def states(self, connector: str) -> list[str]:
        """Return the states of a connector and of its tasks; none if it is unknown yet."""
        try:
            status = self.request("GET", f"/connectors/{connector}/status")
        except (OSError, RestError):
            return []
        return [status["connector"]["state"], *(each["state"] for each in status["tasks"])]

    def owners(self, connector: str) -> set[str]:
        """Return the addresses of the workers that run the tasks of a connector."""
        try:
            status = self.request("GET", f"/connectors/{connector}/status")
        except (OSError, RestError):
            return set()
        return {each["worker_id"] for each in status["tasks"] if each["state"] == "RUNNING"}

    def wait_for_states(self, connector: str, *states: str) -> None:
        """Wait until a connector and its tasks have these states.

        Raises:
            TimeoutError: They have not.
        """
        self.wait_for(
            lambda: self.states(connector) == [*states],
            lambda: (
                f"{connector} is {self.states(connector)}, not {[*states]}: "
                f"{self.failures(connector)}"
            ),
        )

    def failures(self, connector: str) -> list[str]:
        """Return why a connector and tasks of it have failed."""
        try:
            status = self.request("GET", f"/connectors/{connector}/status")
        except (OSError, RestError) as error:
            return [str(error)]
        return [
            each["trace"] for each in (status["connector"], *status["tasks"]) if "trace" in each
        ]

    def wait_for(
        self,
        condition: Callable[[], _T],
        complaint: str | Callable[[], str],
        timeout_s: float = PATIENCE_S,
    ) -> _T:
        """Return the value of a condition when it is true.

        Args:
            condition: is called until it returns something true.
            complaint: the message of the error, or a function that returns it.
            timeout_s: the time until the error.

        Raises:
            TimeoutError: It does not become true, or the worker has ended.
        """
        deadline_s = time.monotonic() + timeout_s
        while not (found := condition()):
            if time.monotonic() > deadline_s or not self.is_alive:
                said = complaint if isinstance(complaint, str) else complaint()
                ended = "" if self.is_alive else " and the worker has ended"
                raise TimeoutError(f"{said}{ended}; its log ends:\n{self.last_log_lines()}")
            time.sleep(0.1)
        return found


def worker_settings(bootstrap_servers: str, port: int) -> dict[str, object]:
    """Return the settings of a distributed worker, with strings as keys and values of records.

    The tasks of a worker that is lost move to others after two seconds; Kafka's default is five
    minutes.
    """
    return {
        "bootstrap.servers": bootstrap_servers,
        "group.id": "workers",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        "config.storage.topic": "connect-configs",
        "offset.storage.topic": "connect-offsets",
        "status.storage.topic": "connect-status",
        "config.storage.replication.factor": 1,
        "offset.storage.replication.factor": 1,
        "status.storage.replication.factor": 1,
        "offset.storage.partitions": 2,
        "status.storage.partitions": 2,
        "offset.flush.interval.ms": 500,
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 1000,
        "scheduled.rebalance.max.delay.ms": 2000,
        "task.shutdown.graceful.timeout.ms": 5000,
        "listeners": f"http://127.0.0.1:{port}",
        "rest.advertised.host.name": "127.0.0.1",
        "rest.advertised.port": port,
        "plugin.discovery": "service_load",
    }
