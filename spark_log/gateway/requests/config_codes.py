"""Sources and types of configs as numbers of Kafka's protocol."""

from __future__ import annotations

from typing import Final

_SOURCES: Final = {
    "DYNAMIC_TOPIC_CONFIG": 1,
    "DYNAMIC_BROKER_CONFIG": 2,
    "DYNAMIC_DEFAULT_BROKER_CONFIG": 3,
    "STATIC_BROKER_CONFIG": 4,
    "DEFAULT_CONFIG": 5,
    "DYNAMIC_GROUP_CONFIG": 8,
}
_TYPES: Final = {"BOOLEAN": 1, "STRING": 2, "INT": 5, "DOUBLE": 6, "LIST": 7}
"""INT is Kafka's LONG: an entry does not say how large its value may be."""


def config_source(source: str) -> int:
    """Return the number of a source; 0, unknown, for one that Kafka lacks."""
    return _SOURCES.get(source, 0)


def config_type(name: str) -> int:
    """Return the number of a type; 0, unknown, for one that Kafka lacks."""
    return _TYPES.get(name, 0)
