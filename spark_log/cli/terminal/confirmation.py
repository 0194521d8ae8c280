"""Questions that are asked before something is deleted."""

from __future__ import annotations

import sys

from spark_log.cli.format import print_note
from spark_log.errors import InvalidConfigurationError
from spark_log.util import printable


def is_confirmed(question: str) -> bool:
    """Ask a question on stderr, and return whether the user answers yes.

    Raises:
        InvalidConfigurationError: stdin is not a terminal, so nobody can answer.
    """
    if not sys.stdin.isatty():
        raise InvalidConfigurationError(
            f"{question} Nothing was deleted, because stdin is not a terminal and nobody can "
            f"answer: give --yes"
        )
    from rich.console import Console
    from rich.prompt import Confirm
    from rich.text import Text

    try:
        prompt = Text(printable(question))  # no markup in names
        return Confirm.ask(prompt, console=Console(stderr=True), default=False)
    except EOFError:
        print_note("")  # ends the line of the question
        return False
