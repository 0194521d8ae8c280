"""Topics on the command line: as arguments, or as ``--topic`` like in Kafka's tools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from spark_log.cli.options.completion import complete_topics
from spark_log.errors import InvalidConfigurationError


@dataclass(frozen=True, slots=True)
class Topic:
    """The topic of a command that takes at most one.

    Attributes:
        given: the topic's name; None if none was given.
    """

    given: str | None

    @classmethod
    def from_options(
        cls,
        topic_argument: Annotated[
            str | None,
            typer.Argument(
                metavar="TOPIC", help="Name of the topic.", autocompletion=complete_topics
            ),
        ] = None,
        topic_option: Annotated[
            str | None,
            typer.Option(
                "--topic",
                metavar="TOPIC",
                help="Name of the topic, as an option.",
                autocompletion=complete_topics,
            ),
        ] = None,
    ) -> Topic:
        """Return the topic, given in one of the two ways.

        Raises:
            InvalidConfigurationError: two different topics were given.
        """
        if topic_argument is not None and topic_option not in (None, topic_argument):
            raise InvalidConfigurationError(
                f"TOPIC is {topic_argument!r} and --topic is {topic_option!r}: give one of them"
            )
        return cls(topic_option if topic_argument is None else topic_argument)

    @property
    def name(self) -> str:
        """The topic's name.

        Raises:
            InvalidConfigurationError: no topic was given.
        """
        if self.given is None:
            raise InvalidConfigurationError("which topic? Give TOPIC or --topic")
        return self.given


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics of a command that takes any number of them.

    Attributes:
        given: the names of the topics, each once, in the given order; empty if none was given.
    """

    given: tuple[str, ...]

    @classmethod
    def from_options(
        cls,
        topic_arguments: Annotated[
            list[str] | None,
            typer.Argument(
                metavar="TOPIC", help="Names of topics.", autocompletion=complete_topics
            ),
        ] = None,
        topic_options: Annotated[
            list[str] | None,
            typer.Option(
                "--topic",
                metavar="TOPIC",
                help="Name of a topic, as an option. Repeatable.",
                autocompletion=complete_topics,
            ),
        ] = None,
    ) -> Topics:
        """Return the topics that were given in either way."""
        return cls(tuple(dict.fromkeys([*(topic_arguments or []), *(topic_options or [])])))

    @property
    def names(self) -> list[str]:
        """The names of the topics.

        Raises:
            InvalidConfigurationError: no topic was given.
        """
        if not self.given:
            raise InvalidConfigurationError("which topics? Give TOPIC or --topic")
        return list(self.given)

    @property
    def names_or_none(self) -> list[str] | None:
        """Names of the topics; None if none was given, which usually means all topics."""
        return list(self.given) or None
