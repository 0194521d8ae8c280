"""``spark-log console``: it listens, prints where, and ends when it is told to."""

import json
import re
import signal
import socket
import urllib.error
import urllib.request

import pytest

from tests.cli.support import environment, spark_log_process


@pytest.fixture
def process(own_root, tmp_path):
    """Starts a console as a process of its own, on a free port; returns it and its URL."""
    started = []

    def start(*argv):
        made = spark_log_process(
            "console",
            "--root",
            str(own_root),
            "--port",
            "0",
            *argv,
            cwd=tmp_path,
            env=environment(),
        )
        started.append(made)
        (url,) = re.findall(r"http://\S+", made.stdout.readline())
        return made, url

    yield start
    for made in started:
        made.kill()
        made.communicate()


def test_it_serves_the_root_until_it_is_interrupted(process):
    console, url = process()
    assert url.startswith("http://127.0.0.1:")
    with urllib.request.urlopen(f"{url}api/topics") as answer:
        assert json.load(answer)["topics"][0]["name"] == "flights"
    evil = urllib.request.Request(f"{url}api/topics", headers={"Host": "evil.example"})
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(evil)
    console.send_signal(signal.SIGINT)
    assert "Traceback" not in console.communicate(timeout=60)[1]


def test_the_token_is_printed_only_with_allow_changes(process):
    console, url = process("--allow-changes")
    token = console.stderr.readline().split()[-1]
    with urllib.request.urlopen(f"{url}group/reset?group=reports") as page:
        assert token not in page.read().decode()
    body = json.dumps({"group": "reports", "to": "latest"}).encode()
    asked = urllib.request.Request(
        f"{url}api/group/reset", body, {"Authorization": f"Bearer {token}"}
    )
    with urllib.request.urlopen(asked) as answer:
        assert json.load(answer)["offsets"][0]["new_offset"] == 10


def test_a_port_in_use_is_a_mistake(own_root, shell):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        outcome = shell("console", "--root", own_root, "--port", port)
    assert outcome.status == 2
    assert "give another --host or --port" in outcome.error


def test_an_avro_schema_belongs_to_a_topic(own_root, shell):
    outcome = shell("console", "--root", own_root, "--avro-schema", "schema.json")
    assert outcome.status == 2
    assert "is not TOPIC=FILE" in outcome.error
