"""Command line options that several jobs have."""

from __future__ import annotations

from typing import Annotated

import typer

from spark_log.cli import Root
from spark_log.config import to_keys
from spark_log.datasource import STORAGE_PREFIX

FromTime = Annotated[
    str | None,
    typer.Option(
        help="First timestamp: ISO 8601 (UTC unless it has an offset), or milliseconds since the "
        "epoch."
    ),
]
"""Start of a range of event time; None for no start."""

ToTime = Annotated[
    str | None, typer.Option(help="End of the timestamps (exclusive), like --from-time.")
]
"""End of a range of event time; None for no end."""

SinkOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE",
        help="Option for the file system of the Delta table. Repeatable. [default: the options of "
        "the root]",
    ),
]
"""Storage options of a Delta table that a job writes to; None for those of the root."""


def connection_options(root: Root) -> dict[str, str]:
    """Return the options that every read and write of ``format("spark_log")`` needs."""
    storage = {f"{STORAGE_PREFIX}{key}": str(value) for key, value in root.storage_options.items()}
    return {"path": root.url, **storage, **to_keys(root.broker_options)}
