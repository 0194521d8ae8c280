"""Names of topics and groups for the shell's completion.

They are read from the root that is named in the command line so far, in the environment or in the
properties file. A completion never fails, prints nothing else, and ends within about a second,
without names if they could not be read by then.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import typer

from spark_log.admin import Admin
from spark_log.cli.options.root import Root
from spark_log.threads import call_within

_TIMEOUT_MS: Final = 1000

_SAFE: Final = re.compile(r"[\w.@%+=/][\w.@%+=,:/-]*")
"""Names that mean only themselves to a shell: it puts them into the command line as they are."""


def complete_topics(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names of the topics that begin with ``incomplete``; none if they are not known."""
    return _names(context, incomplete, lambda admin: admin.list_topics())


def complete_groups(context: typer.Context, incomplete: str) -> list[str]:
    """Return the ids of the groups that begin with ``incomplete``; none if they are not known."""
    return _names(
        context, incomplete, lambda admin: [each.group_id for each in admin.list_groups()]
    )


def complete_transactional_ids(context: typer.Context, incomplete: str) -> list[str]:
    """Return the transactional ids that begin with ``incomplete``; none if they are not known."""
    return _names(
        context,
        incomplete,
        lambda admin: [each.transactional_id for each in admin.list_transactions()],
    )


def _names(
    context: typer.Context, incomplete: str, read: Callable[[Admin], Iterable[str]]
) -> list[str]:
    given = context.params
    config = given.get("command_config", given.get("config"))

    def names() -> list[str]:
        root = Root.from_options(given.get("root"), config, given.get("storage_option"))
        return [
            name
            for name in read(root.admin())
            if name.startswith(incomplete) and _SAFE.fullmatch(name)
        ]

    # Errors cannot be reported: any output appears in the middle of the command line.
    with _without_log_lines(), suppress(Exception):
        return call_within(_TIMEOUT_MS, names, what="completion", setting="its time limit")
    return []


@contextmanager
def _without_log_lines() -> Iterator[None]:
    before = logging.root.manager.disable
    logging.disable()
    try:
        yield
    finally:
        logging.disable(before)
