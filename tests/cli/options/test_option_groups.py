"""Options that several commands share."""

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer

from spark_log.cli.options.option_groups import with_option_groups
from spark_log.cli.terminal.errors import run


@dataclass
class Size:
    width: int
    height: int

    @classmethod
    def from_options(
        cls,
        width: Annotated[int, typer.Option("--width")],
        height: Annotated[int, typer.Option("--height")] = 1,
    ):
        return cls(width, height)


@pytest.fixture
def called():
    return []


@pytest.fixture
def command(called):
    @with_option_groups
    def command(
        name: Annotated[str, typer.Argument()],
        size: Size,
        count: Annotated[int, typer.Option("--count")] = 7,
    ):
        """Draw."""
        called.append((name, size, count))

    return command


def call(command, *argv):
    with pytest.raises(SystemExit) as end:
        run(command, argv=argv, prog="tool")
    return end.value.code


def test_a_command_is_given_what_a_group_makes_of_its_options(command, called):
    assert call(command, "box", "--width", "3", "--count", "2") == 0
    assert call(command, "box", "--height", "5", "--width", "3") == 0
    assert called == [("box", Size(3, 1), 2), ("box", Size(3, 5), 7)]


def test_options_of_a_group_are_in_the_help(command, capsys):
    assert call(command, "--help") == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("Draw.", "name", "--width", "--height", "--count"))
    assert "size" not in shown.lower()


def test_options_of_a_group_can_be_required(command, capsys):
    assert call(command, "box") == 2
    assert "Missing option '--width'" in capsys.readouterr().err
