"""`ToolRunner`: Kafka's tools in a JVM that starts once."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.kafka_broker import BROKER_ARTIFACTS, fetch_jars, find_java
from tests.gateway.suites.suite import run_program

_SOURCE = Path(__file__).with_name("ToolRunner.java")
JVM_FLAGS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
LOG_FLAG = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
"""Warnings depend on what a server answered first; Kafka's own default shows them."""

CLASSES = {
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-e2e-latency": "org.apache.kafka.tools.EndToEndLatency",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-replica-verification": "org.apache.kafka.tools.ReplicaVerificationTool",
    "kafka-streams-application-reset": "org.apache.kafka.tools.StreamsResetter",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
    "transactional-message-copier": "org.apache.kafka.tools.TransactionalMessageCopier",
}
"""The main class of each tool, by the name of its program."""


def class_path() -> str:
    """Return the class path of Kafka's tools; Maven fetches their jars once."""
    return str(fetch_jars("libs", BROKER_ARTIFACTS) / "*")


def compile_runner(folder: Path) -> None:
    """Compile the Java part into a folder."""
    compiler = Path(find_java()).with_name("javac")
    run_program([compiler, "-d", folder, "-cp", class_path(), _SOURCE])


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The text that a tool wrote, and its exit status."""

    status: int
    stdout: str
    stderr: str


class ToolRunner:
    """A JVM that runs one tool after the other, for the block.

    Args:
        folder: the folder with the compiled Java part.
    """

    def __init__(self, folder: Path) -> None:
        path = f"{folder}:{class_path()}"
        self._process = subprocess.Popen(
            [find_java(), *JVM_FLAGS, LOG_FLAG, "-cp", path, "ToolRunner"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, tool: str, arguments: tuple[str, ...], given: str = "") -> ToolResult:
        """Run a tool to its end.

        Args:
            tool: its main class.
            arguments: its arguments.
            given: its stdin.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        command = {"tool": tool, "arguments": arguments, "given": given}
        self._process.stdin.write(f"{json.dumps(command)}\n")
        self._process.stdin.flush()
        return ToolResult(**json.loads(self._process.stdout.readline()))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
