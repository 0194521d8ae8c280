"""Names and filters of mirrored topics, by the rules of MirrorMaker 2."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from spark_log.errors import InvalidConfigurationError

DEFAULT_EXCLUDED: Final = (r".*[-.]internal", r".*\.replica", r"__.*")
"""Topics that are not mirrored by default: internal topics of Kafka and its tools."""

_ALIAS = re.compile(r"[a-zA-Z0-9_-]{1,100}")


class ReplicationPolicy(StrEnum):
    """The rule for the names of mirrored topics (Kafka's classes of these names)."""

    IDENTITY = "identity"
    """The topic keeps its name (``IdentityReplicationPolicy``, KIP-690)."""
    DEFAULT = "default"
    """The source's alias and a dot precede the name (``DefaultReplicationPolicy``, KIP-382)."""

    def target_topic(self, topic: str, source_alias: str) -> str:
        """Return the name in the target of a topic of the source."""
        return topic if self is ReplicationPolicy.IDENTITY else f"{source_alias}.{topic}"

    def comes_from(self, topic: str, alias: str) -> bool:
        """Return whether a topic was mirrored from the cluster with this alias, by its name.

        The topic may have passed other clusters: ``c.b.a.flights`` came from ``a``. Mirrors in a
        circle would otherwise make longer and longer names (``MirrorSourceConnector.isCycle``).
        """
        return self is ReplicationPolicy.DEFAULT and alias in topic.split(".")[:-1]


@dataclass(frozen=True, slots=True)
class TopicFilter:
    """The filter of the source's topics that are mirrored, by regular expressions for whole names.

    Attributes:
        include: the expressions of which one must match a mirrored topic's name.
        exclude: the expressions of which none may match a mirrored topic's name.
    """

    include: tuple[re.Pattern[str], ...]
    exclude: tuple[re.Pattern[str], ...]

    @classmethod
    def parse(
        cls, include: Iterable[str] = (".*",), exclude: Iterable[str] = DEFAULT_EXCLUDED
    ) -> TopicFilter:
        """Return the filter of these regular expressions.

        Raises:
            InvalidConfigurationError: one of them is no regular expression.
        """
        return cls(patterns(include, "topics"), patterns(exclude, "topics-exclude"))

    def __call__(self, topic: str) -> bool:
        """Return whether a topic is mirrored."""
        return _any(self.include, topic) and not _any(self.exclude, topic)


def patterns(texts: Iterable[str], option: str) -> tuple[re.Pattern[str], ...]:
    """Return compiled regular expressions.

    Raises:
        InvalidConfigurationError: one of them is no regular expression.
    """
    compiled = []
    for text in texts:
        try:
            compiled.append(re.compile(text))
        except re.error as error:
            raise InvalidConfigurationError(
                f"--{option} {text!r} is not a regular expression: {error}", key=option
            ) from None
    return tuple(compiled)


def check_alias(alias: str, option: str) -> str:
    """Return an alias of a cluster, which becomes a part of topic names.

    Raises:
        InvalidConfigurationError: the alias cannot be a part of a topic's name, or has a dot, which
            would end the alias.
    """
    if not _ALIAS.fullmatch(alias):
        raise InvalidConfigurationError(
            f"--{option} is {alias!r}; give 1 to 100 ASCII letters, digits, '_' and '-'", key=option
        )
    return alias


def _any(expressions: Sequence[re.Pattern[str]], topic: str) -> bool:
    return any(each.fullmatch(topic) for each in expressions)
