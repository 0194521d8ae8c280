"""``spark-log canary``: a line for each record, and an exit status for a probe."""

import re
import signal
import subprocess

from tests.cli.support import COMMAND, environment
from tests.metrics.support import get, value


def test_a_probe_is_one_line(shell, root):
    outcome = shell("canary", "--once")
    assert outcome.status == 0
    (line,) = outcome.lines
    assert re.fullmatch(r"offset 0: produce [\d.]+ ms, roundtrip [\d.]+ ms, commit [\d.]+ ms", line)


def test_records_are_documents_one_a_line(shell, root):
    documents = shell("canary", "--count", 2, "--interval", 0.01, "--json").documents
    assert [each["offset"] for each in documents] == [0, 1]
    for each in documents:
        assert min(each["produce_ms"], each["roundtrip_ms"], each["commit_ms"]) > 0
        assert (each["failed_step"], each["error"]) == (None, None)


def test_a_root_that_is_missing_fails_the_probe(shell, folder):
    outcome = shell("canary", "--once", "--root", "nowhere")
    assert outcome.status == 1
    assert outcome.err.startswith("error: open: ")
    assert outcome.err.count("\n") == 1


def test_it_serves_its_times_until_it_is_stopped(root):
    with subprocess.Popen(
        [*COMMAND, "canary", "--interval", "0.01", "--metrics-port", "0"],
        env=environment(SPARK_LOG_ROOT=str(root)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        (port,) = re.findall(r"127\.0\.0\.1:(\d+)/", child.stderr.readline())
        for offset in range(2):
            assert child.stdout.readline().startswith(f"offset {offset}: ")
        assert value(get(port), "spark_log_canary_roundtrip_duration_seconds_count") >= 2
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 128 + signal.SIGTERM
        assert child.stderr.read() == ""
