"""``spark-log exporter``: one scrape to stdout, or a server until SIGTERM."""

import re
import signal
import subprocess
import sys
from contextlib import contextmanager

from spark_log import Admin, OffsetAndMetadata, TopicPartition
from tests.cli.support import COMMAND, append, environment
from tests.metrics.support import get, samples


def test_one_scrape_is_printed(shell, root):
    append(root, "flights", b"a", b"b")
    Admin(root).alter_group_offsets("g", {TopicPartition("flights", 0): OffsetAndMetadata(1)})
    found = samples(shell("exporter", "--once", "--cluster-name", "c").out.encode())
    place = ("partition", "0"), ("topic", "flights")
    assert found["kafka_topic_partition_current_offset", *place] == 2
    assert found["kafka_consumergroup_lag", ("consumergroup", "g"), *place] == 1
    assert {dict(key[1:]).get("cluster_name") for key in found} == {None, "c"}


def test_a_scrape_is_a_document_with_its_requests(shell, root):
    append(root, "weather", b"a")
    document = shell("exporter", "--once", "--json").document
    labels = {"topic": "weather", "partition": "0"}
    name = "kafka_topic_partition_current_offset"
    assert {"name": name, "labels": labels, "value": 1} in document["metrics"]
    assert document["requests"]["list"] >= 3


def test_a_root_that_is_missing_is_one_line_and_exit_status_1(shell, folder):
    outcome = shell("exporter", "--once", "--root", "nowhere")
    assert outcome.status == 1
    assert "spark_log_exporter_up 0" in outcome.out
    assert outcome.err.count("\n") <= 1
    assert "Traceback" not in outcome.err


def test_a_package_that_is_missing_is_named(shell, root, monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.setitem(sys.modules, "prometheus_client.core", None)
    outcome = shell("exporter", "--once")
    assert (outcome.status, outcome.error) == (
        2,
        "metrics need prometheus_client: pip install 'spark-log[metrics]'",
    )


@contextmanager
def running_exporter(root):
    """Yields the process, which is stopped at the end, and its port."""
    with subprocess.Popen(
        [*COMMAND, "exporter", "--port", "0"],
        env=environment(SPARK_LOG_ROOT=str(root)),
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stderr is not None
        line = child.stderr.readline()
        (port,) = re.findall(r"http://127\.0\.0\.1:(\d+)/metrics", line)
        yield child, port
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 128 + signal.SIGTERM


def test_it_serves_until_it_is_stopped(root):
    with running_exporter(root) as (child, port):
        assert samples(get(port))["spark_log_exporter_up",] == 1
        child.send_signal(signal.SIGTERM)
        assert child.stderr.read() == ""


def test_it_warns_of_a_root_that_is_missing_and_goes_on(tmp_path):
    with running_exporter(tmp_path / "nowhere") as (child, port):
        line = child.stderr.readline()
        expected = "warning: spark_log_exporter_up is 0 until the root can be read: there is"
        assert line.startswith(expected)
        assert samples(get(port))["spark_log_exporter_up",] == 0
