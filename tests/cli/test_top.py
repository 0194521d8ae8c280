"""``spark-log top``: topics and groups, live."""

import os
import pty
import re
import signal
import subprocess
import termios
from functools import partial

import pytest

from spark_log import Admin, NewTopic, OffsetAndMetadata, TopicPartition
from spark_log.cluster.cluster import open_cluster
from tests.cli.support import COMMAND, SteppingClock, append, environment, spark_log_process


@pytest.fixture
def clock(monkeypatch):
    """The clock of the commands of this test: nobody really sleeps."""
    clock = SteppingClock()
    monkeypatch.setattr(
        "spark_log.cli.options.root.open_cluster", partial(open_cluster, clock=clock)
    )
    return clock


@pytest.fixture(autouse=True)
def records(root):
    append(root, "flights", b"a", b"b")
    append(root, "weather", b"c")
    position = {TopicPartition("flights", 0): OffsetAndMetadata(1)}
    Admin(root).alter_group_offsets("reports", position)


class TestPlainTables:
    def test_follow_each_other(self, shell, root, clock):
        clock.steps += [lambda: append(root, "flights", b"d", b"e", b"f")]
        outcome = shell("top", "--iterations", "2", "--interval", "1.5")
        assert (outcome.status, outcome.err) == (0, "")
        assert clock.sleeps_ms == [1500]
        first, second = outcome.out.split("\n\n2023")
        assert first.splitlines()[0] == "2023-11-14T22:13:20Z  2 topics, 1 group"
        words = [line.split() for line in first.splitlines()]
        assert words[1] == ["TOPIC", "RECORDS/S", "BYTES/S", "END-OFFSETS", "RECORDS", "BYTES"]
        assert words[2][:5] == ["flights", "-", "-", "2", "2"]
        assert words[5] == ["GROUP", "TOPIC", "PARTITIONS", "LAG", "RECORDS/S"]
        assert words[6] == ["reports", "flights", "1", "1", "-"]
        assert second.splitlines()[0].endswith(" 2 topics, 1 group, rates of 1.5 s")
        words = [line.split() for line in second.splitlines()]
        assert (words[2][:2], words[2][3:5]) == (["flights", "2.0"], ["5", "5"])
        assert words[6] == ["reports", "flights", "1", "4", "0.0"]

    def test_are_of_some_topics_and_groups(self, shell, root, clock):
        Admin(root).alter_group_offsets(
            "other", {TopicPartition("weather", 0): OffsetAndMetadata(1)}
        )
        argv = ["flights", "weather", "--group", "other", "-n", "1"]
        shown = shell("top", *argv).out
        assert "reports" not in shown
        assert re.search(r"^other +weather +1 +0 +-$", shown, re.MULTILINE)
        assert "flights" not in shell("top", "--topic", "weather", "-n", "1").out

    @pytest.mark.parametrize(
        ("sort", "order"),
        [
            ("name", ["a-big", "flights", "weather"]),
            ("records", ["weather", "flights", "a-big"]),
            ("bytes", ["flights", "weather", "a-big"]),
            ("size", ["a-big", "flights", "weather"]),
            ("lag", ["flights", "a-big", "weather"]),
        ],
    )
    def test_begin_with_what_is_highest(self, shell, root, clock, sort, order):
        Admin(root).create_topics([NewTopic("a-big")])
        append(root, "a-big", b"x" * 100_000)

        def appends():
            append(root, "weather", b"1", b"2", b"3", b"4")
            append(root, "flights", b"y" * 10_000)

        clock.steps += [appends]
        argv = ["top", "--iterations", "2", "--sort", sort, "--json"]
        document = shell(*argv).documents[1]
        assert [each["topic"] for each in document["topics"]] == order


class TestJson:
    def test_the_interval_is_in_whole_milliseconds(self, shell, root, clock):
        outcome = shell("top", "--iterations", "2", "--interval", "0.1234", "--json")
        assert outcome.documents[1]["interval_ms"] == 123

    def test_is_an_object_for_each_refresh(self, shell, root, clock):
        clock.steps += [lambda: append(root, "flights", b"d", partition=1)]
        outcome = shell("top", "--iterations", "2", "--interval", "2", "--json")
        first, second = outcome.documents
        assert (first["time"], first["interval_ms"]) == ("2023-11-14T22:13:20Z", None)
        assert (second["time"], second["interval_ms"]) == ("2023-11-14T22:13:22Z", 2000)
        flights = second["topics"][0]
        size_bytes, rate = flights.pop("size_bytes"), flights.pop("bytes_per_second")
        assert size_bytes > 2 * rate > 0
        assert flights == {
            "topic": "flights",
            "log_end_offsets": [2, 1],
            "records": 3,
            "records_per_second": 0.5,
        }
        assert second["groups"] == [
            {
                "group_id": "reports",
                "topic": "flights",
                "partitions": 1,
                "lag": 1,
                "records_per_second": 0.0,
            }
        ]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["fligths"], "did you mean flights?"),
        (["--interval", "0"], "Invalid value for '--interval'"),
        (["--iterations", "0"], "Invalid value for '--iterations'"),
        (["--sort", "age"], "Invalid value for '--sort'"),
    ],
)
def test_mistakes_are_one_line(shell, root, argv, message):
    outcome = shell("top", *argv)
    assert (outcome.status, outcome.out) == (2, "")
    assert message in outcome.error


def test_ctrl_c_ends_it_with_status_0(root, folder):
    process = spark_log_process("top", "--interval", "600", "--json", "--root", root, cwd=folder)
    assert process.stdout.readline().startswith('{"time": ')
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60) == ("", "")
    assert process.returncode == 0


class TestOnATerminal:
    @pytest.fixture
    def screen(self, root, folder):
        """What `top` draws on a terminal until a key is pressed, and its exit status."""

        def show(key, until, width=80, height=24, status=0):
            primary, secondary = pty.openpty()
            termios.tcsetwinsize(secondary, (height, width))
            argv = [*COMMAND, "top", "--interval", "600", "--root", str(root)]
            process = subprocess.Popen(
                argv,
                stdin=secondary,
                stdout=secondary,
                stderr=secondary,
                cwd=folder,
                env=environment(TERM="xterm"),
            )
            before = termios.tcgetattr(secondary)
            shown = b""
            while until not in shown:
                shown += os.read(primary, 65536)
            if isinstance(key, signal.Signals):
                process.send_signal(key)
            else:
                os.write(primary, key)
            os.set_blocking(primary, False)
            ended = process.wait(timeout=60)
            after = termios.tcgetattr(secondary)
            os.close(secondary)
            os.close(primary)
            assert (ended, after) == (status, before)
            return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode())

        return show

    @pytest.mark.parametrize("key", [b"q", b"Q"])
    def test_a_key_ends_it(self, screen, key):
        lines = screen(key, b"reports").splitlines()
        assert "2 topics, 1 group" in lines[0]
        assert lines[1].split()[:2] == ["Topic", "Records/s"]

    def test_sigterm_restores_the_terminal(self, screen):
        screen(signal.SIGTERM, b"reports", status=128 + signal.SIGTERM)

    def test_no_number_of_a_topic_with_a_long_name_is_cut(self, screen, root):
        name = "a-topic-with-a-name-of-sixty-characters-that-is-very-very-long"
        Admin(root).create_topics([NewTopic(name)])
        append(root, name, *[b"x"] * 12_345)
        shown = screen(b"q", b"reports")
        assert "12,345" in shown
        assert "…" not in shown
        assert max(map(len, shown.splitlines())) <= 80
        parts = [line.split()[0] for line in shown.splitlines() if line.strip()]
        assert name in "".join(parts)

    @pytest.mark.parametrize("height", [5, 24])
    def test_groups_are_seen_below_more_topics_than_fit(self, screen, root, height):
        Admin(root).create_topics([NewTopic(f"topic-{number}") for number in range(40)])
        assert "flights" in screen(b"q", b"reports" if height == 24 else b"flights", height=height)
