"""Examples in the help of commands. The tests run each of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TypeVar

Command = TypeVar("Command", bound=Callable[..., None])


def with_examples(*examples: str) -> Callable[[Command], Command]:
    """Return a decorator that adds examples to the help of a command.

    Args:
        examples: command lines as a user types them in a shell, each short enough for a terminal
            of 80 columns.
    """

    def decorate(command: Command) -> Command:
        title = "Example:" if len(examples) == 1 else "Examples:"
        lines = "\n".join(f"  {example}" for example in examples)
        # A line with \b keeps the paragraph that follows it from being wrapped.
        command.__doc__ = f"{inspect.getdoc(command)}\n\n\b\n{title}\n{lines}"
        return command

    return decorate
