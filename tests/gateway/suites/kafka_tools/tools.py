"""`Tools`: Kafka's tools at one server, and the transcript of what they wrote."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.kafka_broker import find_java
from tests.gateway.suites.kafka_tools.tool_runner import (
    CLASSES,
    JVM_FLAGS,
    LOG_FLAG,
    ToolResult,
    class_path,
)

_ATTEMPTS = 200
_KEY = "NYC"
"""A key whose partition is 0 in topics of up to four partitions."""

_MESSAGE = re.compile(r"org\.apache\.kafka\.common\.(?:errors\.)?(\w+Exception): (.+)")
"""An error of a server: its class and its message, which tools write in several places."""

_BY_NATURE: tuple[tuple[str, str], ...] = (
    (r"^Option [ (*=)a-z]*Description *\n(.|\n)*", ""),  # the usage
    (r"^\s+(at [\w.$/]+[.<].*|\.\.\. \d+ more)\n", ""),  # Java's stack
    (r"\b\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d[.,:]\d{3}Z?", "DATE"),
    (r"\b1[6-9]\d{11}\b", "TIME"),
    (r"\b(\S+-client|one)-([\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}|[\w-]{22})(?![\w-])", "MEMBER"),
    (r"[\w-]{22}( +/HOST)", r"ID\1"),  # of a member by the consumer protocol
    (r"(TopicId: |--topic-id )[\w-]{22}", r"\1ID"),
    (r"(kafka\.common\.(errors\.)?\w+Exception): *(<message of \w+>)?$", r"\1"),
    (r"\b(console-consumer|adminclient)-\d+", r"\1-0"),
    (r"[ \t]+", " "),  # columns are as wide as what they hold
    (r" $", ""),
)
"""Patterns of what differs between servers and runs, and the text shown in its place."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command that was run, and what it wrote after normalisation.

    Attributes:
        line: the command.
        status: its exit status.
        output: its lines on stdout.
        errors: its lines on stderr.
    """

    line: str
    status: int
    output: tuple[str, ...]
    errors: tuple[str, ...]

    def __str__(self) -> str:
        marked = (*self.output, *(f"! {each}" for each in self.errors))
        return "\n".join((f"$ {self.line}", *marked, f"status {self.status}"))


class Tools:
    """Kafka's tools at one server.

    Attributes:
        bootstrap: the server's address.
        prefix: what names of topics and groups begin with, so that scenarios do not meet.
        transcript: the commands that were run.
        folder: a folder for files.
    """

    def __init__(
        self,
        bootstrap: str,
        run_tool: Callable[[str, tuple[str, ...], str], ToolResult],
        folder: Path,
        prefix: str,
    ) -> None:
        self.bootstrap = bootstrap
        self.prefix = prefix
        self.transcript: list[Command] = []
        self.folder = folder
        self._run_tool = run_tool

    def run(
        self,
        tool: str,
        *arguments: object,
        given: str = "",
        status: int = 0,
        says: str = "",
        only: str = "",
        is_sorted: bool = False,
        hidden: Sequence[tuple[str, str]] = (),
        is_apart: bool = False,
    ) -> str:
        """Run a tool, note what it wrote, and return what it wrote to stdout.

        Args:
            tool: its name.
            arguments: its arguments; the server's address is added.
            given: its stdin.
            status: the exit status that is expected.
            says: what is expected on stdout or stderr: many tools end with status 0 after an error.
            only: note only lines in which this regular expression is found.
            is_sorted: whether to sort the lines, whose order is not defined.
            hidden: regular expressions of what differs by its nature, and what is noted instead.
            is_apart: whether it needs a JVM of its own: some tools write when their JVM ends.
        """
        return self.until(
            None,
            tool,
            *arguments,
            given=given,
            status=status,
            says=says,
            only=only,
            is_sorted=is_sorted,
            hidden=hidden,
            is_apart=is_apart,
        )

    def until(
        self,
        is_there: Callable[[str], bool] | None,
        tool: str,
        *arguments: object,
        given: str = "",
        status: int = 0,
        says: str = "",
        only: str = "",
        is_sorted: bool = False,
        hidden: Sequence[tuple[str, str]] = (),
        is_apart: bool = False,
    ) -> str:
        """Run a tool until its stdout fits; takes the arguments of `run` besides."""
        texts = self._with_address(tool, arguments)
        for _ in range(_ATTEMPTS):
            result = (
                self._run_apart(tool, texts)
                if is_apart
                else self._run_tool(CLASSES[tool], texts, given)
            )
            if is_there is None or is_there(result.stdout):
                break
        line = self._normalised(" ".join((tool, *texts)), ())
        messages = [
            (re.escape(message), f"<message of {kind}>")
            for kind, message in _MESSAGE.findall(result.stdout + result.stderr)
        ]

        def noted(text: str) -> tuple[str, ...]:
            lines = [each for each in text.splitlines(keepends=True) if re.search(only, each)]
            found = self._normalised("".join(lines), (*messages, *hidden)).splitlines()
            return tuple(sorted(found) if is_sorted else found)

        command = Command(line, result.status, noted(result.stdout), noted(result.stderr))
        self.transcript.append(command)
        expected = is_there is None or is_there(result.stdout)
        assert expected, f"{_ATTEMPTS} times\n{command}"
        assert result.status == status, f"expected status {status}\n{command}"
        assert says in result.stdout + result.stderr, f"expected {says!r}\n{command}"
        return result.stdout

    @contextmanager
    def running(self, tool: str, *arguments: object) -> Iterator[RunningTool]:
        """Run a tool beside others, in a JVM of its own; it is terminated at the end."""
        log = self.folder / f"{len(list(self.folder.iterdir()))}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*_command(tool), *self._with_address(tool, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        running = RunningTool(process, log)
        try:
            yield running
        finally:
            running.end()

    def topic(self, name: str = "a", partitions: int = 1, **configs: object) -> str:
        """Create a topic, and return its name."""
        topic = f"{self.prefix}-{name}"
        given = [f"--config={key.replace('_', '.')}={value}" for key, value in configs.items()]
        self.run("kafka-topics", "--create", "--topic", topic, "--partitions", partitions, *given)
        return topic

    def produce(self, topic: str, *values: str, timestamp_ms: int | None = None) -> None:
        """Produce records to partition 0; those with a timestamp are numbers, without a key."""
        if timestamp_ms is None:
            given = "".join(f"{_KEY}:{each}\n" for each in values)
            keyed = ("--property", "parse.key=true", "--property", "key.separator=:")
            self.run("kafka-console-producer", "--topic", topic, *keyed, given=given)
            return
        count = ("--max-messages", len(values), "--message-create-time", timestamp_ms)
        produced = ("--topic", topic, *count)
        self.run("kafka-verifiable-producer", *produced, only="nothing", is_apart=True)

    @contextmanager
    def transaction(self, topic: str, transactional_id: str) -> Iterator[None]:
        """Run a producer for the block that has a transaction open; it is killed at the end."""
        transaction = ("--transactional-id", transactional_id, "--transaction-duration-ms", 600000)
        records = ("--num-records", 600, "--throughput", 1, "--record-size", 10)
        options = ("--topic", topic, *records, *transaction)
        with self.running("kafka-producer-perf-test", *options) as producer:
            try:
                yield
            finally:
                producer.end(signal.SIGKILL)

    def note(self, what: str, text: str) -> None:
        """Add lines to the transcript that a command has not written, like those of a file."""
        self.transcript.append(Command(what, 0, tuple(self._normalised(text, ()).splitlines()), ()))

    def file(self, name: str, text: str) -> Path:
        """Write a file, and return its path."""
        path = self.folder / name
        path.write_text(text)
        return path

    def _run_apart(self, tool: str, arguments: Sequence[str]) -> ToolResult:
        command = [*_command(tool), *arguments]
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,  # its status is part of the result
        )
        return ToolResult(done.returncode, done.stdout, done.stderr)

    def _with_address(self, tool: str, arguments: Sequence[object]) -> tuple[str, ...]:
        texts = tuple(map(str, arguments))
        match tool:
            case "kafka-cluster":  # an option of its commands
                return (*texts, "--bootstrap-server", self.bootstrap)
            case "kafka-producer-perf-test":
                return ("--producer-props", f"bootstrap.servers={self.bootstrap}", *texts)
            case "kafka-replica-verification" | "transactional-message-copier":
                return ("--broker-list", self.bootstrap, *texts)
            case "kafka-e2e-latency":
                return (self.bootstrap, *texts)
        return ("--bootstrap-server", self.bootstrap, *texts)

    def _normalised(self, text: str, hidden: Sequence[tuple[str, str]]) -> str:
        host, port = self.bootstrap.split(":")
        for pattern, shown in hidden:
            text = re.sub(pattern, shown, text, flags=re.MULTILINE)
        text = text.replace(str(self.folder), "FOLDER").replace(self.bootstrap, "ADDRESS")
        text = re.sub(rf"\b{port}\b", "PORT", text).replace(host, "HOST")
        for pattern, shown in _BY_NATURE:
            text = re.sub(pattern, shown, text, flags=re.MULTILINE)
        return text


def _command(tool: str) -> list[str]:
    return [find_java(), *JVM_FLAGS, LOG_FLAG, "-cp", class_path(), CLASSES[tool]]


class RunningTool:
    """A tool in a JVM of its own.

    Attributes:
        log: the file with what it writes.
    """

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.log = log
        self._process = process

    def wait_for(self, text: str) -> str:
        """Wait until a text is in its output; return the output.

        Raises:
            AssertionError: The tool ended before, or took more than three minutes.
        """
        return self._wait(lambda: text in self.log.read_text(), text)

    def end(self, how: int = signal.SIGTERM) -> None:
        """End it, and wait until it has ended."""
        if self._process.poll() is None:
            self._process.send_signal(how)
        self._process.wait(180)

    def join(self) -> int:
        """Wait until it ends by itself; return its exit status."""
        return self._process.wait(120)

    def _wait(self, is_there: Callable[[], bool], what: str) -> str:
        for _ in range(1800):
            if is_there():
                return self.log.read_text()
            try:
                self._process.wait(0.1)
            except subprocess.TimeoutExpired:
                continue
            break
        text = self.log.read_text()
        assert what in text, f"{what!r} is not in\n{text}"
        return text
