"""Groups on the command line: as arguments, or as ``--group`` like in Kafka's tools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from spark_log.admin import Admin
from spark_log.cli.options.completion import complete_groups, complete_topics
from spark_log.errors import InvalidConfigurationError

TopicPartitionsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        metavar="TOPIC[:N,...]",
        help="A topic, or some of its partitions. Repeatable.",
        autocompletion=complete_topics,
    ),
]


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups of a command that takes any number of them.

    Attributes:
        given: the ids of the groups, each once, in the given order; empty if none was given.
        is_all: whether all groups of the root are meant.
    """

    given: tuple[str, ...]
    is_all: bool

    @classmethod
    def from_options(
        cls,
        group_arguments: Annotated[
            list[str] | None,
            typer.Argument(metavar="GROUP", help="Ids of groups.", autocompletion=complete_groups),
        ] = None,
        group_options: Annotated[
            list[str] | None,
            typer.Option(
                "--group",
                metavar="GROUP",
                help="Id of a group, as an option. Repeatable.",
                autocompletion=complete_groups,
            ),
        ] = None,
        all_groups: Annotated[
            bool, typer.Option("--all-groups", help="All groups of the root.")
        ] = False,
    ) -> Groups:
        """Return the groups that were given in either way.

        Raises:
            InvalidConfigurationError: ids and ``--all-groups`` were given, or neither.
        """
        given = tuple(dict.fromkeys([*(group_arguments or []), *(group_options or [])]))
        if all_groups and given:
            raise InvalidConfigurationError("--all-groups or ids of groups: give one of the two")
        if not all_groups and (not given or not all(given)):
            raise InvalidConfigurationError("which group? Give GROUP, --group or --all-groups")
        return cls(given, all_groups)

    def ids(self, admin: Admin) -> list[str]:
        """Return the ids that were given, or those of all groups.

        Raises:
            StorageError: the groups cannot be listed.
        """
        return [each.group_id for each in admin.list_groups()] if self.is_all else list(self.given)
