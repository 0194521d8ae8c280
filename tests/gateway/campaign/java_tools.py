"""Clients of Java: the programs of Kafka's own system tests (kafka-tools), as processes.

They print what happens to them as JSON lines, which are read when they have ended.
"""

from __future__ import annotations

import json
import signal
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.kafka_broker import BROKER_ARTIFACTS, fetch_jars, find_java
from spark_log import TopicPartition
from spark_log.testing.history import Assign, Operation, Outcome, Poll, Polled, Send
from tests.gateway.campaign.client import (
    DELIVERY_TIMEOUT_MS,
    REQUEST_TIMEOUT_MS,
    SETTLE_S,
    Place,
)
from tests.gateway.campaign.members import SESSION_MS, MemberEvent
from tests.gateway.campaign.producers import TRANSACTION_TIMEOUT_MS
from tests.gateway.campaign.topics import COPIES, EVENTS, PARTITIONS

_TOOLS = "org.apache.kafka.tools"
_FLAGS = ("-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:CICompilerCount=1")
_LOG_LEVEL = "-Dorg.slf4j.simpleLogger.defaultLogLevel=info"

_COMMON = {
    "request.timeout.ms": REQUEST_TIMEOUT_MS,
    "metadata.max.age.ms": 2000,
    "metadata.recovery.rebootstrap.trigger.ms": 5000,
    "reconnect.backoff.max.ms": 500,
}


@cache
def _class_path() -> str:
    return str(fetch_jars("libs", BROKER_ARTIFACTS) / "*")


class JavaTool:
    """One process of a program of kafka-tools.

    Attributes:
        name: the name of the client.
        failures: what must not happen to it, and did.
        stops: how often it was stopped, and has not been continued.
    """

    program: str

    def __init__(self, place: Place, name: str) -> None:
        self.place = place
        self.name = name
        self.failures: list[str] = []
        self.stops = 0
        self.was_struck = False
        self.output = place.notes / f"{name}.json"
        self._log = place.notes / f"{name}.log"
        self._process: subprocess.Popen[bytes]

    def start(self) -> JavaTool:
        command = [find_java(), *_FLAGS, _LOG_LEVEL, "-cp", _class_path()]
        with self.output.open("wb") as output, self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, f"{_TOOLS}.{self.program}", *map(str, self.arguments())],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=log,
            )
        return self

    def arguments(self) -> list[Any]:
        """Return the arguments of the program."""
        raise NotImplementedError

    def operations(self) -> list[Operation]:
        """Return the history of the client."""
        return []

    def events(self) -> list[MemberEvent]:
        """Return what happened to the member of a group."""
        return []

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def status(self) -> int | None:
        return self._process.poll()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        self.was_struck = True
        self.stops += 1
        if self.is_alive:
            self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.stops -= 1
        if not self.stops and self.is_alive:
            self._process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """Let it finish, without waiting for it."""
        if self.is_alive:
            self._process.terminate()

    def join(self, timeout_s: float = SETTLE_S) -> None:
        self.end()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.failures.append(f"it did not end within {timeout_s} s")
            self.kill()

    def last_log_lines(self, count: int = 12) -> str:
        """Return the end of its log."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-count:])

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield the objects that it printed."""
        with self.output.open(errors="replace") as lines:
            for line in lines:
                try:
                    found = json.loads(line)
                except ValueError:
                    continue  # it was killed while it printed this
                if isinstance(found, dict):
                    yield found

    def config(self, **settings: Any) -> Path:
        """Return the path of a properties file with these settings and those of all."""
        path = self.place.notes / f"{self.name}.properties"
        more = {key.replace("_", "."): value for key, value in settings.items()}
        lines = (f"{key}={value}\n" for key, value in (_COMMON | more).items())
        path.write_text("".join(lines))
        return path


class JavaProducer(JavaTool):
    """``VerifiableProducer``, idempotent. Its values are ``<name>.<number>``."""

    program = "VerifiableProducer"

    def arguments(self) -> list[Any]:
        config = self.config(
            client_id=self.name,
            enable_idempotence="true",
            retries=2**31 - 1,
            delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
            max_block_ms=DELIVERY_TIMEOUT_MS,
            linger_ms=2,
        )
        return [
            *("--bootstrap-server", self.place.bootstrap, "--topic", EVENTS),
            *("--throughput", int(self.place.rate), "--value-prefix", self.prefix),
            *("--producer.config", config),
            *("--repeating-keys", 64),  # otherwise it keeps to one partition for long
        ]

    @property
    def has_begun(self) -> bool:
        """Whether records were acknowledged in all partitions."""
        found = {line["partition"] for line in self.lines() if "partition" in line}
        return len(found) == PARTITIONS[EVENTS]

    @property
    def prefix(self) -> str:
        return "".join(each for each in self.name if each.isdigit()) or "0"

    def operations(self) -> list[Operation]:
        found = []
        for line in self.lines():
            if line.get("name") == "producer_send_error":
                failure = f"not delivered: {line['message']}"
                if failure not in self.failures:
                    self.failures.append(failure)
            if line.get("name") == "producer_send_success":
                partition = TopicPartition(line["topic"], line["partition"])
                send = Send(partition, line["value"], line["offset"])
                number = int(line["value"].partition(".")[2])
                found.append(Operation(self.name, number, [send], Outcome.COMMITTED))
        return sorted(found, key=lambda each: each.number)  # the order of the calls of send


class JavaMember(JavaTool):
    """``VerifiableConsumer``, which commits after each poll."""

    program = "VerifiableConsumer"

    def __init__(self, place: Place, name: str, group: str, protocol: str) -> None:
        super().__init__(place, name)
        self.group = group
        self._protocol = protocol

    def arguments(self) -> list[Any]:
        settings: dict[str, Any] = {"client_id": self.name, "isolation_level": "read_committed"}
        classic: list[Any] = []
        if self._protocol == "classic":
            settings["heartbeat_interval_ms"] = 500
            classic = ["--session-timeout", SESSION_MS]
        return [
            *("--bootstrap-server", self.place.bootstrap, "--topic", EVENTS),
            *("--group-id", self.group, "--group-protocol", self._protocol, *classic),
            *("--verbose", "--consumer.config", self.config(**settings)),
        ]

    def operations(self) -> list[Operation]:
        found: list[Operation] = []

        def add(action: Poll | Assign) -> None:
            found.append(Operation(self.name, len(found), [action], Outcome.COMMITTED))

        for kind, line in self._events():
            if kind == "assigned":
                add(Assign([(each, None) for each in _partitions(line)]))
            elif kind == "polled":
                add(Poll([_polled(each) for each in line["records"]]))
        return found

    def events(self) -> list[MemberEvent]:
        found = []
        for kind, line in self._events():
            at_s = line["timestamp"] / 1000
            offsets: dict[TopicPartition, int] = {}
            ends: dict[TopicPartition, int] = {}
            if kind == "polled":
                records = [_polled(each) for each in line["records"]]
                offsets = {each.topic_partition: each.offset for each in reversed(records)}
                ends = {each.topic_partition: each.offset + 1 for each in records}
            elif kind == "committed":
                if not line["success"]:
                    continue
                offsets = {
                    TopicPartition(each["topic"], each["partition"]): each["offset"]
                    for each in line["offsets"]
                }
            else:
                offsets = dict.fromkeys(_partitions(line), -1)
            found.append(MemberEvent(self.group, self.name, kind, at_s, at_s, offsets, ends))
        return found

    def _events(self) -> Iterator[tuple[Any, dict[str, Any]]]:
        """Yield the kind and the line of each event; the records of a poll are together."""
        records: list[dict[str, Any]] = []
        for line in self.lines():
            kind = line.get("name")
            if kind == "record_data":
                records.append(line)
                continue
            if records:  # also those of a process that was killed before it printed their sum
                yield "polled", {"timestamp": records[-1]["timestamp"], "records": records}
                records = []
            if kind == "partitions_assigned":
                yield "assigned", line
            elif kind == "partitions_revoked":
                yield "lost", line  # it does not tell which of both it is
            elif kind == "offsets_committed":
                yield "committed", line
        if records:
            yield "polled", {"timestamp": records[-1]["timestamp"], "records": records}


def _partitions(line: dict[str, Any]) -> list[TopicPartition]:
    return [TopicPartition(each["topic"], each["partition"]) for each in line["partitions"]]


def _polled(line: dict[str, Any]) -> Polled:
    partition = TopicPartition(line["topic"], line["partition"])
    return Polled(partition, line["offset"], line["value"])


class JavaCopier(JavaTool):
    """``TransactionalMessageCopier``: a member of a group that copies by transactions.

    It sends the offsets of what it has read with each transaction, and aborts some of them.
    """

    program = "TransactionalMessageCopier"

    def __init__(self, place: Place, name: str, group: str, transactional_id: str) -> None:
        super().__init__(place, name)
        self.group = group
        self.transactional_id = transactional_id

    def arguments(self) -> list[Any]:
        return [
            *("--broker-list", self.place.bootstrap, "--consumer-group", self.group),
            *("--input-topic", EVENTS, "--input-partition", -1, "--output-topic", COPIES),
            *("--transactional-id", self.transactional_id, "--transaction-size", 400),
            *("--transaction-timeout", TRANSACTION_TIMEOUT_MS),
            *("--enable-random-aborts", "--group-mode", "--use-group-metadata"),
        ]

    def stages(self) -> Counter[str]:
        """Return how often it printed each stage: about one for each transaction."""
        return Counter(line.get("stage", "") for line in self.lines())


def lost_sends(
    producer: JavaProducer, acknowledged: list[Operation], values: dict[TopicPartition, list[str]]
) -> list[Operation]:
    """Return the sends of a producer that are in the log without an acknowledgement.

    Args:
        producer: the producer.
        acknowledged: its acknowledged sends.
        values: the values of each partition of its topic, in order.
    """
    known = {each.actions[0].value for each in acknowledged if isinstance(each.actions[0], Send)}
    found: dict[str, list[TopicPartition]] = defaultdict(list)
    for partition, those in values.items():
        for value in those:
            if value.partition(".")[0] == producer.prefix and value not in known:
                found[value].append(partition)
    return [
        Operation(
            producer.name, int(value.partition(".")[2]), [Send(where[0], value)], Outcome.UNKNOWN
        )
        for value, where in found.items()
    ]
