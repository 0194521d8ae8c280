"""The suite of Kafka Streams."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import ClassVar

from benchmarks.kafka_broker import KAFKA_VERSION, fetch_jars, find_java
from benchmarks.streams_application import STREAMS_ARTIFACTS
from tests.gateway.processes import SHORT
from tests.gateway.suites.kafka_streams import applications, broker_down, system_tests
from tests.gateway.suites.kafka_streams.place import Place
from tests.gateway.suites.suite import Gateways, Outcome, Suite, TestResult, run_program

_ARTIFACTS = (
    *STREAMS_ARTIFACTS,
    f"org.apache.kafka:kafka-streams:{KAFKA_VERSION}:test",
    f"org.apache.kafka:kafka-clients:{KAFKA_VERSION}:test",
    f"org.apache.kafka:kafka-tools:{KAFKA_VERSION}",
)
EXACTLY_ONCE, AT_LEAST_ONCE = "exactly_once_v2", "at_least_once"

Test = Callable[[Place], None]


class KafkaStreams(Suite):
    """Kafka's system tests of Streams, and applications whose results are computed again."""

    name = "kafka-streams"
    client = "Kafka Streams (Java)"
    version = KAFKA_VERSION
    time_limit_s = 3600
    settings: ClassVar[Mapping[str, str]] = {key: str(value) for key, value in SHORT.items()}

    def install(self, folder: Path) -> None:
        fetch_jars("streams-tests", _ARTIFACTS)

    def run(
        self, folder: Path, gateways: Gateways, selected: Callable[[str], bool]
    ) -> Iterator[TestResult]:
        class_path = _compiled(folder, f"{fetch_jars('streams-tests', _ARTIFACTS)}/*")
        for name, test in _tests().items():
            if selected(name):
                yield _result(name, test, gateways, class_path)


def _compiled(folder: Path, jars: str) -> str:
    """Compile the program beside this file; return the class path with it."""
    javac = Path(find_java()).with_name("javac")
    classes = folder / "classes"
    source = Path(__file__).parent / "java/programs/org/apache/kafka/streams/tests/EosTest.java"
    run_program([javac, "-nowarn", "-cp", jars, "-d", classes, source])
    return f"{classes}:{jars}"


def _result(name: str, test: Test, gateways: Gateways, class_path: str) -> TestResult:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        place = Place(gateways, class_path, Path(folder))
        try:
            test(place)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}\n{_warnings(Path(folder))}"
            return TestResult(name, Outcome.FAILED, reason[:4000])
        finally:
            place.close()
    return TestResult(name, Outcome.PASSED)


def _warnings(folder: Path) -> str:
    """Return the last warnings and errors of the programs' logs."""
    found = []
    for path in sorted(folder.glob("*.log")):
        lines = path.read_text(errors="replace").splitlines()
        telling = [each for each in lines if " ERROR " in each or "EXCEPTION" in each]
        found += [f"{path.name}: {each[:400]}" for each in telling[-4:]]
    return "\n".join(found)


def _tests() -> dict[str, Test]:
    found: dict[str, Test] = {}
    for guarantee in (EXACTLY_ONCE, AT_LEAST_ONCE):
        found[f"word-count[{guarantee}]"] = partial(applications.word_count, guarantee=guarantee)
        found[f"word-count[{guarantee}, a gateway is killed]"] = partial(
            applications.word_count, guarantee=guarantee, strikes=True
        )
    found |= {
        "state-is-restored": partial(applications.state_is_restored, guarantee=EXACTLY_ONCE),
        "application-reset": partial(applications.reset, guarantee=EXACTLY_ONCE),
        "table-join": partial(applications.table_join, guarantee=EXACTLY_ONCE),
        "stream-join": partial(applications.stream_join, guarantee=EXACTLY_ONCE),
        "tumbling-windows": partial(
            applications.windows, guarantee=EXACTLY_ONCE, topology="tumbling"
        ),
        "session-windows": partial(
            applications.windows, guarantee=EXACTLY_ONCE, topology="session"
        ),
    }
    for guarantee in (EXACTLY_ONCE, AT_LEAST_ONCE):
        for crash in (False, True):
            name = f"StreamsSmokeTest[{guarantee}{', crash' * crash}]"
            found[name] = partial(system_tests.smoke, guarantee=guarantee, crash=crash)
    found["StreamsSmokeTest[exactly_once_v2, crash, a gateway is killed]"] = partial(
        system_tests.smoke, guarantee=EXACTLY_ONCE, crash=True, strikes=True
    )
    for is_complex in (False, True):
        suffix = "[complex]" if is_complex else ""
        for name, abort in (("rebalance", False), ("failure_and_recovery", True)):
            found[f"StreamsEosTest.{name}{suffix}"] = partial(
                system_tests.eos, is_complex=is_complex, abort=abort
            )
    found["StreamsEosTest.failure_and_recovery[complex, a gateway is killed]"] = partial(
        system_tests.eos, is_complex=True, abort=True, strikes=True
    )
    for crash in (False, True):
        name = f"RelationalSmokeTest{'[crash]' * crash}"
        found[name] = partial(system_tests.relational, crash=crash)
    for guarantee in (EXACTLY_ONCE, AT_LEAST_ONCE):
        found[f"BrokerCompatibilityTest[{guarantee}]"] = partial(
            system_tests.broker_compatibility, guarantee=guarantee
        )
    found |= {
        "ShutdownDeadlockTest": system_tests.shutdown_deadlock,
        "StreamsStandByReplicaTest": system_tests.standby,
        "StaticMemberTestClient": system_tests.static_membership,
        "StreamsNamedRepartitionTest": system_tests.named_repartition,
        "StreamsBrokerDownResilience.resilient_to_broker_down": broker_down.resilient,
        "StreamsBrokerDownResilience.runs_with_broker_down_initially": broker_down.down_initially,
        "StreamsBrokerDownResilience.should_scale_in_while_brokers_down": broker_down.scale_in,
        "StreamsBrokerDownResilience.should_failover_while_brokers_down": broker_down.failover,
    }
    return found
