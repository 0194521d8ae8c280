"""The application: its commands, its help, and mistakes in how it is called."""

import subprocess
import sys

import pytest

from spark_log import __version__
from spark_log.cli.commands.submit import JOBS
from tests.cli.support import environment, spark_log_process

COMMANDS = [
    "brokers",
    "canary",
    "clean",
    "configs",
    "console",
    "console-consumer",
    "console-producer",
    "consume",
    "consumer-perf",
    "controller",
    "delete-records",
    "doctor",
    "dump-log",
    "elect-leaders",
    "exporter",
    "features",
    "gateway",
    "gateway-users",
    "get",
    "groups",
    "init",
    "log-dirs",
    "mirror",
    "offsets",
    "produce",
    "producer-perf",
    "quorum",
    "reassign-partitions",
    "replay",
    "replicate",
    "reprocess",
    "table",
    "top",
    "topics",
    "transactions",
    "transform",
    "verify",
    "version",
]
GROUPS = {
    "features": "describe",
    "brokers": "list",
    "configs": "describe",
    "controller": "run",
    "gateway-users": "list",
    "groups": "list",
    "mirror": "groups",
    "offsets": "list",
    "quorum": "describe",
    "table": "describe",
    "topics": "list",
    "transactions": "list",
}
"""Groups of commands, each with one of them."""


class TestHelp:
    @pytest.mark.parametrize("argv", [[], ["--help"], ["-h"]], ids=["nothing", "--help", "-h"])
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

    @pytest.mark.parametrize("argv", [["topics"], ["topics", "create"], ["verify"]], ids=" ".join)
    def test_has_a_short_option_everywhere(self, shell, argv):
        outcome = shell(*argv, "-h")
        assert outcome.status == 0
        assert outcome.out == shell(*argv, "--help").out


class TestTopic:
    """A topic may be given as an argument, or as --topic like in Kafka's tools."""

    @pytest.mark.parametrize(
        "command",
        [
            "configs describe",
            "offsets list",
            "log-dirs",
            "topics describe",
            "verify",
            "clean --dry-run",
            "console-consumer --from-beginning --timeout-ms 0",
            "delete-records --before-offset 0 --yes",
        ],
    )
    def test_is_an_argument_or_an_option(self, shell, root, command):
        outcome = shell(*command.split(), "--topic", "flights")
        assert (outcome.status, outcome.err.count("error")) == (0, 0)
        assert outcome.out == shell(*command.split(), "flights").out
        assert outcome.status == 0
        unknown = shell(*command.split(), "--topic", "fligths")
        assert "did you mean flights?" in unknown.error

    @pytest.mark.parametrize("command", ["topics alter --partitions 3", "topics delete --yes"])
    def test_is_required_by_what_changes_one(self, shell, root, command):
        assert shell(*command.split()).error == "which topics? Give TOPIC or --topic"

    def test_can_be_created_and_deleted_by_option(self, shell, root):
        assert shell("topics", "create", "--topic", "new").status == 0
        assert shell("topics", "delete", "--topic", "new", "-y").status == 0
        assert shell("topics", "create").error == "which topic? Give TOPIC or --topic"

    def test_is_one(self, shell, root):
        outcome = shell("console-consumer", "flights", "--topic", "weather")
        assert outcome.error == "TOPIC is 'flights' and --topic is 'weather': give one of them"


class TestUsage:
    @pytest.mark.parametrize(
        ("argv", "message"),
        [
            (["verfy"], "No such command 'verfy'. Did you mean 'verify'? (see spark-log --help)"),
            (["--rot"], "No such option: --rot (see spark-log --help)"),
            (
                ["producer-perf", "flights"],
                "Missing option '--num-records'. (see spark-log producer-perf --help)",
            ),
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


class TestCompletion:
    def test_names_commands_and_options(self, folder):
        for words, expected in [
            ("spark-log topi", "topics"),
            ("spark-log verify --str", "--strict"),
        ]:
            completion = {
                "_SPARK_LOG_COMPLETE": "complete_bash",
                "COMP_WORDS": words,
                "COMP_CWORD": str(words.count(" ")),
            }
            process = spark_log_process(cwd=folder, env=environment(**completion))
            assert process.communicate(timeout=60) == (f"{expected}\n", "")

    @pytest.mark.parametrize("shown", ["bash", "zsh", "fish"])
    def test_is_installed_or_shown(self, shell, shown, monkeypatch, tmp_path):
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setattr("shellingham.detect_shell", lambda *args: (shown, f"/bin/{shown}"))
        outcome = shell("--show-completion")
        assert outcome.status == 0
        assert "_SPARK_LOG_COMPLETE" in outcome.out
        assert shell("--install-completion").status == 0
        assert any("spark-log" in path.name for path in tmp_path.rglob("*"))


class TestProcess:
    @pytest.mark.parametrize("module", ["spark_log", "spark_log.cli"])
    def test_runs_as_a_module(self, folder, module):
        argv = [sys.executable, "-m", module, "--version"]
        outcome = subprocess.run(
            argv, cwd=folder, env=environment(), capture_output=True, check=True
        )
        assert outcome.stderr == b""
        assert outcome.stdout.decode() == f"spark-log {__version__}\n"

    def test_python_m_is_the_same_command(self, folder):
        process = spark_log_process("nonsense", cwd=folder)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out) == (2, "")
        assert err == "spark-log: error: No such command 'nonsense'. (see spark-log --help)\n"
