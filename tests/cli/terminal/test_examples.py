"""Examples in the help of commands: every command has some, and each of them works."""

import glob
import shlex
import signal
import subprocess

import pytest
import typer

from spark_log import (
    Admin,
    ConfigResource,
    ConfigResourceType,
    NewTopic,
    OffsetAndMetadata,
    TopicPartition,
)
from spark_log.cli.commands.submit import JOBS
from spark_log.cli.lazy_command import loaded
from spark_log.cli.main import app
from spark_log.gateway import GatewayServer
from tests.cli.support import append, begin_transaction


def commands(command, name="spark-log"):
    """Yield the full name and the help of each command that is not a group."""
    if not hasattr(command, "commands"):
        yield name, command.help
        return
    for short, child in command.commands.items():
        yield from commands(loaded(child), f"{name} {short}")


# The help of a job is the job's own: tests/jobs run them.
HELP = {
    name: text
    for name, text in commands(typer.main.get_command(app))
    if name.removeprefix("spark-log ") not in JOBS
}
EXAMPLES = [
    (name, line.strip())
    for name, text in HELP.items()
    for line in text.partition("Example")[2].partition(":\n")[2].splitlines()
]


@pytest.fixture
def root(root):
    """The root of the examples: records in both topics, a group that has read some,
    a transaction that is open, and brokers 1 and 2."""
    for partition in (0, 1):
        append(root, "flights", b"one", b"two", b"three", partition=partition, key=b"JFK")
    append(root, "weather", b"rain")
    offsets = {TopicPartition("flights", number): OffsetAndMetadata(1) for number in (0, 1)}
    Admin(root).alter_group_offsets("reports", offsets)
    begin_transaction(root, "orders", TopicPartition("weather", 0))
    for broker_id in (1, 2):
        Admin(root).register_broker(broker_id, f"{root}-{broker_id}")
    return root


def make_tables(root, shell):
    """Make `flights` a table, and the compacted topic `airports`."""
    table = {"table.format": "delta", "retention.ms": "-1"}  # the records are old
    admin = Admin(root)
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, "flights", table)])
    compacted = {**table, "cleanup.policy": "compact"}
    admin.create_topics(
        [NewTopic("airports", replica_assignment={0: [0]}, topic_configs=compacted)]
    )
    append(root, "airports", b"New York", key=b"JFK")
    assert shell("clean", "flights", "airports").status == 0


@pytest.mark.parametrize("name", HELP)
def test_every_command_has_examples_of_itself_that_fit_the_screen(name):
    examples = [line for of, line in EXAMPLES if of == name]
    assert examples
    for line in examples:
        assert f"{name} " in f"{line} "
        assert len(f"    {line}") <= 80


@pytest.fixture(autouse=True)
def _servers_end_at_once(monkeypatch):
    monkeypatch.setattr("uvicorn.Server.run", lambda self, sockets: self.config.load())
    start = GatewayServer.start

    async def start_and_end(self, host, port, **options):
        found = await start(self, host, 0, **options)
        signal.raise_signal(signal.SIGTERM)
        return found

    monkeypatch.setattr(GatewayServer, "start", start_and_end)


# tests/mirror runs those that need a Kafka cluster.
@pytest.mark.parametrize("line", [line for name, line in EXAMPLES if " mirror" not in name])
def test_an_example_that_is_shown_is_run(line, shell, root):
    typed, _, command = line.rpartition(" | ")
    stdin = subprocess.run(["sh", "-c", typed or ":"], capture_output=True, check=True).stdout
    program, *argv = shlex.split(command.replace("/data/log/", f"{root}/"))
    assert program == "spark-log"
    argv = [path for word in argv for path in (sorted(glob.glob(word)) or [word])]
    if argv[0] == "quorum" and argv[1] != "add":
        for disk in ("disk2", "disk3"):
            assert shell("quorum", "add", disk).status == 0
    if argv[:1] == ["gateway-users"] and argv[1] != "add":
        for store in (("--file", "users"), ()):
            assert shell("gateway-users", "add", "alice", *store, stdin=b"a").status == 0
    if argv[0] in ("table", "get"):
        make_tables(root, shell)
    outcome = shell(*argv, stdin=stdin)
    assert outcome.status == 0, outcome.err
    assert "Traceback" not in outcome.err
