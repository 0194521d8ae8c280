"""Groups of options that several commands share, each written once.

A command has a parameter whose type is an option group. The command line then has the options of
the group, and the command gets the object that the group makes of their values::

    @app.command("list")
    @with_option_groups
    def list_topics(root: Root, output: Output) -> None: ...

An option group is any class with a method ``from_options`` whose parameters have Typer's
annotations.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any


def with_option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Return ``command`` with each option group in its parameters replaced by its options."""
    parameters = inspect.signature(command, eval_str=True).parameters
    groups = {
        name: parameter.annotation
        for name, parameter in parameters.items()
        if hasattr(parameter.annotation, "from_options")
    }
    options = {
        name: inspect.signature(group.from_options, eval_str=True).parameters
        for name, group in groups.items()
    }

    @wraps(command)
    def expanded(**values: Any) -> None:
        made = {
            name: group.from_options(**{option: values.pop(option) for option in options[name]})
            for name, group in groups.items()
        }
        command(**values, **made)

    shown = [parameter for name, parameter in parameters.items() if name not in groups]
    shown += [option for members in options.values() for option in members.values()]
    keywords = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in shown]
    expanded.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    return expanded
