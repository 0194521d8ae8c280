"""Asking before something is gone for good."""

from __future__ import annotations

import sys

from spark_log.cli.output import print_note


def is_confirmed(question: str) -> bool:
    """Ask on a terminal, on stderr; where nobody can be asked, the command line is the answer."""
    if not sys.stdin.isatty():
        return True
    from rich.console import Console
    from rich.prompt import Confirm

    try:
        return Confirm.ask(question, console=Console(stderr=True), default=False)
    except EOFError:
        print_note("")  # the cursor stands behind the question
        return False
