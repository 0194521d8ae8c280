"""Runs suites from a shell, and shows which of their tests passed."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tests.gateway.suites.aiokafka import AioKafka
from tests.gateway.suites.confluent_kafka import ConfluentKafka
from tests.gateway.suites.franz_go import FranzGo
from tests.gateway.suites.kafka_clients.suite import KafkaClients
from tests.gateway.suites.kafka_connect.connect_suite import KafkaConnect
from tests.gateway.suites.kafka_connect.integration_suite import KafkaConnectTests
from tests.gateway.suites.kafka_connect.mirror_suite import KafkaMirror
from tests.gateway.suites.kafka_go import KafkaGo
from tests.gateway.suites.kafka_python import KafkaPython
from tests.gateway.suites.kafka_streams.integration_suite import KafkaStreamsTests
from tests.gateway.suites.kafka_streams.suite import KafkaStreams
from tests.gateway.suites.kafka_tools.tools_suite import KafkaTools
from tests.gateway.suites.kafkajs import KafkaJs
from tests.gateway.suites.kcat import KcatSuite
from tests.gateway.suites.librdkafka import Librdkafka
from tests.gateway.suites.page import RESULTS, write_results
from tests.gateway.suites.rskafka import RsKafka
from tests.gateway.suites.sarama import Sarama
from tests.gateway.suites.spark_kafka.equal_rows import SparkKafka
from tests.gateway.suites.spark_kafka.spark_tests import SparkTests
from tests.gateway.suites.suite import (
    Outcome,
    Suite,
    TestResult,
    TimeLimitError,
    running_gateways,
    running_kafka,
)
from tests.gateway.suites.unfinished import UnfinishedRun
from tests.stores.servers import CACHE

CLIENT_SUITES: tuple[Suite, ...] = (
    FranzGo(),
    KafkaGo(),
    Sarama(),
    Librdkafka(),
    KafkaPython(),
    ConfluentKafka(),
    AioKafka(),
    KafkaJs(),
    RsKafka(),
    KcatSuite(),
)
"""The suites of clients in other languages, in the order in which they are run."""

KAFKA_SUITES: tuple[Suite, ...] = (
    KafkaTools(),
    KafkaClients(),
    KafkaStreams(),
    KafkaStreamsTests(),
    KafkaConnect(),
    KafkaMirror(),
    KafkaConnectTests(),
    SparkKafka(),
    SparkTests(),
)
"""The suites of Kafka's own project and of Spark's reader of Kafka, in their order."""

GROUPS: dict[str, tuple[Suite, ...]] = {"clients": CLIENT_SUITES, "kafka": KAFKA_SUITES}
"""Suites by the name that runs all of them."""

SUITES: dict[str, Suite] = {each.name: each for group in GROUPS.values() for each in group}
"""All suites by their names."""

STYLES = {Outcome.PASSED: "green", Outcome.FAILED: "red", Outcome.NOT_APPLICABLE: "yellow"}

app = typer.Typer(add_completion=False)
console = Console(stderr=True, soft_wrap=True, highlight=False)


@app.command()
def main(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help=f"Suites to run, all by default: {', '.join(SUITES)}; or all of a group: "
            f"{', '.join(GROUPS)}.",
            metavar="[SUITE]...",
        ),
    ] = None,
    select: Annotated[
        str, typer.Option(help="Run only tests in whose names this is found.", metavar="REGEX")
    ] = "",
    gateways: Annotated[int, typer.Option(help="Number of gateways to run against.", min=1)] = 1,
    kafka: Annotated[
        bool,
        typer.Option(
            "--kafka",
            help="Run against a real broker of Kafka instead, which Maven fetches: a test that "
            "fails there is not the gateway's fault. Tests that are not applicable are run, too.",
        ),
    ] = False,
    json_file: Annotated[
        Path | None,
        typer.Option(
            "--json",
            help="Write the results into this file; those of suites that are not run stay in it. "
            f"docs/gateway-parity.md is made of {RESULTS.name} beside this program.",
            metavar="FILE",
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Continue the last run with this --json FILE if it was interrupted: tests that "
            "passed in it are not run again. FILE.unfinished has their names.",
        ),
    ] = False,
) -> None:
    """Run the test suites of Kafka's clients against gateways of this checkout.

    Exits with status 1 after a failure. What a suite needs is installed once, into the user's
    cache.
    """
    known = GROUPS | {name: (suite,) for name, suite in SUITES.items()}
    if unknown := sorted(set(names or ()) - set(known)):
        raise typer.BadParameter(f"{unknown[0]!r} is not a suite; give some of {', '.join(known)}")
    chosen = {each.name: each for name in names or GROUPS for each in known[name]}
    if json_file and (select or kafka):
        raise typer.BadParameter(
            "--json has the results of whole suites against gateways: leave out --select and "
            "--kafka"
        )
    if resume and not json_file:
        raise typer.BadParameter("--resume continues a run with --json FILE: give that file, too")
    # An interrupted run ends its gateways and programs; so does a terminated one.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
    results = {}
    for suite in chosen.values():
        if json_file:
            found = whole_results(suite, gateways, json_file, resume=resume)
        else:
            found = list(_shown(results_of(suite, select, gateways, kafka=kafka), suite))
        results[suite.name] = found
    _print_table(results)
    failed = any(each.outcome is Outcome.FAILED for found in results.values() for each in found)
    raise typer.Exit(failed)


def whole_results(suite: Suite, count: int, path: Path, *, resume: bool) -> list[TestResult]:
    """Run all tests of a suite, and write their results into a file."""
    unfinished = UnfinishedRun(path.with_name(f"{path.name}.unfinished"), suite)
    if not resume:
        unfinished.forget()
    unfinished.begin()
    found = [TestResult(each, Outcome.PASSED) for each in dict.fromkeys(unfinished.passed)]
    for result in _shown(results_of(suite, "", count, passed=unfinished.passed), suite):
        unfinished.add(result)
        found.append(result)
    write_results(path, suite, count, found, runs=unfinished.runs)
    unfinished.forget()
    return found


def results_of(
    suite: Suite,
    select: str = "",
    count: int = 1,
    *,
    kafka: bool = False,
    passed: Collection[str] = (),
) -> Iterator[TestResult]:
    """Run a suite against gateways of a new root, and yield the result of each test as it ends.

    Args:
        suite: the suite; what it needs is installed if that has not been done.
        select: the regular expression that the names of tests contain.
        count: the number of gateways.
        kafka: whether to run it against a real broker of Kafka instead.
        passed: tests that are not run, because they have passed before.
    """
    not_applicable = {} if kafka else suite.not_applicable

    def is_wanted(test: str) -> bool:
        return re.search(select, test) is not None

    def is_selected(test: str) -> bool:
        return is_wanted(test) and test not in not_applicable and test not in passed

    for test, reason in not_applicable.items():
        if is_wanted(test):
            yield TestResult(test, Outcome.NOT_APPLICABLE, reason)
    try:
        folder = _installed(suite)
        with tempfile.TemporaryDirectory() as temporary:
            root = Path(temporary, "root")
            with (
                running_kafka(root, suite.address)
                if kafka
                else running_gateways(root, count, suite.settings, suite.address)
            ) as running:
                for result in suite.run(folder, running, is_selected):
                    if is_selected(result.test):
                        yield result
    except subprocess.CalledProcessError as error:
        said = f"{error}: {str(error.output)[-2000:]}"
        yield TestResult("(the suite)", Outcome.FAILED, said)
    except TimeLimitError as error:
        yield TestResult("(the suite)", Outcome.FAILED, str(error))


def _installed(suite: Suite) -> Path:
    """Return the folder with what a suite needs; fill it if that has not been done."""
    folder = CACHE / f"suite-{suite.name}-{suite.version}"
    finished = folder / ".installed"
    if not finished.exists():
        console.print(f"Installing {suite.name} {suite.version} into {folder}, once")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        suite.install(folder)
        finished.touch()
    return folder


def _shown(results: Iterator[TestResult], suite: Suite) -> Iterator[TestResult]:
    """Print each result, and count them while they arrive."""
    counted: Counter[Outcome] = Counter()
    with console.status(f"{suite.name}: starting") as status:
        for result in results:
            counted[result.outcome] += 1
            mark = f"[{STYLES[result.outcome]}]{result.outcome}[/]"
            console.print(f"{suite.name} {escape(result.test)} {mark}")
            status.update(
                f"{suite.name}: " + ", ".join(f"{counted[each]} {each}" for each in Outcome)
            )
            yield result


def _print_table(results: dict[str, list[TestResult]]) -> None:
    out = Console(soft_wrap=True, highlight=False)
    table = Table("suite", *(Outcome), title="Tests")
    for name, found in results.items():
        counted = Counter(each.outcome for each in found)
        table.add_row(name, *(str(counted[each]) for each in Outcome))
    out.print(table)
    for name, found in results.items():
        for each in found:
            if each.outcome is not Outcome.PASSED:
                out.print(
                    f"{name} {each.test} {each.outcome}: {each.reason}",
                    markup=False,
                    style=STYLES[each.outcome],
                )


if __name__ == "__main__":
    app()
