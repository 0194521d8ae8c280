"""A root with topics on disk, and a shell in a folder of its own."""

import sys

import pytest

from spark_log import Admin, NewTopic
from spark_log.cli.main import main
from tests.cli.support import Outcome

FAST = {"flush.on.append": False, "index.interval.bytes": 1}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, with nothing in it and nothing in the environment."""
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for name in ("SPARK_LOG_ROOT", "SPARK_LOG_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def shell(folder, monkeypatch, capsys):
    """Runs a command line in this process: ``shell("topics", "list")`` is an `Outcome`."""

    def run(*argv, stdin=b""):
        typed = folder.parent / "stdin"
        typed.write_bytes(stdin)
        capsys.readouterr()
        with typed.open() as file, monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", file)
            patch.setattr("spark_log.cli.terminal.errors._end_process", sys.exit)
            with pytest.raises(SystemExit) as end:
                main([str(argument) for argument in argv])
        assert isinstance(end.value.code, int)
        return Outcome(end.value.code, *capsys.readouterr())

    return run


@pytest.fixture
def root(tmp_path, folder, monkeypatch):
    """A root named by the environment, with topics ``flights`` (2 partitions) and ``weather``."""
    root = tmp_path / "root"
    topics = [NewTopic("flights", 2, topic_configs=FAST), NewTopic("weather", topic_configs=FAST)]
    Admin(root).create_topics(topics)
    monkeypatch.setenv("SPARK_LOG_ROOT", str(root))
    return root
