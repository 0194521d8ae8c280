"""The programs that run the suites of Kafka's clients, and the quick ones of these suites."""

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from tests.gateway.suites import __main__ as suites
from tests.gateway.suites.kafka_tools.tools_suite import KafkaTools
from tests.gateway.suites.kcat import KcatSuite
from tests.gateway.suites.page import RESULTS, page, write_results
from tests.gateway.suites.spark_kafka.equal_rows import SparkKafka
from tests.gateway.suites.suite import (
    Outcome,
    Suite,
    TestResult,
    TimeLimitError,
    program_lines,
    run_program,
)

PAGE = Path(__file__).parents[2] / "docs/gateway-parity.md"


class ShellSuite(Suite):
    """Tests of which one is not applicable, and one never ends."""

    name = "shell"
    client = "sh"
    version = "1"
    not_applicable = {"asks for a disk": "It asks for a broker's disk."}  # noqa: RUF012

    def __init__(self):
        self.installations = 0

    def install(self, folder):
        self.installations += 1

    def run(self, folder, gateways, selected):
        host, _ = gateways.addresses[0].split(":")
        for test in ("knows the address", "asks for a disk", "is not selected"):
            outcome = Outcome.PASSED if host == "127.0.0.1" else Outcome.FAILED
            yield TestResult(test, outcome)
        run_program(["sleep", "600"], time_limit_s=0.1)


@pytest.fixture
def suite(tmp_path, monkeypatch):
    monkeypatch.setattr(suites, "CACHE", tmp_path / "cache")
    return ShellSuite()


def test_each_selected_test_has_one_result_and_the_time_limit_is_a_failure(suite):
    assert list(suites.results_of(suite, "knows|asks")) == [
        TestResult("asks for a disk", Outcome.NOT_APPLICABLE, "It asks for a broker's disk."),
        TestResult("knows the address", Outcome.PASSED),
        TestResult("(the suite)", Outcome.FAILED, "sleep has not ended within 0.1 s"),
    ]
    assert suite.installations == 1


def test_a_program_ends_with_those_that_it_has_started(tmp_path):
    (line,) = program_lines(["sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!"])
    ended = Path(f"/proc/{line}/stat")
    while ended.exists() and " Z " not in ended.read_text():
        time.sleep(0)
    with pytest.raises(TimeLimitError):
        run_program(["sleep", "600"], time_limit_s=0.1)
    assert run_program(["sh", "-c", "cat; echo $FOO"], given=b"a ", env={"FOO": "b"}) == "a b\n"
    assert "FOO" not in os.environ


def test_a_file_of_results_keeps_the_other_suites(suite, tmp_path):
    path = tmp_path / "results.json"
    write_results(path, KcatSuite(), 3, [TestResult("a", Outcome.PASSED)])
    write_results(path, suite, 1, [TestResult("b", Outcome.FAILED, "it | said\nmore")])
    write_results(path, suite, 1, [TestResult("b", Outcome.FAILED, "it | says\nmore")])
    runs = json.loads(path.read_text())
    assert list(runs) == ["kcat --gateways 3", "shell"]
    text = page(runs)
    assert "| kcat | kcat with librdkafka 2.0.2 (C) | 1.7.1 | ours | 3 | 1 | 0 | 0 |" in text
    assert "| failed | it \\| says | `b` |" in text


def test_the_page_is_made_of_the_results():
    assert PAGE.read_text("utf-8") == page(json.loads(RESULTS.read_text("utf-8")))


@pytest.mark.long
@pytest.mark.parametrize("suite", [KcatSuite()], ids=lambda suite: suite.name)
def test_a_quick_suite_has_no_failure(suite):
    results = list(suites.results_of(suite))
    assert results
    assert [each for each in results if each.outcome is Outcome.FAILED] == []


@pytest.mark.long
@pytest.mark.skipif(shutil.which("mvn") is None, reason="Maven is not installed")
def test_kafkas_tools_write_the_same_at_a_gateway_as_at_kafka():
    results = list(suites.results_of(KafkaTools(), "^kafka-(topics|reassign|leader)"))
    assert len(results) > 20
    assert [each for each in results if each.outcome is not Outcome.PASSED] == []


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.skipif(shutil.which("mvn") is None, reason="Maven is not installed")
def test_sparks_connector_and_ours_read_the_same_rows():
    results = list(suites.results_of(SparkKafka()))
    assert len(results) > 50
    assert [each for each in results if each.outcome is not Outcome.PASSED] == []
