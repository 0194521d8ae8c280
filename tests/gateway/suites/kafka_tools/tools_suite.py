"""`KafkaTools`: the suite of scenarios, each run at a gateway and at a real Kafka."""

from __future__ import annotations

import difflib
import re
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar

from benchmarks.kafka_broker import KAFKA_VERSION, KafkaBroker
from tests.gateway.suites.kafka_tools import (
    cluster,
    configs,
    groups,
    records,
    topics,
    transactions,
)
from tests.gateway.suites.kafka_tools.differences import DIFFERENCES, NOT_APPLICABLE
from tests.gateway.suites.kafka_tools.tool_runner import ToolRunner, compile_runner
from tests.gateway.suites.kafka_tools.tools import Tools
from tests.gateway.suites.suite import Gateways, Outcome, Suite, TestResult

Scenario = Callable[[Tools], None]

SCENARIOS: dict[str, Scenario] = {
    f"{tool}: {scenario.__name__.replace('_', ' ')}": scenario
    for module in (topics, configs, groups, records, transactions, cluster)
    for tool, scenarios in module.SCENARIOS.items()
    for scenario in scenarios
}
"""All scenarios by the names of their tests."""


class KafkaTools(Suite):
    """Kafka's tools write the same at a gateway and at a broker, and end with the same status."""

    name = "kafka-tools"
    client = "Kafka's tools (Java)"
    version = KAFKA_VERSION
    tests_are_ours = True
    time_limit_s = 1200
    settings: ClassVar = {"broker.id": "1"}  # as Kafka's broker, so one gateway is run
    not_applicable = NOT_APPLICABLE

    def install(self, folder: Path) -> None:
        compile_runner(folder)

    def run(
        self, folder: Path, gateways: Gateways, selected: Callable[[str], bool]
    ) -> Iterator[TestResult]:
        with ExitStack() as stack:
            beside = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            settings = {"group.initial.rebalance.delay.ms": "0"}  # as at the gateway
            broker = stack.enter_context(KafkaBroker(beside, settings=settings))
            addresses = (broker.bootstrap_servers, gateways.addresses[0])
            threads = stack.enter_context(ThreadPoolExecutor(len(addresses)))
            # They end before the threads, which may wait for them when the run is interrupted.
            servers = [(each, stack.enter_context(ToolRunner(folder))) for each in addresses]
            for test, scenario in SCENARIOS.items():
                if not selected(test):
                    continue

                def transcript(
                    server: tuple[str, ToolRunner], scenario: Scenario = scenario
                ) -> tuple[str, str]:
                    return _transcript(scenario, *server)

                yield compared(test, *threads.map(transcript, servers))


def _transcript(scenario: Scenario, bootstrap: str, runner: ToolRunner) -> tuple[str, str]:
    """Return what the tools wrote at a server, and how the scenario failed, if it did."""
    with tempfile.TemporaryDirectory() as folder:
        prefix = scenario.__name__.replace("_", "-")
        tools = Tools(bootstrap, runner.run, Path(folder), prefix)
        failure = ""
        try:
            scenario(tools)
        except Exception as error:  # any: it is the result of the test
            failure = f"{type(error).__name__}: {error}"
    return "\n".join(map(str, tools.transcript)), failure


def compared(test: str, kafka: tuple[str, str], gateway: tuple[str, str]) -> TestResult:
    """Return the result of a test from the transcripts and failures at Kafka and at a gateway."""
    (at_kafka, kafka_failure), (at_gateway, gateway_failure) = kafka, gateway
    if kafka_failure:
        return TestResult(test, Outcome.FAILED, f"at Kafka: {kafka_failure}")
    for each in DIFFERENCES:
        if re.search(each.tests, test):
            at_kafka, at_gateway = each.without(at_kafka), each.without(at_gateway)
    differences = difflib.unified_diff(
        at_kafka.splitlines(), at_gateway.splitlines(), "Kafka", "gateway", lineterm=""
    )
    difference = "\n".join(differences)
    if difference or gateway_failure:
        return TestResult(test, Outcome.FAILED, "\n".join((gateway_failure, difference)).strip())
    return TestResult(test, Outcome.PASSED)
