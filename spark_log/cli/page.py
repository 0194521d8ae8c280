"""docs/cli.md, from the application ``spark-log`` and the jobs that it submits."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, Final

import typer

from spark_log.cli.commands.submit import JOBS
from spark_log.cli.lazy_command import loaded
from spark_log.cli.main import app

_HEAD: Final = """\
<!-- Generated from the commands in spark_log/cli/ by `make docs`. -->

# The command line

"""

_SHARED: Final = """\
Every command prints its help by `--help` (`-h`). An error is one line on stderr; the environment
variable `SPARK_LOG_DEBUG=1` shows the traceback.

Options of nearly every command:

"""

_SHARED_OPTIONS: Final = ("--root", "--command-config", "--storage-option", "--output", "--json")

_JOB: Final = """\
Runs [the job of this name](jobs.md) by `spark-submit`, and needs `spark-log[spark]`. `--master URL`
and `--conf KEY=VALUE` go to `spark-submit`.

"""

_EXAMPLES = re.compile(r"\n*^\x08?\n?Examples?:\n((?:  .*\n?)+)", re.MULTILINE)
_NOTE = re.compile(r"\s*\[(default|env var|required|x[<>]|\d+<=)([^]]*?)(; required)?\]")
_CODE = re.compile(
    r"(?<!\S)[('\"]*"
    r"(--?[a-zA-Z][\w-]*"  # an option
    r"|\w+\(\)"
    r"|\{[^}]*\}"
    r"|[^\s(]*[_*\\%={}<>|]\S*?"  # text that Markdown would interpret
    r"|[\w/-]*[a-z]\.[a-zA-Z][\w.-]*?)"  # a setting, a file
    r"(?=[.,;:)'\"]*(?:\s|$))"
)


def cli_page() -> str:
    """Return the page as Markdown. Needs pyspark, because the jobs print their own help."""
    root = _command(app)
    text, _ = _help(root)
    shared = [each for each in _options(_find(root, "topics", "create")) if _is_shared(each)]
    parts = [_HEAD, text, _SHARED, *_list(shared)]
    for name, command in sorted(root.commands.items()):
        parts += _section(loaded(command), name, {help_text for _, help_text in shared})
    return re.sub(r"\n{3,}", "\n\n", "".join(parts)).rstrip("\n") + "\n"


def markdown_text(text: str) -> str:
    """Return the text of a help with options, settings and files as code.

    Characters that Markdown would interpret are escaped.
    """
    spans = [0, *(at for found in _CODE.finditer(text) for at in found.span(1)), len(text)]
    parts = [text[first:last] for first, last in pairwise(spans)]
    for number, part in enumerate(parts):
        parts[number] = f"`{part}`" if number % 2 else re.sub(r"([\\`*_<\[])", r"\\\1", part)
    return "".join(parts)


def _section(command: Any, name: str, shared: set[str]) -> Iterator[str]:
    """The text of a command, followed by those of its subcommands."""
    yield f"\n{'#' * (2 + name.count(' '))} {name}\n\n"
    if name in JOBS:
        job = typer.Typer(rich_markup_mode=None, add_completion=False)
        job.command()(importlib.import_module(f"spark_log.jobs.{name}").main)
        command = _command(job)
    text, examples = _help(command)
    subcommands = getattr(command, "commands", {})
    if not subcommands:
        usage = command.get_usage(_context(command, name)).removeprefix("Usage: ")
        yield f"`spark-log {usage}`\n\n"
    yield text
    if name in JOBS:
        yield _JOB
    if subcommands:
        for each, child in subcommands.items():
            yield from _section(child, f"{name} {each}", shared)
        return
    if examples:
        yield "```sh\n" + "".join(f"{line}\n" for line in examples) + "```\n\n"
    yield from _parameters(command, shared)


def _parameters(command: Any, shared: set[str]) -> Iterator[str]:
    """The arguments and options of a command; only the names of shared options."""
    context = _context(command, "")
    params = command.get_params(context)
    arguments = [
        record
        for each in params
        if each.param_type_name == "argument" and (record := each.get_help_record(context))
    ]
    options = [each for each in _options(command) if "--help" not in each[0]]
    own = [each for each in options if each[1] not in shared]
    yield from _list([*arguments, *own])
    common = [f"`{_names(each)}`" for each in options if each[1] in shared]
    if common:
        names = ", ".join(common)
        yield f"\n{'Also' if own or arguments else 'Takes'} {names}.\n"


def _options(command: Any) -> list[tuple[str, str]]:
    context = _context(command, "")
    params = command.get_params(context)
    records = [each.get_help_record(context) for each in params if each.param_type_name == "option"]
    return [each for each in records if each]


def _names(option: tuple[str, str]) -> str:
    """The names of an option, without the placeholder of its value."""
    return ", ".join(re.findall(r"--[\w-]+", option[0]))


def _is_shared(option: tuple[str, str]) -> bool:
    return any(name in _names(option).split(", ") for name in _SHARED_OPTIONS)


def _list(params: Iterable[tuple[str, str]]) -> Iterator[str]:
    for names, text in params:
        notes = [_note(kind, rest) for kind, rest, _ in _NOTE.findall(text)]
        notes += ["Required." for *_, required in _NOTE.findall(text) if required]
        sentences = [markdown_text(_NOTE.sub("", text).strip()), *notes]
        yield f"- `{names}`: {' '.join(each for each in sentences if each)}\n"


def _note(kind: str, rest: str) -> str:
    """The text in brackets after the help of an option, as a sentence."""
    match kind:
        case "default":
            return f"Default{markdown_text(rest)}."
        case "env var":
            return f"Environment variable: `{rest.removeprefix(': ')}`."
        case "required":
            return "Required."
        case _:
            return f"Range: `{kind}{rest}`."


def _help(command: Any) -> tuple[str, list[str]]:
    """The help of a command as paragraphs, and its examples."""
    text = command.help or ""
    found = _EXAMPLES.search(text)
    examples = [line.strip() for line in found[1].splitlines()] if found else []
    text = _EXAMPLES.sub("", text).replace("\x08", "").strip()
    paragraphs = [" ".join(each.split()) for each in re.split(r"\n\s*\n", text)]
    return "".join(f"{markdown_text(each)}\n\n" for each in paragraphs), examples


def _command(application: typer.Typer) -> Any:
    return typer.main.get_command(application)


def _find(command: Any, *names: str) -> Any:
    for name in names:
        command = loaded(command.commands[name])
    return command


def _context(command: Any, name: str) -> typer.Context:
    return typer.Context(command, info_name=name)
