"""Names, ids and records of others with control characters: none of them reaches a terminal."""

import json
import os
import pty
import re
import subprocess
import termios

import pytest

from spark_log import Admin, NewTopic, OffsetAndMetadata, TopicPartition
from spark_log.cli.terminal.errors import verdict
from spark_log.cluster import Cluster
from spark_log.coordinator import OffsetsTable
from spark_log.coordinator.group.coordinator import GroupCoordinator
from spark_log.errors import SparkLogError
from spark_log.metadata.topics.creation import topic_records
from tests.cli.support import COMMAND, append, append_batches, begin_dead_transaction, environment
from tests.record.hostile_values import UNSAFE, VALUES
from tests.record.samples import record_batch, row

EVIL = "\x1b[2J\r\x07\x7f\x9b31m\u202e[red]x"
ESCAPED = r"\x1b[2J\x0d\x07\x7f\x9b31m\u202e[red]x"
GROUP = f"g{EVIL}\nother"
TOPIC = f"t{EVIL}"


@pytest.fixture
def hostile(root, monkeypatch):
    """A topic, a group, its member, a client, a record and a file: all of them with bad names."""
    cluster = Cluster(root)
    cluster.metadata.commit(lambda image: topic_records(NewTopic(TOPIC), "A" * 22, image))
    append(root, TOPIC, EVIL.encode(), key=EVIL.encode(), headers=[(EVIL, EVIL.encode())])
    Admin(root).alter_client_quotas({EVIL: {"producer_byte_rate": 5}})
    monkeypatch.setattr("socket.gethostname", lambda: f"host{EVIL}")
    position = {TopicPartition(TOPIC, 0): OffsetAndMetadata(0, f"note{EVIL}")}
    OffsetsTable(cluster).commit(f"empty{EVIL}", position)
    GroupCoordinator(cluster, GROUP).join(
        [TOPIC], client_id=f"client{EVIL}", instance_id=f"instance{EVIL}"
    )
    OffsetsTable(cluster).commit(GROUP, position)
    begin_dead_transaction(root, f"txn{EVIL}", TopicPartition(TOPIC, 0))
    directory = _segment(root).parent
    (directory / f"strange{EVIL}\nname").write_text("")
    return root


def commands(root):
    """Every command that prints a name, an id or a record of somebody else."""
    return [
        ("topics", "list"),
        ("topics", "describe"),
        ("topics", "create", TOPIC, "--if-not-exists"),
        ("topics", "alter", TOPIC, "--partitions", "2", "--validate-only"),
        ("topics", "describe", "nope"),
        ("configs", "describe", "--all"),
        ("configs", "describe", "--entity-type", "clients"),
        ("offsets", "list", TOPIC),
        ("log-dirs",),
        ("brokers", "list"),
        ("replicate", TOPIC, "--dry-run"),
        ("reassign-partitions", "--list"),
        ("elect-leaders", "--election-type", "preferred", "--topic", TOPIC, "--partition", "0"),
        ("top", "--iterations", "1"),
        ("groups", "list"),
        ("groups", "describe", "--all-groups"),
        ("groups", "describe", "--all-groups", "--members", "--verbose"),
        ("groups", "describe", "--all-groups", "--state"),
        ("groups", "members", GROUP),
        ("groups", "delete", GROUP, "--yes"),
        ("groups", "delete-offsets", GROUP, "--topic", TOPIC),
        ("groups", "reset-offsets", GROUP, "--to-earliest", "--topic", TOPIC),
        ("groups", "reset-offsets", f"empty{EVIL}", "--to-earliest", "--topic", TOPIC),
        ("groups", "reset-offsets", f"empty{EVIL}", "--to-committed-at", "1", "--all-topics"),
        ("groups", "repair"),
        ("transactions", "list"),
        ("transactions", "describe", f"txn{EVIL}"),
        ("transactions", "describe", f"no{EVIL}"),
        ("transactions", "describe-producers", TOPIC, "--partition", "0"),
        ("transactions", "find-hanging"),
        ("transactions", "abort", TOPIC, "--partition", "0", "--start-offset", "9"),
        ("clean", "--all-topics", "--dry-run"),
        ("verify", "--notes"),
        ("doctor", "--stuck-after-ms", "1"),
        ("doctor", "--group", f"no{EVIL}"),
        ("dump-log", str(_segment(root)), "--print-data-log"),
        ("consumer-perf", "--topic", TOPIC, "--messages", "1", "--group", f"new{EVIL}"),
        ("delete-records", TOPIC, "--before-offset", "0"),
        ("groups", "delete", f"empty{EVIL}", "--yes"),
        ("topics", "delete", TOPIC, "--yes"),
    ]


@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
def test_no_command_prints_a_control_character(shell, hostile, as_json):
    escaped = 0
    for command in commands(hostile):
        argv = [*command, "--json"] if as_json else command
        outcome = shell(*argv)
        assert outcome.out + outcome.err, argv
        assert not UNSAFE.search(outcome.out + outcome.err), (argv, outcome)
        assert "Traceback" not in outcome.err, (argv, outcome)
        escaped += ESCAPED in outcome.out or ESCAPED in outcome.err
        if as_json and outcome.status == 0 and command[0] != "version":
            assert outcome.document
    if not as_json:
        assert escaped > 15, "most of them name something"


def test_a_line_break_in_a_name_begins_no_line(shell, hostile):
    assert shell("groups", "list").lines == [f"empty{ESCAPED}", rf"g{ESCAPED}\x0aother"]
    assert not [line for line in shell("verify").lines if line.startswith("name")]


def test_json_has_the_names_as_they_are(shell, hostile):
    found = {each["group_id"] for each in shell("groups", "list", "--json").document["groups"]}
    assert found == {GROUP, f"empty{EVIL}"}


def test_an_error_and_a_traceback_are_escaped(capsys, monkeypatch):
    from spark_log.cli.terminal.errors import run

    def command():
        raise SparkLogError(f"group {EVIL} is bad")

    for debug in ("0", "1"):
        monkeypatch.setenv("SPARK_LOG_DEBUG", debug)
        with pytest.raises(SystemExit):
            run(command, argv=[], prog="x")
        err = capsys.readouterr().err
        one_line = ESCAPED.replace(r"\x0d", " ")
        assert f"x: error: group {one_line} is bad" in err
        assert not UNSAFE.search(err)
    assert verdict(SparkLogError("plain")) == (1, "plain")


def test_a_warning_of_the_library_is_escaped(folder):
    code = (
        "import logging; from spark_log.cli.terminal.errors import run\n"
        f"run(lambda: logging.getLogger('spark_log.x').warning({EVIL!r}), argv=[])"
    )
    done = subprocess.run(
        [COMMAND[0], "-c", code],
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )
    assert done.stderr == ESCAPED + "\n"


class TestOnATerminal:
    @pytest.fixture
    def screen(self, hostile, folder):
        """What a command writes to a terminal that is wide enough for Rich's tables."""

        def show(*argv):
            primary, secondary = pty.openpty()
            termios.tcsetwinsize(secondary, (24, 1000))
            process = subprocess.Popen(
                [*COMMAND, *argv, "--root", str(hostile)],
                stdin=subprocess.DEVNULL,
                stdout=secondary,
                stderr=secondary,
                cwd=folder,
                env=environment(TERM="xterm"),
            )
            os.close(secondary)
            shown = b""
            while data := _read(primary):
                shown += data
            os.close(primary)
            process.wait(timeout=60)
            return shown.decode().replace("\r\n", "\n")

        return show

    @pytest.mark.parametrize(
        "argv",
        [("groups", "describe", "--all-groups"), ("groups", "members", GROUP), ("topics", "list")],
        ids=["describe", "members", "list"],
    )
    def test_tables_show_names_escaped_and_without_markup(self, screen, argv):
        shown = screen(*argv)
        assert ESCAPED in shown
        assert not UNSAFE.search(re.sub(r"\x1b\[[0-9;]*m", "", shown)), "only Rich's own colours"

    def test_records_are_escaped_unless_raw(self, screen):
        read = (
            "console-consumer",
            TOPIC,
            "--from-beginning",
            "--max-messages",
            "1",
            "--print-key",
            "--print-headers",
        )
        shown = screen(*read)
        assert f"{ESCAPED}:{ESCAPED}\t{ESCAPED}\t{ESCAPED}\n" in shown
        assert not UNSAFE.search(shown)
        assert f"\t{EVIL}\n" in screen(*read, "--raw")

    def test_format_strings_escape_what_others_chose_unless_raw(self, screen):
        text = r"\x1b[1m%t %k %h %s\n"
        read = ("console-consumer", TOPIC, "--from-beginning", "--max-messages", "1", "-f", text)
        shown = screen(*read)
        assert (
            f"\x1b[1m{ESCAPED} {ESCAPED} {ESCAPED}={ESCAPED} {ESCAPED}\n".replace(
                ESCAPED, f"t{ESCAPED}", 1
            )
            in shown
        )
        assert not UNSAFE.search(shown.replace("\x1b[1m", ""))
        assert f" {EVIL}\n" in screen(*read, "--raw")

    @pytest.mark.parametrize(
        "options",
        [
            ("--print-key", "--print-headers", "--print-timestamp"),
            ("--json",),
            ("-f", "%t %p %o %k %h %s\\n"),
        ],
        ids=["text", "json", "format"],
    )
    def test_records_of_any_bytes_are_escaped(self, screen, hostile, options):
        Admin(hostile).create_topics([NewTopic("binary")])
        for data in VALUES.values():
            short = None if data is None else data[:3_000]
            name = "" if short is None else short.decode("utf-8", "replace")
            one = row(data, key=short, headers=[(name, short), ("", None)])
            append_batches(hostile, "binary", record_batch([one]))
        read = ("console-consumer", "binary", "--from-beginning", "--max-messages")
        shown = screen(*read, str(len(VALUES)), *options)
        assert not UNSAFE.search(shown)
        assert "Traceback" not in shown
        assert "error:" not in shown
        if options == ("--json",):
            found = [json.loads(line) for line in shown.splitlines() if line.startswith("{")]
            assert [each["offset"] for each in found] == list(range(len(VALUES)))
            assert (
                found[list(VALUES).index("twice")]["value"]
                == '{"a": 1, "a": 2, "f": 0.10000000000000000555, "n": -0.0}'
            )


def test_records_in_a_pipe_are_as_they_are(shell, hostile):
    read = ("console-consumer", TOPIC, "--from-beginning", "--max-messages", "1")
    assert shell(*read).out == f"{EVIL}\n"


def test_raw_and_format_strings_replace_no_byte(root, folder):
    append(root, "weather", b"\xff\xfe")
    argv = ["console-consumer", "weather", "--from-beginning", "--max-messages", "1", "--root"]
    for raw, expected in (
        ([], "\ufffd\ufffd\n".encode()),
        (["--raw"], b"\xff\xfe\n"),
        (["-f", "%R%s"], b"\0\0\0\2\xff\xfe"),
    ):
        done = subprocess.run(
            [*COMMAND, *argv, str(root), *raw],
            capture_output=True,
            cwd=folder,
            env=environment(),
            check=True,
        )
        assert done.stdout == expected


def _segment(root):
    return min(root.glob("t\x1b*/*-0/*.log"))


def _read(descriptor):
    try:
        return os.read(descriptor, 65536)
    except OSError:  # Linux: the other side was closed
        return b""
