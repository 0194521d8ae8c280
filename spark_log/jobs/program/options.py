"""Command line options that several jobs have."""

from __future__ import annotations

from typing import Annotated

import typer

from spark_log.config import BrokerOptions, to_keys
from spark_log.datasource import STORAGE_PREFIX
from spark_log.storage import StorageOptions

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


def connection_options(
    root: str, storage_options: StorageOptions, broker_options: BrokerOptions
) -> dict[str, str]:
    """Return the options that every read and write of ``format("spark_log")`` needs.

    Args:
        root: the root's URL.
        storage_options: the options of its file system.
        broker_options: broker id → the options of the file system of its root.
    """
    storage = {f"{STORAGE_PREFIX}{key}": str(value) for key, value in storage_options.items()}
    return {"path": root, **storage, **to_keys(broker_options)}
