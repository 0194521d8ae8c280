"""Kafka Connect's distributed workers against gateways."""

from __future__ import annotations

import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.kafka_broker import KAFKA_VERSION
from benchmarks.kafka_connect import connect_jars
from tests.gateway.connect.debezium import debezium_jars
from tests.gateway.suites.kafka_connect import (
    cleaned_tests,
    debezium_tests,
    exactly_once_tests,
    rest_tests,
)
from tests.gateway.suites.kafka_connect.place import Place
from tests.gateway.suites.suite import Gateways, Outcome, Suite, TestResult

Test = Callable[[Place], None]


class KafkaConnect(Suite):
    """Distributed workers, with connectors for files and with Debezium."""

    name = "kafka-connect"
    client = "Kafka Connect (Java)"
    version = KAFKA_VERSION
    tests_are_ours = True

    def install(self, folder: Path) -> None:
        connect_jars()
        debezium_jars()

    def run(
        self, folder: Path, gateways: Gateways, selected: Callable[[str], bool]
    ) -> Iterator[TestResult]:
        tests = (
            *rest_tests.TESTS,
            *exactly_once_tests.TESTS,
            *cleaned_tests.TESTS,
            *debezium_tests.TESTS,
        )
        yield from results_of_tests(tests, gateways, selected)


def results_of_tests(
    tests: Sequence[Test], gateways: Gateways, selected: Callable[[str], bool]
) -> Iterator[TestResult]:
    """Run tests one after the other, and yield the result of each."""
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        ExitStack() as stack,
    ):
        place = Place(Path(folder), gateways, stack)
        for test in tests:
            name = test.__name__.replace("_", " ")
            if not selected(name):
                continue
            try:
                test(place)
            except Exception as error:
                where = traceback.extract_tb(error.__traceback__)
                line = next(each for each in reversed(where) if "kafka_connect" in each.filename)
                said = f"{type(error).__name__}: {error} ({line.name}: {line.line})"
                yield TestResult(name, Outcome.FAILED, said)
            else:
                yield TestResult(name, Outcome.PASSED)
