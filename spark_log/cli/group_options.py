"""Arguments that commands on groups have in common."""

from __future__ import annotations

from typing import Annotated

import typer

GroupsArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[GROUP]...", help="Which groups.")
]
GroupOption = Annotated[
    list[str] | None,
    typer.Option("--group", metavar="GROUP", help="The same, as kafka-consumer-groups."),
]
AllGroupsOption = Annotated[bool, typer.Option("--all-groups", help="All there are.")]
TopicOption = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        metavar="TOPIC[:N,...]",
        help="Where: a topic, or some of its partitions. Repeatable.",
    ),
]
