"""Spark's connector for Kafka through gateways, beside `format("spark_log")` on the same root."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.spark_vs_kafka import CONNECTOR_VERSION, connector_jars
from tests.gateway.suites.suite import (
    Gateways,
    Outcome,
    Suite,
    TestResult,
    program_lines,
)

_REPOSITORY = Path(__file__).parents[4]
_TESTS = Path(__file__).with_name("equal_rows_tests.py").relative_to(_REPOSITORY)
_REPORTER = "tests.gateway.suites.spark_kafka.reporter"


class SparkKafka(Suite):
    """Batches, micro-batches and sinks: both formats read the same rows, with all columns."""

    name = "spark-kafka"
    client = "Spark's connector for Kafka (Python)"
    version = CONNECTOR_VERSION
    tests_are_ours = True
    time_limit_s = 1800

    def install(self, folder: Path) -> None:
        connector_jars()

    def run(
        self, folder: Path, gateways: Gateways, selected: Callable[[str], bool]
    ) -> Iterator[TestResult]:
        if gateways.is_kafka:
            why = "It compares with spark_log on the gateways' root."
            yield TestResult("(the suite)", Outcome.NOT_APPLICABLE, why)
            return
        env = {
            "BROKERS": gateways.bootstrap_servers,
            "ROOT": str(gateways.root),
            "PYTHONPATH": str(_REPOSITORY),
        }
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", _REPORTER]
        collect = [*command, "-q", "--collect-only", str(_TESTS)]
        collected = list(program_lines(collect, cwd=_REPOSITORY, env=env))
        ids = [each for each in collected if each.startswith(f"{_TESTS}::")]
        if not ids:
            yield TestResult("(the suite)", Outcome.FAILED, "\n".join(collected)[-2000:])
        left = {_name(each): each for each in ids if selected(_name(each))}
        if not left:
            return
        said = ""
        for line in program_lines(
            [*command, *left.values()], cwd=_REPOSITORY, env=env, time_limit_s=self.time_limit_s
        ):
            if not line.startswith("@@"):
                said = f"{said}\n{line}"[-2000:]
                continue
            test, failure = json.loads(line.removeprefix("@@"))
            del left[_name(test)]
            outcome = Outcome.FAILED if failure else Outcome.PASSED
            yield TestResult(_name(test), outcome, failure[-2000:])
        for name in left:
            yield TestResult(name, Outcome.FAILED, f"did not end: {said}")


def _name(node_id: str) -> str:
    return node_id.removeprefix(f"{_TESTS}::")
