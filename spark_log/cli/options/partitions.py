"""The option ``--partition`` of commands that work on some partitions of topics."""

from __future__ import annotations

from typing import Annotated

import typer

PartitionsOption = Annotated[
    list[int] | None,
    typer.Option(
        "--partition", metavar="N", help="Number of a partition. Repeatable. [default: all]"
    ),
]
