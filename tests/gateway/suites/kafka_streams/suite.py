"""The suite of Kafka Streams."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import ClassVar

from benchmarks.kafka_broker import KAFKA_VERSION, fetch_jars
from benchmarks.streams_application import STREAMS_ARTIFACTS
from tests.gateway.processes import SHORT
from tests.gateway.suites.kafka_streams import applications
from tests.gateway.suites.kafka_streams.place import Place
from tests.gateway.suites.suite import Gateways, Outcome, Suite, TestResult

_ARTIFACTS = (
    *STREAMS_ARTIFACTS,
    f"org.apache.kafka:kafka-streams:{KAFKA_VERSION}:test",
    f"org.apache.kafka:kafka-clients:{KAFKA_VERSION}:test",
    f"org.apache.kafka:kafka-tools:{KAFKA_VERSION}",
)
EOS, ALO = "exactly_once_v2", "at_least_once"

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
        class_path = f"{fetch_jars('streams-tests', _ARTIFACTS)}/*"
        for name, test in _tests().items():
            if selected(name):
                yield _result(name, test, gateways, class_path)


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
    for guarantee in (EOS, ALO):
        found[f"word-count[{guarantee}]"] = partial(applications.word_count, guarantee=guarantee)
        found[f"word-count[{guarantee}, a gateway is killed]"] = partial(
            applications.word_count, guarantee=guarantee, strikes=True
        )
    found |= {
        "state-is-restored": partial(applications.state_is_restored, guarantee=EOS),
        "table-join": partial(applications.table_join, guarantee=EOS),
        "stream-join": partial(applications.stream_join, guarantee=EOS),
        "tumbling-windows": partial(applications.windows, guarantee=EOS, topology="tumbling"),
        "session-windows": partial(applications.windows, guarantee=EOS, topology="session"),
    }
    return found
