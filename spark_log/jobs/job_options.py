"""Command line options that several jobs have."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from spark_log.datasource.options.option_parser import STORAGE_PREFIX
from spark_log.errors import InvalidOptionError
from spark_log.storage import StorageOptions

SinkOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE",
        help="Option for the file system of the Delta table. Repeatable. [default: the options of "
        "the root]",
    ),
]
"""Storage options of a Delta table that a job writes to; None for those of the root."""


def connection_options(root: str, storage_options: StorageOptions) -> dict[str, str]:
    """Return the options that every read and write of ``format("spark_log")`` needs."""
    storage = {f"{STORAGE_PREFIX}{key}": str(value) for key, value in storage_options.items()}
    return {"path": root, **storage}


def parse_instant(text: str | None, flag: str) -> datetime | None:
    """Return the time that an option contains; None if it is not set.

    Args:
        text: ISO 8601, in UTC unless it has an offset.
        flag: name of the option, for the error.

    Raises:
        InvalidOptionError: the text is not a time.
    """
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidOptionError(
            f"{flag} is {text!r}, expected ISO 8601, such as 2013-07-04 or 2013-07-04T12:00:00Z",
            key=flag,
        ) from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)
