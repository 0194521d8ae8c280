"""The answer to a scrape over HTTP."""

import socket
import urllib.error

import pytest

from spark_log.errors import InvalidConfigurationError
from spark_log.metrics import MetricsServer
from tests.metrics.support import get


@pytest.fixture
def serve():
    servers = []

    def start(read, port=0):
        servers.append(MetricsServer("127.0.0.1", port, read))
        return servers[-1].port

    yield start
    for each in servers:
        each.close()


def test_metrics_and_health_are_answered(serve):
    port = serve(lambda: b"a 1\n")
    assert get(port) == get(port, "/metrics?x=1") == b"a 1\n"
    assert get(port, "/healthz") == b"ok\n"
    assert b"/metrics" in get(port, "/")
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(port, "/etc/passwd")


def test_a_fault_is_answered_without_its_text(serve):
    port = serve(lambda: 1 // 0)
    with pytest.raises(urllib.error.HTTPError, match="500") as failed:
        get(port)
    assert b"division" not in failed.value.read()
    assert get(port, "/healthz") == b"ok\n", "the server goes on"


def test_connections_are_limited(serve, monkeypatch):
    monkeypatch.setattr("spark_log.metrics.server._MAX_CONNECTIONS", 2)
    port = serve(lambda: b"a 1\n")
    idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(2)]
    for each in idle:
        each.sendall(b"GET /")  # an unfinished request holds its connection
    with socket.create_connection(("127.0.0.1", port)) as third:
        third.settimeout(30)
        assert third.recv(1) == b"", "closed at once"
    for each in idle:
        each.close()


def test_a_port_that_is_taken_is_named(serve):
    port = serve(lambda: b"")
    with pytest.raises(InvalidConfigurationError, match=f"127.0.0.1:{port}"):
        serve(lambda: b"", port)
