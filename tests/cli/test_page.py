"""docs/cli.md: generated, complete, and with examples that the tests run."""

import re
from typing import Any

import pytest
import typer

from spark_log.cli.commands.submit import JOBS
from spark_log.cli.lazy_command import loaded
from spark_log.cli.main import app
from spark_log.cli.page import cli_page, markdown_text
from tests.cli.terminal.test_examples import EXAMPLES, HELP
from tests.docs.blocks import PROJECT, blocks


@pytest.fixture(scope="module")
def page():
    return (PROJECT / "docs/cli.md").read_text("utf-8")


def test_the_page_is_generated_from_the_commands(page):
    assert page == cli_page(), "run `make docs`"


def test_the_examples_of_the_page_are_those_that_are_run():
    shown = [line for block in blocks("docs/cli.md") for line in block.code.splitlines()]
    assert sorted(shown) == sorted(line for _, line in EXAMPLES)


def section(page, name):
    title = name.removeprefix("spark-log ")
    (found,) = re.findall(rf"^##+ {re.escape(title)}\n(.*?)(?=^##|\Z)", page, re.M | re.S)
    return found


@pytest.mark.parametrize("name", HELP)
def test_every_option_of_a_command_is_in_its_section(page, name):
    command: Any = typer.main.get_command(app)
    for word in name.split()[1:]:
        command = loaded(command.commands[word])
    text = section(page, name)
    options = [opt for each in command.get_params(typer.Context(command)) for opt in each.opts]
    assert [each for each in options if each.startswith("--") and each not in text] == ["--help"]


@pytest.mark.parametrize("job", JOBS)
def test_a_job_has_the_options_of_its_own_help(page, job):
    text = section(page, job)
    assert f"`spark-log {job} " in text
    assert "--root" in text
    assert len(re.findall(r"^- `", text, re.M)) >= 5


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Give --topic or a_b.", "Give `--topic` or `a_b`."),
        ("Reads storage.*, and x < y.", "Reads `storage.*`, and x `<` y."),
        ("As in Kafka's tool: TOPIC[:N].", "As in Kafka's tool: TOPIC\\[:N]."),
        ("Set by file.delete.delay.ms (in ms).", "Set by `file.delete.delay.ms` (in ms)."),
        ("%s value; \\n, \\\\.", "`%s` value; `\\n`, `\\\\`."),
    ],
)
def test_markdown_changes_nothing_in_a_help(text, shown):
    assert markdown_text(text) == shown
