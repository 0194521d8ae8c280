"""Kafka's rules for topic names (``org.apache.kafka.common.internals.Topic``)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from spark_log.errors import InvalidTopicError

MAX_NAME_LENGTH: Final = 249
INTERNAL_TOPICS: Final = frozenset(
    {"__cluster_metadata", "__consumer_offsets", "__consumer_groups", "__transaction_state"}
)

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def validate_topic_name(name: str, existing: Iterable[str] = ()) -> None:
    """Check a new topic's name.

    Args:
        name: the name.
        existing: names of existing topics; two names may not differ only in ``.`` and ``_``.

    Raises:
        InvalidTopicError: the message names the rule.
    """
    if reason := _why_illegal(name):
        raise InvalidTopicError(
            f"illegal topic name {name!r}: {reason}; legal are 1 to {MAX_NAME_LENGTH} ASCII "
            f"letters, digits, '.', '_' and '-'",
            topic=name,
        )
    if name in INTERNAL_TOPICS:
        raise InvalidTopicError(f"{name!r} is internal to spark-log; take another name", topic=name)
    for other in existing:
        if other != name and _collision_key(other) == _collision_key(name):
            raise InvalidTopicError(
                f"topic {name!r} collides with {other!r}: in metric names '.' and '_' are equal; "
                f"take another name",
                topic=name,
            )


def _why_illegal(name: str) -> str | None:
    if not name:
        return "it is empty"
    if name in (".", ".."):
        return "'.' and '..' are reserved"
    if len(name) > MAX_NAME_LENGTH:
        return f"it has {len(name)} characters"
    if not _LEGAL.fullmatch(name):
        bad = sorted(set(re.sub(r"[a-zA-Z0-9._-]", "", name)))
        return f"it contains {', '.join(map(repr, bad))}"
    return None


def _collision_key(name: str) -> str:
    return name.replace(".", "_")
