"""``spark-log gateway``: a server until SIGTERM, one process or several."""

import json
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager

import pytest

from spark_log import Admin
from tests.cli.support import COMMAND, environment
from tests.gateway.support import RawClient


@contextmanager
def running(root, *arguments):
    """Yields the process, which gets SIGTERM at the end."""
    with subprocess.Popen(
        [*COMMAND, "gateway", "--listen", "127.0.0.1:0", "--json", *arguments],
        env=environment(SPARK_LOG_ROOT=str(root)),
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        try:
            yield child
        finally:
            child.send_signal(signal.SIGTERM)
            assert child.wait(60) == 0


def started(child):
    """Return the document that one gateway prints when it listens."""
    lines = []
    for line in child.stdout:
        lines.append(line)
        if line.startswith("}"):
            return json.loads("".join(lines))
    raise AssertionError("the gateway ended")


def brokers(port):
    with RawClient("127.0.0.1", port) as client:
        found = client.ask("Metadata", 12, topics=None)
        return {(each.node_id, each.host, each.port, each.rack) for each in found.brokers}


def test_it_serves_until_sigterm_and_leaves_the_registry(root, tmp_path):
    with running(root, "--rack", "r1", "--override", "num.partitions=3") as child:
        found = started(child)
        assert brokers(found["port"]) == {(found["id"], "127.0.0.1", found["port"], "r1")}
        with RawClient("127.0.0.1", found["port"]) as client:
            client.ask("Metadata", 4, topics=[_topic("new")], allow_auto_topic_creation=True)
    assert len(Admin(root).describe_topics(["new"])[0].partitions) == 3
    with running(root) as child:  # the first one is gone: only the second is listed
        assert len(brokers(started(child)["port"])) == 1


def test_workers_are_gateways_of_their_own(root):
    with running(root, "--workers", "2") as child:
        first, second = started(child), started(child)
        assert first["id"] != second["id"]
        assert {
            each[0] for each in brokers(max(first, second, key=lambda each: each["id"])["port"])
        }
        assert brokers(first["port"]) | brokers(second["port"]) == {
            (each["id"], "127.0.0.1", each["port"], None) for each in (first, second)
        }


_STUCK_IN_ARROW = """
import sys, threading, time
import pyarrow as pa
import pyarrow.ipc

class Slow:
    closed = False
    def write(self, data): time.sleep(0.0003); return len(data)
    def flush(self): pass
    def close(self): pass
    def tell(self): return 0

table = pa.table({"a": list(range(50_000))})

def work():
    while True:
        with pa.ipc.new_stream(pa.PythonFile(Slow(), mode="w"), table.schema) as writer:
            writer.write_table(table, max_chunksize=100)

for _ in range(4):
    threading.Thread(target=work, daemon=True).start()

from spark_log.cli import main
main(sys.argv[1:])
"""
"""Threads in Arrow's code that call Python, as a merge does that is longer than the end waits."""


def test_a_thread_in_arrows_code_does_not_abort_the_process_at_its_end(root, tmp_path):
    with (tmp_path / "err").open("w+") as err:
        with subprocess.Popen(
            [sys.executable, "-c", _STUCK_IN_ARROW, "gateway", "--listen", "127.0.0.1:0", "--json"],
            env=environment(SPARK_LOG_ROOT=str(root), SPARK_LOG_LEVEL="info"),
            stdout=subprocess.PIPE,
            stderr=err,
            text=True,
        ) as child:
            started(child)
            child.send_signal(signal.SIGTERM)
            assert child.wait(60) == 0
        assert "terminate called" not in (tmp_path / "err").read_text()
    with running(root) as child:  # it has left the registry
        assert len(brokers(started(child)["port"])) == 1


def test_a_gateway_whose_metrics_cannot_be_served_leaves_the_registry(root):
    with socket.create_server(("127.0.0.1", 0)) as used:
        refused = subprocess.run(
            [
                *(*COMMAND, "gateway", "--listen", "127.0.0.1:0"),
                *("--metrics-port", str(used.getsockname()[1])),
            ],
            env=environment(SPARK_LOG_ROOT=str(root)),
            capture_output=True,
            text=True,
            check=False,
        )
    assert refused.returncode in (1, 2)
    assert "error:" in refused.stderr
    with running(root) as child:
        assert len(brokers(started(child)["port"])) == 1


def test_clients_connect_to_the_advertised_address(root):
    with running(root, "--advertise", "kafka.example") as child:
        found = started(child)
        assert found["host"] == "kafka.example"
        assert {each[1] for each in brokers(found["port"])} == {"kafka.example"}


def test_it_creates_a_root_only_if_told(tmp_path):
    root = tmp_path / "new"
    refused = subprocess.run(
        [*COMMAND, "gateway", "--listen", "127.0.0.1:0"],
        env=environment(SPARK_LOG_ROOT=str(root)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode != 0
    assert not root.exists()
    with running(root, "--create") as child:
        assert brokers(started(child)["port"])


@pytest.mark.parametrize("address", ["0.0.0.0:9092", "kafka.example:9092", "[::]:9092"])
def test_another_machine_may_not_connect_unless_that_is_permitted(shell, root, address):
    outcome = shell("gateway", "--listen", address)
    assert outcome.status == 2
    assert "--insecure" in outcome.error


@pytest.mark.parametrize("more", [[], ["--workers", "2"]])
@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "[::0%lo]", "[::ffff:0.0.0.0]", "0"])
def test_clients_need_an_address_that_they_can_connect_to(shell, tmp_path, host, more):
    new = ["--root", str(tmp_path / "new"), "--create", "--insecure", *more]
    refused = shell("gateway", "--listen", f"{host}:0", *new)
    assert refused.status == 2
    assert "add --advertise" in refused.error
    refused = shell("gateway", "--listen", f"{host}:0", "--advertise", host, *new)
    assert refused.status == 2
    assert "no client can connect" in refused.error
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]"])
def test_it_listens_on_all_addresses_and_clients_are_told_one(root, host):
    options = ["--listen", f"{host}:0", "--advertise", "kafka.example", "--insecure"]
    with running(root, *options) as child:
        found = started(child)
        assert {each[1] for each in brokers(found["port"])} == {"kafka.example"}


@pytest.mark.parametrize("address", ["9092", "host:", "host:x", ":9092", "host:70000"])
def test_an_address_that_is_none_is_one_error(shell, root, address):
    outcome = shell("gateway", "--listen", address)
    assert outcome.status == 2
    assert "expected HOST:PORT" in outcome.error


def test_a_listener_that_authenticates_may_be_reached_by_others(shell, root, tmp_path):
    settings = tmp_path / "gateway.properties"
    settings.write_text("security.protocol=SASL_PLAINTEXT\nsasl.users.file=/no/such/file\n")
    options = ["--advertise", "kafka.example", "--gateway-config", str(settings)]
    outcome = shell("gateway", "--listen", "0.0.0.0:0", *options)
    assert outcome.status == 2
    assert "/no/such/file" in outcome.error  # the address is no mistake


def test_a_secret_is_not_given_as_an_argument(shell, root):
    settings = ("security.protocol=SSL", "ssl.key.password=top-secret")
    outcome = shell("gateway", *(part for each in settings for part in ("--override", each)))
    assert outcome.status == 2
    assert "list of processes" in outcome.err
    assert "top-secret" not in outcome.err


def test_an_unknown_setting_is_one_error(shell, root):
    outcome = shell("gateway", "--override", "num.partition=3")
    assert outcome.status == 2
    assert "num.partitions" in outcome.error


def _topic(name):
    from spark_log.gateway.protocol import message_class

    return message_class("MetadataRequest").MetadataRequestTopic(name=name)
