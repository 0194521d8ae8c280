"""A command whose module is imported when the command is run.

``spark-log --help`` and the shell's completion need only names and summaries, and no command needs
the modules of the others. A short command spends most of its time in imports.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final

import typer
from typer.core import TyperCommand

from spark_log.cli import commands
from spark_log.cli.format import print_text
from spark_log.util import collector_paused

_SETTINGS_OF_IMPORTS: Final = {
    # No command multiplies matrices: numpy would start a thread for each core.
    "OPENBLAS_NUM_THREADS": "1",
    # pydantic would look for plugins in the metadata of every package that is installed.
    "PYDANTIC_DISABLE_PLUGINS": "__all__",
}
"""Environment variables while modules are imported, unless the user has set them."""


class LazyCommand(TyperCommand):
    """A command of which only the name and the summary are loaded.

    Its code is the module of `spark_log.cli.commands` with its name, which has a function of this
    name with Typer's annotations, or, for a group of commands, an ``app``.
    """

    def __init__(self, name: str, summary: str) -> None:
        super().__init__(name, help=summary)
        self.summary: Final = summary

    def load(self) -> Any:
        """Import the command, and return it in Typer's form."""
        assert self.name is not None
        name = self.name.replace("-", "_")
        with _quick_imports():
            module = import_module(f"{commands.__name__}.{name}")
        app: typer.Typer | None = getattr(module, "app", None)
        if app is not None:
            app.callback(help=self.summary, invoke_without_command=True)(_show_help)
        else:
            app = typer.Typer(add_completion=False, rich_markup_mode=None)
            app.command(self.name)(getattr(module, name))
        return typer.main.get_command(app)

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        """Return the context of the imported command, which runs in place of this one."""
        return self.load().make_context(info_name, args, parent, **extra)


def loaded(command: Any) -> Any:
    """Return the command itself, after importing it if necessary."""
    return command.load() if isinstance(command, LazyCommand) else command


@contextmanager
def _quick_imports() -> Iterator[None]:
    """Save a tenth of the time that imports take (docs/adr/0036)."""
    added = {name: value for name, value in _SETTINGS_OF_IMPORTS.items() if name not in os.environ}
    os.environ.update(added)
    try:
        with collector_paused(makes_old=True):
            yield
    finally:
        if not gc.get_freeze_count():  # the first command of this process
            gc.freeze()  # imports stay: no collection has to visit them
        for name in added:  # processes that the command starts do not inherit these variables
            del os.environ[name]


def _show_help(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print_text(context.get_help())
