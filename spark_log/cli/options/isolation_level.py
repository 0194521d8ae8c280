"""The option ``--isolation-level``, as kafka-console-consumer has it."""

from __future__ import annotations

from typing import Annotated

import typer

from spark_log.log import IsolationLevel

IsolationLevelOption = Annotated[
    IsolationLevel,
    typer.Option(
        "--isolation-level",
        help="read_committed: leave out records of aborted transactions, and stop before the first "
        "open transaction.",
    ),
]
