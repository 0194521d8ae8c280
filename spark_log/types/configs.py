"""Configs of topics, clients and the cluster, as they are altered and described."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import IntEnum


class ConfigResourceType(IntEnum):
    """Types of resources whose configs are in the metadata log, with Kafka's numbers.

    ``CLIENT`` does not exist in Kafka. It has the quotas, which `Admin.alter_client_quotas`
    changes, as in Kafka.
    """

    CLIENT = 1
    TOPIC = 2
    BROKER = 4
    GROUP = 32


@dataclass(frozen=True, slots=True)
class ConfigResource:
    """A resource, and those of its configs that are described or altered.

    Attributes:
        resource_type: a `ConfigResourceType`, or its name in any case.
        name: a topic's name or a client id. Empty for `BROKER`, whose configs apply to the whole
            cluster, and for the default quotas of clients.
        configs: the names of keys to describe, None for all; or the changes to make, as key → new
            value, or key → ``(AlterConfigOp, value)``.
    """

    resource_type: ConfigResourceType | str
    name: str
    configs: Mapping[str, object] | Collection[str] | None = None


class AlterConfigOp(IntEnum):
    """Operation of `Admin.alter_configs` on a key (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """One of the values of a config key, with its source.

    The first in a list of synonyms is in effect. If it is deleted, the next one is in effect.
    """

    name: str
    value: str | None
    source: str


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One config key as ``describe_configs`` returns it (Kafka's ``ConfigEntry``).

    Attributes:
        name: the key.
        value: the value in effect; None if it is sensitive or not set.
        source: the source of the value: ``DYNAMIC_TOPIC_CONFIG`` (the topic),
            ``DYNAMIC_DEFAULT_BROKER_CONFIG`` (the cluster), ``DYNAMIC_CLIENT_QUOTA`` (a client id),
            ``DYNAMIC_DEFAULT_CLIENT_QUOTA`` (all clients) or ``DEFAULT_CONFIG`` (the default).
        default: the value that applies if the resource has no value of its own.
        is_default: whether the source is ``DEFAULT_CONFIG``.
        is_sensitive: whether the value is secret; it is never shown then.
        is_read_only: whether the key cannot be altered.
        synonyms: all values of the key; the first is in effect.
        type: ``BOOLEAN``, ``INT`` (of any size), ``STRING`` or ``LIST``; ``UNKNOWN`` for a key that
            this version does not know.
        documentation: a description of the key.
    """

    name: str
    value: str | None
    source: str
    default: str | None
    is_default: bool
    is_sensitive: bool
    is_read_only: bool
    synonyms: tuple[ConfigSynonym, ...]
    type: str
    documentation: str
