"""Asking before something is gone for good."""

from __future__ import annotations

import sys

from spark_log.cli.format.output import print_note
from spark_log.errors import InvalidConfigurationError
from spark_log.printable import printable


def is_confirmed(question: str) -> bool:
    """Ask on a terminal, on stderr.

    Raises:
        InvalidConfigurationError: stdin is no terminal, so that nobody can be asked.
    """
    if not sys.stdin.isatty():
        raise InvalidConfigurationError(
            f"{question} Nobody can answer, stdin is no terminal: give --yes. Nothing was deleted"
        )
    from rich.console import Console
    from rich.prompt import Confirm
    from rich.text import Text

    try:
        prompt = Text(printable(question))  # no markup in names
        return Confirm.ask(prompt, console=Console(stderr=True), default=False)
    except EOFError:
        print_note("")  # the cursor stands behind the question
        return False
