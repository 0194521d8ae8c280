"""`Suite`: the tests of a client, and the gateways and programs that it runs."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import ClassVar

from benchmarks.kafka_broker import KafkaBroker
from tests.gateway.processes import gateway_processes


class Outcome(StrEnum):
    """The end of a test: passed, failed, or not applicable."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True, slots=True)
class TestResult:
    """The result of one test of a suite.

    Attributes:
        test: the test's name, as the suite has it.
        outcome: how it ended.
        reason: for a failure, what the test said; if it is not applicable, what it asks for that
            the log does not have. Empty if it passed.
    """

    __test__ = False  # pytest collects classes by this prefix

    test: str
    outcome: Outcome
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Gateways:
    """Gateways of one root that listen on 127.0.0.1.

    Attributes:
        root: the root's directory.
        addresses: host and port of each gateway.
        is_kafka: whether it is a real broker of Kafka in their place.
    """

    root: Path
    addresses: tuple[str, ...]
    is_kafka: bool = False

    @property
    def bootstrap_servers(self) -> str:
        """All addresses, as clients take them."""
        return ",".join(self.addresses)


@contextmanager
def running_gateways(
    root: Path,
    count: int = 1,
    settings: Mapping[str, str] | None = None,
    address: str | None = None,
) -> Iterator[Gateways]:
    """Run gateways for the block.

    Args:
        root: the directory of a root; it is created.
        count: the number of gateways.
        settings: the gateways' settings that are not the defaults. Gateways that ask for passwords
            or TLS need a root of their own: clients of the others would be sent to them, too.
        address: host and port of the first one; by default 127.0.0.1 and a free port.
    """
    with gateway_processes(str(root), count, settings or {}, address) as processes:
        yield Gateways(root, tuple(each.address for each in processes))


@contextmanager
def running_kafka(
    root: Path, address: str | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[Gateways]:
    """Run a real broker of Kafka in the place of gateways: it shows what a suite's tests expect.

    Args:
        root: a directory for its files.
        address: host and port that clients connect to; by default 127.0.0.1 and a free port.
        settings: the broker's settings that are not the defaults.
    """
    port = int(address.rpartition(":")[2]) if address else None
    listeners = {"advertised.listeners": f"PLAINTEXT://{address}"} if address else {}
    root.mkdir()
    with KafkaBroker(root, port=port, settings={**(settings or {}), **listeners}) as broker:
        yield Gateways(root, (address or broker.bootstrap_servers,), is_kafka=True)


class Suite(ABC):
    """A program that tests a client of Kafka against a broker.

    Attributes:
        name: the suite's name on the command line.
        client: the client that it tests, with its language.
        version: the version that is installed.
        tests_are_ours: whether the tests were written here, since the client has none that can run.
        time_limit_s: the time after which the suite is ended, as a failure.
        settings: settings of the gateways that are not the defaults.
        address: host and port of the first gateway, if the suite can have no other. Two runs of
            such a suite on one machine would meet.
        not_applicable: reasons by test. Such a test is not run. A reason is one sentence, and names
            what the log does not have by design; a fault of the gateway is a failure.
    """

    name: ClassVar[str]
    client: ClassVar[str]
    version: ClassVar[str]
    tests_are_ours: ClassVar[bool] = False
    time_limit_s: ClassVar[int] = 600
    settings: ClassVar[Mapping[str, str]] = {}
    address: ClassVar[str | None] = None
    not_applicable: ClassVar[Mapping[str, str]] = {}

    @abstractmethod
    def install(self, folder: Path) -> None:
        """Put what the suite needs into an empty folder of the user's cache.

        Packages come from their registries, by the ordinary clients.

        Raises:
            CalledProcessError: A command failed; its output is in the error.
        """

    @abstractmethod
    def run(
        self, folder: Path, gateways: Gateways, selected: Callable[[str], bool]
    ) -> Iterator[TestResult]:
        """Yield the result of each test as it ends.

        Args:
            folder: the folder that `install` has filled.
            gateways: the gateways to test, which listen.
            selected: whether a test, by its name, is to be run. Results of others are dropped, so
                a suite whose tests cannot be run one by one need not ask.
        """


class TimeLimitError(Exception):
    """A program has run longer than it may."""


def run_program(
    command: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    given: bytes | None = None,
    time_limit_s: float = 600,
) -> str:
    """Return what a program writes, to stdout and stderr together.

    Args:
        command: the program and its arguments.
        cwd: the folder that it runs in.
        env: environment variables to add to those of this process.
        given: its stdin.
        time_limit_s: the time after which it is killed.

    Raises:
        CalledProcessError: It ended with another status than 0.
        TimeLimitError: It ran longer than it may.
    """
    with _started(command, cwd, env, subprocess.PIPE, time_limit_s) as process:
        output, _ = process.communicate(given)
    text = output.decode(errors="replace")
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, [*map(str, command)], text)
    return text


def program_lines(
    command: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    time_limit_s: float = 600,
) -> Iterator[str]:
    """Yield the lines that a program writes, as they arrive; its exit status is not looked at.

    Takes the arguments of `run_program`.

    Raises:
        TimeLimitError: It ran longer than it may.
    """
    with _started(command, cwd, env, subprocess.DEVNULL, time_limit_s) as process:
        assert process.stdout is not None
        for line in process.stdout:
            yield line.decode(errors="replace").rstrip("\n")


@contextmanager
def _started(
    command: Sequence[str | Path],
    cwd: Path | None,
    env: Mapping[str, str] | None,
    stdin: int,
    time_limit_s: float,
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program; at the end of the block it has ended, with all that it has started."""
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    late = threading.Event()

    def end() -> None:
        late.set()
        _kill_session(process)

    timer = threading.Timer(time_limit_s, end)
    timer.start()
    try:
        yield process
        process.wait()
    finally:
        timer.cancel()
        _kill_session(process)
        process.wait()
    if late.is_set():
        raise TimeLimitError(f"{Path(command[0]).name} has not ended within {time_limit_s:g} s")


def _kill_session(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):  # all of it has ended
        os.killpg(process.pid, signal.SIGKILL)
