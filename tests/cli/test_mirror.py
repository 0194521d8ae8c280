"""``spark-log mirror``: mistakes are one line, and write nothing."""

import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from spark_log import Admin
from tests.cli.support import append

NOWHERE = "127.0.0.1:1"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["from-kafka"], "Give --bootstrap-server"),
        (["to-kafka"], "Give --bootstrap-server"),
        (["from-kafka", "--topics", "("], "--topics '(' is not a regular expression"),
        (["from-kafka", "--topics-exclude", "["], "--topics-exclude '[' is not"),
        (["from-kafka", "--sync-groups", "*"], "--sync-groups '*' is not"),
        (["from-kafka", "--kafka-alias", "a.b"], "--kafka-alias is 'a.b'"),
        (["to-kafka", "--log-alias", "kafka"], "give two different names"),
        (["from-kafka", "--replication-policy", "same"], "give identity or default"),
        (["from-kafka", "--commit-interval-ms", "0"], "--commit-interval-ms"),
        (["from-kafka", "--kafka-property", "no.such=1"], "no.such"),
        (["from-kafka", "--kafka-property", "no"], "KEY=VALUE"),
        (["groups", "--to", "there"], "give log or kafka"),
        (["groups", "--to", "log", "--group", "("], "--group '(' is not"),
    ],
)
def test_a_mistake_is_one_line_and_writes_nothing(shell, root, given, said):
    pytest.importorskip("confluent_kafka")
    before = Admin(root).list_topics()
    servers = [] if "Give" in said else ["--bootstrap-server", NOWHERE]
    outcome = shell("mirror", *given, *servers)
    assert outcome.status == 2
    assert said in outcome.error
    assert Admin(root).list_topics() == before


def test_a_root_that_does_not_exist_is_a_mistake(shell, folder):
    pytest.importorskip("confluent_kafka")
    for given in (["to-kafka"], ["groups", "--to", "kafka"]):
        outcome = shell("mirror", *given, "--bootstrap-server", NOWHERE, "--root", folder / "no")
        assert outcome.status == 2, outcome.err
        assert outcome.error
    assert not (folder / "no").exists()


def test_without_the_extra_it_says_what_to_install(root):
    hidden = "import sys; sys.modules['confluent_kafka'] = None; from spark_log.cli import main; "
    call = f"main({['mirror', 'from-kafka', '--bootstrap-server', NOWHERE]!r})"
    argv = [sys.executable, "-c", hidden + call]
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert "pip install 'spark-log[bridge]'" in done.stderr
    assert done.stderr.count("\n") == 1


class TestFromRoot:
    def test_topics_are_copied(self, shell, root, folder):
        append(root, "flights", b"one", b"two", partition=1)
        argv = ["mirror", "from-root", "--source", root, "--root", folder / "copy", "--until-end"]
        answer = shell(*argv, "--json").document
        assert answer["records_lag"] == 0
        assert {"topic": "flights", "partition": 1, "end_offset": 2, "lag": 0} in answer[
            "partitions"
        ]
        assert shell(*argv, "--topics", "weather").lines[-1].split() == ["weather", "0", "0", "0"]

    def test_an_unchanged_source_is_asked_less_often(self, shell, root, folder, monkeypatch):
        append(root, "flights", b"one")
        now_s, pauses_s = 0.0, []

        def sleep(pause_s):
            nonlocal now_s
            pauses_s.append(pause_s)
            now_s += pause_s
            if now_s > 60:
                signal.raise_signal(signal.SIGTERM)

        clock = SimpleNamespace(sleep=sleep, monotonic=lambda: now_s)
        monkeypatch.setattr("spark_log.cli.commands.mirror.time", clock)
        outcome = shell("mirror", "from-root", "--source", root, "--root", folder / "copy")
        assert outcome.status == 128 + signal.SIGTERM
        assert pauses_s == sorted(pauses_s)
        assert (pauses_s[0], pauses_s[-1]) == (0.5, 2.0)

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            (["--source", "no"], "no"),
            (["--source", "no", "--throttle", "0"], "--throttle"),
            (["--source", "no", "--topics", "("], "--topics '('"),
            ([], "--source"),
        ],
    )
    def test_a_mistake_writes_nothing(self, shell, root, given, said):
        outcome = shell("mirror", "from-root", *given)
        assert outcome.status == 2
        assert said in outcome.error
        assert Admin(root).list_topics() == ["flights", "weather"]


def test_a_source_that_does_not_exist_makes_no_target(shell, folder):
    argv = ["mirror", "from-root", "--source", folder / "no", "--root", folder / "copy"]
    assert shell(*argv).status == 2
    assert not (folder / "copy").exists()


def test_the_settings_of_kafka_are_not_shown():
    from spark_log.cli.options.mirror import KafkaOptions

    options = KafkaOptions.from_options(NOWHERE, None, ["sasl.password=secret"])
    assert "secret" not in repr(options)
