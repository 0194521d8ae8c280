"""Kafka's rules for topic names (``org.apache.kafka.common.internals.Topic``)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from spark_log.errors import InvalidTopicError
from spark_log.storage import GROUPS_DIRECTORY, METADATA_LOG, OFFSETS_TABLE, TRANSACTIONS_DIRECTORY

MAX_NAME_LENGTH: Final = 249
INTERNAL_TOPICS: Final = frozenset(
    {METADATA_LOG.removesuffix("-0"), OFFSETS_TABLE, GROUPS_DIRECTORY, TRANSACTIONS_DIRECTORY}
)

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")
_NO_NAMES: Final = MappingProxyType[str, str]({})


def validate_topic_name(name: str, existing: Mapping[str, str] = _NO_NAMES) -> None:
    """Check a new topic's name.

    Args:
        name: the name.
        existing: the names of existing topics by `collision_key`. Two names may not differ only
            in ``.`` and ``_``.

    Raises:
        InvalidTopicError: the name is not allowed; the message names the rule.
    """
    if reason := _why_illegal(name):
        raise InvalidTopicError(
            f"illegal topic name {name!r}: {reason}; legal are 1 to {MAX_NAME_LENGTH} ASCII "
            f"letters, digits, '.', '_' and '-'",
            topic=name,
        )
    if name in INTERNAL_TOPICS:
        raise InvalidTopicError(f"{name!r} is internal to spark-log; take another name", topic=name)
    other = existing.get(collision_key(name), name)
    if other != name:
        raise InvalidTopicError(
            f"topic {name!r} collides with {other!r}: in metric names '.' and '_' are equal; "
            f"take another name",
            topic=name,
        )


def collision_key(name: str) -> str:
    """Return the key that must differ between any two topic names."""
    return name.replace(".", "_")


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
