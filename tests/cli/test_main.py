"""The application: its commands, its help, and mistakes in how it is called."""

import pytest

from spark_log import __version__
from spark_log.cli.commands.submit import JOBS
from tests.cli.support import spark_log_process

COMMANDS = [
    "clean",
    "configs",
    "console-consumer",
    "console-producer",
    "consume",
    "consumer-perf",
    "delete-records",
    "dump-log",
    "groups",
    "init",
    "log-dirs",
    "offsets",
    "produce",
    "producer-perf",
    "replay",
    "reprocess",
    "topics",
    "verify",
    "version",
]
GROUPS = {"configs": "describe", "groups": "list", "offsets": "list", "topics": "list"}
"""Groups of commands, each with one of them."""


class TestHelp:
    @pytest.mark.parametrize("argv", [[], ["--help"]], ids=["nothing", "--help"])
    def test_lists_every_command(self, shell, argv):
        outcome = shell(*argv)
        assert outcome.status == 0
        listed = outcome.out.partition("Commands:\n")[2].splitlines()
        assert sorted(line.split()[0] for line in listed) == COMMANDS

    @pytest.mark.parametrize("argv", [[], *([group] for group in GROUPS)], ids=["all", *GROUPS])
    def test_does_not_cut_short_what_a_command_does(self, shell, argv):
        assert "..." not in shell(*argv).out.partition("Commands:\n")[2]

    @pytest.mark.parametrize("group", GROUPS)
    def test_of_a_group_is_what_its_name_alone_shows(self, shell, group):
        assert shell(group).out == shell(group, "--help").out

    @pytest.mark.parametrize("command", [each for each in COMMANDS if each not in JOBS])
    def test_is_plain_text_that_names_the_output_option(self, shell, command):
        argv = [command, GROUPS[command]] if command in GROUPS else [command]
        outcome = shell(*argv, "--help")
        assert outcome.status == 0
        assert "--output <text|json>" in outcome.out
        assert "--json" in outcome.out
        assert "\x1b" not in outcome.out
        assert "─" not in outcome.out


class TestUsage:
    @pytest.mark.parametrize(
        ("argv", "message"),
        [
            (["topic"], "No such command 'topic'. Did you mean 'topics'? (see spark-log --help)"),
            (["--rot"], "No such option: --rot (see spark-log --help)"),
            (["topics", "create"], "Missing argument 'NAME'. (see spark-log topics create --help)"),
            (
                ["version", "--output", "xml"],
                "Invalid value for '--output': 'xml' is not one of 'text', 'json'. "
                "(see spark-log version --help)",
            ),
            (
                ["dump-log", "no.log"],
                "Invalid value for 'FILE': file 'no.log' does not exist. "
                "(see spark-log dump-log --help)",
            ),
        ],
        ids=lambda value: "-".join(value) if isinstance(value, list) else "",
    )
    def test_mistakes_are_one_line_and_status_2(self, shell, argv, message):
        outcome = shell(*argv)
        assert (outcome.status, outcome.out) == (2, "")
        assert outcome.error == message


class TestVersion:
    def test_is_an_option_too(self, shell):
        assert shell("--version").out == f"spark-log {__version__}\n"


class TestProcess:
    def test_python_m_is_the_same_command(self, folder):
        process = spark_log_process("nonsense", cwd=folder)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out) == (2, "")
        assert err == "spark-log: error: No such command 'nonsense'. (see spark-log --help)\n"
