"""Names of topics and groups that the shell's completion offers."""

import logging
import threading

import pytest

from spark_log import Admin, NewTopic, OffsetAndMetadata, TopicPartition
from spark_log.cluster import Cluster
from spark_log.metadata.topics.creation import topic_records
from tests.cli.support import environment, spark_log_process


@pytest.fixture(autouse=True)
def groups(root):
    offsets = {TopicPartition("flights", 0): OffsetAndMetadata(0)}
    for group in ("reports", "replays", "x"):
        Admin(root).alter_group_offsets(group, offsets)
    return root


@pytest.fixture
def complete(shell, monkeypatch):
    """Return what bash is offered for a command line; nothing else may be printed."""
    monkeypatch.setattr("spark_log.cli.options.completion._TIMEOUT_MS", 60_000)

    def complete(line):
        with monkeypatch.context() as patch:
            for name, value in asked(line).items():
                patch.setenv(name, value)
            outcome = shell()
        assert (outcome.status, outcome.err) == (0, "")
        return outcome.out.split()

    return complete


def asked(line):
    """Return the environment by which bash asks for completions."""
    return {
        "_SPARK_LOG_COMPLETE": "complete_bash",
        "COMP_WORDS": f"spark-log {line}",
        "COMP_CWORD": str(line.count(" ") + 1),
    }


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("console-consumer ", ["flights", "weather"]),
        ("console-consumer --topic ", ["flights", "weather"]),
        ("console-consumer flights --group re", ["replays", "reports"]),
        ("console-producer --topic w", ["weather"]),
        ("topics describe ", ["flights", "weather"]),
        ("topics describe flights w", ["weather"]),
        ("configs alter --entity-name f", ["flights"]),
        ("groups describe ", ["replays", "reports", "x"]),
        ("groups describe --group x", ["x"]),
        ("groups reset-offsets rep", ["replays", "reports"]),
        ("groups reset-offsets x --topic f", ["flights"]),
        ("groups delete-offsets repo", ["reports"]),
        ("top --group y", []),
    ],
)
def test_offers_what_exists_and_begins_so(complete, line, offered):
    assert complete(line) == offered


def test_reads_the_root_of_the_command_line(complete, root, monkeypatch):
    monkeypatch.delenv("SPARK_LOG_ROOT")
    assert complete(f"topics describe --root {root} w") == ["weather"]


def test_reads_the_root_of_a_properties_file(complete, root, folder, monkeypatch):
    monkeypatch.delenv("SPARK_LOG_ROOT")
    (folder / "other.properties").write_text(f"root={root}\n")
    assert complete("topics describe w") == []
    assert complete("topics describe --config other.properties w") == ["weather"]
    (folder / "spark-log.properties").write_text(f"root={root}\n")
    assert complete("topics describe w") == ["weather"]


@pytest.mark.parametrize(
    "line", ["topics describe --root /nowhere ", "groups describe --config nowhere.properties "]
)
def test_offers_nothing_and_says_nothing_without_a_root(complete, line, monkeypatch):
    monkeypatch.delenv("SPARK_LOG_ROOT")
    assert complete(line) == []


def test_offers_nothing_of_a_root_that_is_damaged(complete, root):
    for path in [*root.glob("__cluster_metadata-0/*.log"), *root.glob("__witnesses/*")]:
        path.write_bytes(b"damaged")
    assert complete("topics describe ") == []


def test_does_not_wait_for_a_storage_that_does_not_answer(complete, monkeypatch):
    monkeypatch.setattr("spark_log.cli.options.completion._TIMEOUT_MS", 1)
    answer = threading.Event()
    monkeypatch.setattr(Admin, "list_topics", lambda admin: answer.wait() and ["late"])
    assert complete("topics describe ") == []
    answer.set()


def test_prints_no_warning(complete, monkeypatch):
    def list_topics(admin):
        logging.getLogger("spark_log").warning("something is odd")
        return ["odd"]

    monkeypatch.setattr(Admin, "list_topics", list_topics)
    assert complete("topics describe ") == ["odd"]
    assert logging.getLogger("spark_log").isEnabledFor(logging.WARNING)


def test_is_what_a_process_answers(folder, root):
    variables = asked("topics describe ") | {"SPARK_LOG_ROOT": str(root)}
    process = spark_log_process(cwd=folder, env=environment(**variables))
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert out.split() in (["flights", "weather"], []), "nothing if the machine is very busy"


def test_offers_no_name_that_a_shell_would_run(complete, root):
    Cluster(root).metadata.commit(
        lambda image: topic_records(NewTopic("$(reboot)"), "A" * 22, image)
    )
    Cluster(root).metadata.commit(lambda image: topic_records(NewTopic("a b"), "B" * 22, image))
    Cluster(root).metadata.commit(lambda image: topic_records(NewTopic("-x"), "C" * 22, image))
    assert complete("topics describe ") == ["flights", "weather"]
