"""MirrorMaker 2 between gateways and a broker of Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.kafka_broker import BROKER_ARTIFACTS, KAFKA_VERSION, fetch_jars
from benchmarks.kafka_connect import connect_jars
from tests.gateway.suites.kafka_connect import mirror_tests
from tests.gateway.suites.kafka_connect.connect_suite import results_of_tests
from tests.gateway.suites.suite import Gateways, Suite, TestResult


class KafkaMirror(Suite):
    """MirrorMaker's own process, which copies topics in both directions."""

    name = "kafka-mirror"
    client = "MirrorMaker 2 (Java)"
    version = KAFKA_VERSION
    tests_are_ours = True

    def install(self, folder: Path) -> None:
        connect_jars()
        fetch_jars("libs", BROKER_ARTIFACTS)

    def run(
        self, folder: Path, gateways: Gateways, selected: Callable[[str], bool]
    ) -> Iterator[TestResult]:
        yield from results_of_tests(mirror_tests.TESTS, gateways, selected)
