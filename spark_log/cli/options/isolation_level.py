"""The option ``--isolation-level``, as kafka-console-consumer has it."""

from __future__ import annotations

from typing import Annotated

import typer

from spark_log.log import IsolationLevel

IsolationLevelOption = Annotated[
    IsolationLevel,
    typer.Option(
        "--isolation-level",
        help="read_committed: without records of transactions that were aborted, and up to the "
        "first one that is open.",
    ),
]
