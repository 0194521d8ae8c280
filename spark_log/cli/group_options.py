"""Options that the commands on groups share, and the groups that they name."""

from __future__ import annotations

from typing import Annotated

import typer

from spark_log.admin.admin import Admin
from spark_log.cli.completion import complete_groups, complete_topics
from spark_log.errors import InvalidConfigurationError

GroupsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[GROUP]...", help="Ids of groups.", autocompletion=complete_groups),
]
GroupOption = Annotated[
    list[str] | None,
    typer.Option(
        "--group",
        metavar="GROUP",
        help="Id of a group, as an option. Repeatable.",
        autocompletion=complete_groups,
    ),
]
AllGroupsOption = Annotated[bool, typer.Option("--all-groups", help="All groups of the root.")]
TopicPartitionsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        metavar="TOPIC[:N,...]",
        help="A topic, or some of its partitions. Repeatable.",
        autocompletion=complete_topics,
    ),
]


def chosen_groups(
    admin: Admin, groups: list[str] | None, group: list[str] | None, all_groups: bool
) -> list[str]:
    """Return the group ids that were given, each once, or the ids of all groups.

    Raises:
        InvalidConfigurationError: both were given, or neither.
    """
    names = list(dict.fromkeys([*(groups or []), *(group or [])]))
    if all_groups and names:
        raise InvalidConfigurationError("--all-groups or ids of groups: give one of the two")
    if all_groups:
        return [each.group_id for each in admin.list_groups()]
    if not all(names) or not names:
        raise InvalidConfigurationError("which group? Give GROUP, --group or --all-groups")
    return names
