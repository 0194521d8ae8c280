"""The programs that run the suites of Kafka's clients, and the quick ones of these suites."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spark_log import Admin, ConfigResource, ConfigResourceType
from tests.gateway.processes import free_port
from tests.gateway.suites import __main__ as suites
from tests.gateway.suites.kafka_clients import gateway_host
from tests.gateway.suites.kafka_connect.connect_suite import KafkaConnect
from tests.gateway.suites.kafka_streams.suite import KafkaStreams
from tests.gateway.suites.kafka_tools.tool_runner import ToolResult
from tests.gateway.suites.kafka_tools.tools import Tools
from tests.gateway.suites.kafka_tools.tools_suite import KafkaTools, compared
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


def test_a_run_continues_one_that_was_interrupted(suite, tmp_path):
    path, passes = tmp_path / "results.json", []

    def run(folder, gateways, selected):
        for test in ("first", "second", "third"):
            if selected(test):
                passes.append(test)
                yield TestResult(test, Outcome.PASSED if len(passes) != 2 else Outcome.FAILED)
                if passes == ["first", "second"]:
                    raise KeyboardInterrupt

    suite.run = run

    def results(*, resume):
        return suites.whole_results(suite, 1, path, resume=resume)

    with pytest.raises(KeyboardInterrupt):
        results(resume=False)
    assert not path.exists()
    results(resume=True)
    assert passes == ["first", "second", "second", "third"]
    (written,) = json.loads(path.read_text()).values()
    assert written["passed"] == ["first", "second", "third"]
    assert written["date"].endswith(" (2 runs)")
    results(resume=True)  # the run before it has ended
    assert passes[4:] == ["first", "second", "third"]
    assert [each.name for each in tmp_path.iterdir() if each.is_file()] == ["results.json"]


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


def test_a_host_starts_gateways_of_a_root_and_ends_them(tmp_path):
    root, ports = str(tmp_path / "root"), [free_port(), free_port()]
    command = [sys.executable, "-m", gateway_host.__name__, str(tmp_path / "log")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        stdin, stdout = process.stdin, process.stdout

        def ask(**request):
            stdin.write(json.dumps(request) + "\n")
            stdin.flush()
            return json.loads(stdout.readline())

        settings = {"group.max.size": "3"}
        assert ask(prepare={"root": root, "brokers": 2, "cluster": settings}) == {}
        started = ask(
            start=[
                ["--root", root, "--listen", f"127.0.0.1:{port}", "--override", f"broker.id={each}"]
                for each, port in enumerate(ports)
            ]
        )
        assert [line.split()[1] for line in started["lines"]] == ["0", "1"]
        for port in ports:
            socket.create_connection(("127.0.0.1", port)).close()
        first, second = started["pids"]
        assert ask(end=first, signal=signal.SIGTERM) == {}
        assert "root" in ask(prepare={"root": 7, "brokers": 1, "cluster": {}})["error"]
        stdin.close()
    assert not any(Path(f"/proc/{pid}").exists() for pid in (first, second))
    described = Admin(root).describe_configs([ConfigResource(ConfigResourceType.BROKER, "")])
    assert described["broker"][""]["group.max.size"].value == "3"


@pytest.mark.long
@pytest.mark.parametrize("suite", [KcatSuite()], ids=lambda suite: suite.name)
def test_a_quick_suite_has_no_failure(suite):
    results = list(suites.results_of(suite))
    assert results
    assert [each for each in results if each.outcome is Outcome.FAILED] == []


def test_what_a_tool_writes_at_a_gateway_is_compared_but_for_what_may_differ():
    test, other = "kafka-features: features", "kafka-topics: delete"
    kafka = "$ kafka-features\nFeature: kraft.version\nFeature: group.version Epoch: 7\nstatus 0"
    gateway = "$ kafka-features\nFeature: group.version Epoch: 0\nstatus 0"
    assert compared(test, (kafka, ""), (gateway, "")).outcome is Outcome.PASSED
    assert compared(other, (kafka, ""), (gateway, "")).outcome is Outcome.FAILED
    changed = compared(test, (kafka, ""), (gateway.replace("status 0", "status 1"), ""))
    assert changed.outcome is Outcome.FAILED
    assert "-status 0\n+status 1" in changed.reason
    assert compared(test, (kafka, "AssertionError"), (gateway, "")).reason.startswith("at Kafka")
    assert compared(test, (kafka, ""), (gateway, "Error")).outcome is Outcome.FAILED


def test_a_tool_writes_ids_times_and_messages_of_its_server():
    def run_tool(tool, arguments, given):
        stdout = "TopicId: AAAAAAAAAAAAAAAAAAAAAQ at 2026-11-27 20:00:00,123 of 10.0.0.9:9092\n"
        stderr = "org.apache.kafka.common.errors.TopicExistsException: it exists\n\tat a.B.c(D)\n"
        return ToolResult(1, stdout, f"{stderr}it exists\n")

    tools = Tools("10.0.0.9:9092", run_tool, Path("/nowhere"), "x")
    tools.run("kafka-topics", "--list", status=1)
    assert str(tools.transcript[0]) == (
        "$ kafka-topics --bootstrap-server ADDRESS --list\n"
        "TopicId: ID at DATE of ADDRESS\n"
        "! org.apache.kafka.common.errors.TopicExistsException\n"
        "! <message of TopicExistsException>\n"
        "status 1"
    )
    with pytest.raises(AssertionError, match="expected status 0"):
        tools.run("kafka-topics", "--list")
    with pytest.raises(AssertionError, match="expected 'yes'"):
        tools.run("kafka-topics", "--list", status=1, says="yes")


@pytest.mark.long
@pytest.mark.skipif(shutil.which("mvn") is None, reason="Maven is not installed")
def test_kafkas_tools_write_the_same_at_a_gateway_as_at_kafka():
    results = list(suites.results_of(KafkaTools(), "^kafka-(topics|reassign|leader)"))
    assert len(results) > 20
    assert [each for each in results if each.outcome is not Outcome.PASSED] == []


@pytest.mark.long
@pytest.mark.skipif(shutil.which("mvn") is None, reason="Maven is not installed")
def test_kafka_streams_restores_its_state_from_changelogs_that_were_compacted():
    names = {"state-is-restored", "BrokerCompatibilityTest[exactly_once_v2]"}
    selected = "|".join(f"^{re.escape(each)}$" for each in names)
    results = list(suites.results_of(KafkaStreams(), selected))
    assert {each.test for each in results} == names
    assert [each for each in results if each.outcome is not Outcome.PASSED] == []


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.skipif(shutil.which("mvn") is None, reason="Maven is not installed")
def test_sparks_connector_and_ours_read_the_same_rows():
    results = list(suites.results_of(SparkKafka()))
    assert len(results) > 50
    assert [each for each in results if each.outcome is not Outcome.PASSED] == []


@pytest.mark.long
@pytest.mark.skipif(shutil.which("mvn") is None, reason="Maven is not installed")
def test_a_distributed_worker_has_its_topics_offsets_and_connectors():
    results = list(suites.results_of(KafkaConnect(), "^(internal|file|offsets|records|sink with)"))
    assert len(results) == 6
    assert [each for each in results if each.outcome is not Outcome.PASSED] == []
