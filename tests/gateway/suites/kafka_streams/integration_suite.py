"""The suite of Kafka's integration tests of Streams."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from benchmarks.kafka_broker import fetch_jars, find_java
from tests.gateway.suites import kafka_clients
from tests.gateway.suites.kafka_clients import gateway_host
from tests.gateway.suites.suite import (
    Gateways,
    Outcome,
    Suite,
    TestResult,
    program_lines,
    run_program,
)

_KAFKA = "4.3.1"
_TESTS = f"org.apache.kafka:kafka-streams-integration-tests:{_KAFKA}:test"
_ARTIFACTS = (
    f"org.apache.kafka:kafka-test-common-runtime:{_KAFKA}",
    f"org.apache.kafka:kafka-test-common-internal-api:{_KAFKA}",
    f"org.apache.kafka:kafka_2.13:{_KAFKA}",
    f"org.apache.kafka:kafka_2.13:{_KAFKA}:test",
    f"org.apache.kafka:kafka-clients:{_KAFKA}:test",
    f"org.apache.kafka:kafka-server-common:{_KAFKA}:test",
    f"org.apache.kafka:kafka-streams:{_KAFKA}",
    f"org.apache.kafka:kafka-streams:{_KAFKA}:test",
    f"org.apache.kafka:kafka-streams-test-utils:{_KAFKA}",
    f"org.apache.kafka:kafka-tools:{_KAFKA}",
    "org.junit.platform:junit-platform-launcher:1.13.1",
    "org.hamcrest:hamcrest:3.0",
    "org.mockito:mockito-core:5.14.2",
    "org.mockito:mockito-junit-jupiter:5.14.2",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3",  # some tests read what is logged
)
_RUNNER = Path(kafka_clients.__file__).parent / "java"
_JAVA = Path(__file__).with_name("java")
_FLAGS = (
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
)
_EXTENSION = "META-INF/services/org.junit.jupiter.api.extension.Extension"


class KafkaStreamsTests(Suite):
    """Each class of tests gets a root of its own, with a gateway for each broker it asks for.

    The tests' names are ``Class.method``. A method that runs with several settings is one test; the
    runs with groups of Streams (KIP-1071), which Kafka has on since 4.2, are left out.
    """

    name = "kafka-streams-tests"
    client = "Kafka's integration tests of Streams (Java)"
    version = _KAFKA
    time_limit_s = 7200
    not_applicable: ClassVar[Mapping[str, str]] = {
        "FineGrainedAutoResetIntegrationTest.shouldResetByDuration": (
            "It has a default of topics' configs in the brokers' properties."
        ),
        "PurgeRepartitionTopicIntegrationTest.shouldRestoreState": (
            "It sets internal.segment.bytes, a config for Kafka's own tests."
        ),
    } | {
        f"{name}.{test}": "It asks for groups of Streams (KIP-1071), which Kafka has on since 4.2."
        for name in (
            "RebalanceProtocolMigrationIntegrationTest",
            "RebalanceProtocolMigrationIntegrationTest$WithAssignmentBatchingDisabledTest",
        )
        for test in (
            "shouldMigrateToAndFromStreamsRebalanceProtocol",
            "shouldMigrateFromAndToStreamsRebalanceProtocol",
        )
    }

    def install(self, folder: Path) -> None:
        _compile(folder / "runner", _RUNNER / "runner", _class_path())
        (jar,) = _tests().glob("*-test.jar")
        command = _command(folder / "runner", "list", jar)
        listed = run_program(command, time_limit_s=120)
        (folder / "tests").write_text(
            "".join(f"{each}\n" for each in listed.split() if "#" in each)
        )

    def run(
        self, folder: Path, gateways: Gateways, selected: Callable[[str], bool]
    ) -> Iterator[TestResult]:
        names = dict.fromkeys((folder / "tests").read_text().split())
        wanted = {test: name for name in names if selected(test := _short(name))}
        if not wanted:
            return
        beside = gateways.root.with_name(self.name)
        beside.mkdir()
        chosen = beside / "tests"
        chosen.write_text("\n".join(wanted.values()))
        classes = beside / "classes"
        # With Kafka the tests start brokers of their own, in the process of the tests.
        sources = [_RUNNER / "runner", _JAVA / "sparklog"]
        if not gateways.is_kafka:
            sources += [
                _RUNNER / "gateways/sparklog",
                _JAVA / "org/apache/kafka/streams/integration",
            ]
        for each in sources:
            _compile(classes, each, f"{classes}:{_class_path()}")
        extension = classes / _EXTENSION
        extension.parent.mkdir(parents=True)
        extension.write_text("sparklog.ClassicProtocol\n")
        properties = (
            f"-Dgateway.host={sys.executable} -m {gateway_host.__name__} {beside / 'log'}",
            f"-Dgateway.roots={beside}",
        )
        command = _command(classes, "run", chosen, *properties)
        for line in program_lines(command, time_limit_s=self.time_limit_s):
            if line.startswith('{"') and (result := _result(line)):
                wanted.pop(result.test, None)
                yield result
        for test in wanted:
            yield TestResult(test, Outcome.FAILED, "the program of the tests has ended before it")


def _result(line: str) -> TestResult | None:
    """Return the result in a line; None if the line is another program's JSON."""
    try:
        found = json.loads(line)
        return TestResult(_short(found["test"]), Outcome(found["outcome"]), found["reason"])
    except (ValueError, KeyError):
        return None


def _short(name: str) -> str:
    """Return the short name of a test: ``package.Class#method`` is ``Class.method``."""
    return name.rpartition(".")[2].replace("#", ".")


def _tests() -> Path:
    return fetch_jars("streams-integration-tests", (_TESTS,), transitive=False)


def _class_path() -> str:
    return f"{_tests()}/*:{fetch_jars('streams-integration-log4j', _ARTIFACTS)}/*"


def _command(classes: Path, mode: str, argument: Path, *properties: str) -> list[str]:
    java = [find_java(), *_FLAGS, *properties, "-cp", f"{classes}:{_class_path()}"]
    return [*java, "sparklog.TestRun", mode, str(argument)]


def _compile(target: Path, sources: Path, class_path: str) -> None:
    javac = Path(find_java()).with_name("javac")
    files = sorted(map(str, sources.rglob("*.java")))
    run_program([javac, "-nowarn", "-cp", class_path, "-d", target, *files], time_limit_s=120)
