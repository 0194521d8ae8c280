"""Arguments that commands on groups have in common, and the groups that they choose."""

from __future__ import annotations

from typing import Annotated

import typer

from spark_log.admin.admin import Admin
from spark_log.errors import InvalidConfigurationError

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


def chosen_groups(
    admin: Admin, groups: list[str] | None, group: list[str] | None, all_groups: bool
) -> list[str]:
    """Return the groups that are named, each once, or all there are.

    Raises:
        InvalidConfigurationError: both are given, or neither.
    """
    names = list(dict.fromkeys([*(groups or []), *(group or [])]))
    if all_groups and names:
        raise InvalidConfigurationError("--all-groups, or names of groups: take one of the two")
    if all_groups:
        return [each.group_id for each in admin.list_groups()]
    if not all(names) or not names:
        raise InvalidConfigurationError("which group? Name it, or give --all-groups")
    return names
