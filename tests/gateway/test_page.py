"""docs/gateway.md: its examples, as a reader types them."""

import os
import shlex
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

from spark_log.cluster import Cluster
from tests.cli.support import COMMAND, environment
from tests.docs.blocks import block
from tests.gateway.security.certificates import write_certificate


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@contextmanager
def served(line, listen="127.0.0.1:0", shown="127.0.0.1:9092"):
    """Run the gateway of a line, which listens elsewhere; yield its first line and its port."""
    argv = shlex.split(line.replace(shown, listen))
    assert argv[:2] == ["spark-log", "gateway"]
    with subprocess.Popen(
        [*COMMAND, *argv[1:]],
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        try:
            first = child.stdout.readline()
            yield first, first.rpartition(":")[2].strip()
        finally:
            child.send_signal(signal.SIGTERM)
            assert child.wait(60) == 0


def run(line):
    """Return the output of a line of the shell."""
    program = f"{shlex.join(COMMAND)} "
    found = subprocess.run(
        ["sh", "-c", line.replace("spark-log ", program)],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    return found.stdout + found.stderr


def test_the_quick_start():
    with served(block("docs/gateway.md", "--create --listen")) as (first, port):
        assert first == block("docs/gateway.md", "Gateway 1001").replace("9092", port)
        script = block("docs/gateway.md", "import Producer").replace("9092", port)
        subprocess.run([sys.executable, "-c", script], check=True)
        found = run(block("docs/gateway.md", "console-consumer orders"))
        assert found.split() == block("docs/gateway.md", "order 0").split()


def test_users_and_encryption(folder):
    authority = write_certificate(folder / "ca.pem", "ca")
    os.replace(folder / "ca.crt", folder / "ca.pem")
    write_certificate(folder / "server.pem", "localhost", authority)
    Cluster(folder / "log", create=True).release()
    run(block("docs/gateway.md", "gateway-users add"))
    (folder / "gateway.properties").write_text(block("docs/gateway.md", "sasl.users.file=users"))
    line = block("docs/gateway.md", "--gateway-config").strip() + " --listen localhost:0"
    with served(line) as (_, port):
        script = block("docs/gateway.md", "import AdminClient").replace("9092", port)
        script += block("docs/gateway.md", "UserScramCredentialUpsertion")
        subprocess.run([sys.executable, "-c", script], check=True)
    assert run("spark-log gateway-users list --root log").split() == ["alice", "bob"]
