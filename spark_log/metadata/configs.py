"""Describes and alters the configs in the metadata log.

These are configs of topics, configs of the cluster, as Kafka's default for all brokers (KIP-133,
KIP-226, KIP-339), configs of consumer groups (KIP-848), and quotas of client ids, with a default
for all client ids (KIP-13, KIP-257, KIP-546).

The functions are pure: they depend on the overrides and on the config tables in `spark_log.config`.
`Admin` reads and commits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from spark_log.config import (
    ClientQuotaConfig,
    ClusterConfig,
    ConfigModel,
    GroupConfig,
    TopicConfig,
    to_text,
    unknown_key_error,
)
from spark_log.errors import InvalidConfigurationError
from spark_log.metadata.image import DEFAULT_CLIENT, MetadataImage
from spark_log.metadata.records import (
    CLIENT_RESOURCE,
    CLUSTER_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    ConfigRecord,
)
from spark_log.types import (
    AlterConfigOp,
    ConfigEntry,
    ConfigResource,
    ConfigResourceType,
    ConfigSynonym,
)
from spark_log.values import check_new_columns, present_columns, typed_values_of

DEFAULT_SOURCE = "DEFAULT_CONFIG"
DEFAULT_BROKER_SOURCE = "DYNAMIC_DEFAULT_BROKER_CONFIG"
DEFAULT_CLIENT_SOURCE = "DYNAMIC_DEFAULT_CLIENT_QUOTA"

_LIMITS: Final = ("min", "max")

_UNKNOWN_DOC = "A newer version of spark-log set this; this one does not know what it means."


@dataclass(frozen=True, slots=True)
class ConfigKind:
    """A kind of resource that has configs.

    Attributes:
        resource_type: the name of the kind in a `ConfigRecord`.
        model: the table of the kind's keys.
        source: the source of an override, in the answer of `Admin.describe_configs`.
        inherited_source: the source of a value from `inherited`, in the same answer.
    """

    resource_type: str
    model: type[ConfigModel]
    source: str
    inherited_source: str = ""

    def overrides(self, image: MetadataImage, name: str) -> Mapping[str, str]:
        """Return the overrides of a resource of this kind.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic.
            InvalidConfigurationError: the name is the id of a single broker, or the empty id of a
                group.
        """
        if self.resource_type == TOPIC_RESOURCE:
            return image.topic(name).overrides
        if self.resource_type == CLIENT_RESOURCE:
            return image.client_overrides.get(name, {})
        if self.resource_type == GROUP_RESOURCE:
            if not name:
                raise InvalidConfigurationError("the id of the group is empty; give one")
            return image.group_overrides.get(name, {})
        if name:
            raise InvalidConfigurationError(
                f"broker {name!r} has no configs of its own; for the cluster give the empty "
                f"name, on the command line --entity-default"
            )
        return image.cluster_overrides

    def inherited(self, image: MetadataImage, name: str) -> Mapping[str, str]:
        """Return the values that replace the defaults of keys without an override."""
        if self.resource_type == TOPIC_RESOURCE:
            return image.inherited()
        if self.resource_type == CLIENT_RESOURCE and name != DEFAULT_CLIENT:
            return image.client_overrides.get(DEFAULT_CLIENT, {})
        return image.inherited_by_groups() if self.resource_type == GROUP_RESOURCE else {}

    def names(self, image: MetadataImage) -> list[str]:
        """Return the names of the resources of this kind, sorted.

        Client ids are included if they have a quota, groups if they have a config. The name of the
        cluster is empty.
        """
        if self.resource_type == TOPIC_RESOURCE:
            return [topic.name for topic in image.topics()]
        if self.resource_type == GROUP_RESOURCE:
            return sorted(image.group_overrides)
        return sorted(image.client_overrides) if self.resource_type == CLIENT_RESOURCE else [""]

    def own_source(self, name: str) -> str:
        """Return the source of the overrides of a resource of this kind."""
        is_default = self.resource_type == CLIENT_RESOURCE and name == DEFAULT_CLIENT
        return DEFAULT_CLIENT_SOURCE if is_default else self.source


TOPIC_CONFIGS = ConfigKind(
    TOPIC_RESOURCE, TopicConfig, "DYNAMIC_TOPIC_CONFIG", DEFAULT_BROKER_SOURCE
)
CLUSTER_CONFIGS = ConfigKind(CLUSTER_RESOURCE, ClusterConfig, DEFAULT_BROKER_SOURCE)
CLIENT_CONFIGS = ConfigKind(
    CLIENT_RESOURCE, ClientQuotaConfig, "DYNAMIC_CLIENT_QUOTA", DEFAULT_CLIENT_SOURCE
)
GROUP_CONFIGS = ConfigKind(
    GROUP_RESOURCE, GroupConfig, "DYNAMIC_GROUP_CONFIG", DEFAULT_BROKER_SOURCE
)

CONFIG_KINDS: Final[Mapping[ConfigResourceType, ConfigKind]] = {
    ConfigResourceType.TOPIC: TOPIC_CONFIGS,
    ConfigResourceType.BROKER: CLUSTER_CONFIGS,
    ConfigResourceType.CLIENT: CLIENT_CONFIGS,
    ConfigResourceType.GROUP: GROUP_CONFIGS,
}


def kind_of(resource: ConfigResource) -> ConfigKind:
    """Return the kind of a resource.

    Raises:
        InvalidConfigurationError: its type has no configs.
    """
    kind = resource.resource_type
    for each, found in CONFIG_KINDS.items():
        if kind == each or str(kind).lower() == each.name.lower():
            return found
    known = ", ".join(each.name.lower() for each in CONFIG_KINDS)
    raise InvalidConfigurationError(
        f"resource type {kind!r} has no configs in the metadata log; expected {known}"
    )


def config_entries(
    overrides: Mapping[str, str],
    keys: Collection[str] | None = None,
    kind: ConfigKind = TOPIC_CONFIGS,
    *,
    name: str = "",
    inherited: Mapping[str, str] | None = None,
) -> dict[str, ConfigEntry]:
    """Return configs by key, sorted by key.

    Args:
        overrides: the overrides of the resource.
        keys: the keys to return; None for all of them.
        kind: the kind of the resource.
        name: the name of the resource.
        inherited: the result of `ConfigKind.inherited` for the resource.

    Raises:
        InvalidConfigurationError: a key is not known.
    """
    model = kind.model
    others = inherited or {}
    wanted = {key_name(key, model) for key in keys or ()}
    if keys is None:
        wanted = {*model.keys(), *overrides, *others}
    entries = {}
    for key in sorted(wanted):
        synonyms = []
        if key in overrides:
            synonyms.append(ConfigSynonym(key, overrides[key], kind.own_source(name)))
        if key in others:
            synonyms.append(ConfigSynonym(key, others[key], kind.inherited_source))
        entries[key] = _entry(key, synonyms, kind.model)
    return entries


def resettable(overrides: Iterable[str]) -> list[str]:
    """Return the overrides that a change of all configs of a resource resets.

    Args:
        overrides: the keys that the resource overrides.

    Returns:
        All but ``stripes``: it says where a topic's records are, and a change of it moves them.
    """
    return [key for key in overrides if key != "stripes"]


def alterations(
    resource_name: str,
    overrides: Mapping[str, str],
    changes: Mapping[str, object],
    kind: ConfigKind = TOPIC_CONFIGS,
) -> list[ConfigRecord]:
    """Return the records that change the configs of a resource; none for a key that stays the same.

    Args:
        resource_name: the name of the resource.
        overrides: the present overrides of the resource.
        changes: key → new value, or key → ``(AlterConfigOp, value)``. The value to append or
            subtract may be several values separated by commas. A key of Kafka's that has no effect
            here is left out, with a warning.
        kind: the kind of the resource.

    Raises:
        InvalidConfigurationError: a key is not known, a value is not allowed, an append or subtract
            names a key that is not a list, or the typed columns of a topic are not possible.
    """
    model = kind.model
    altered = dict(overrides)
    for key, change in model.without_ignored(changes).items():
        name = key if key in overrides else key_name(key, model)
        operation, value = _operation(key, change)
        if operation is AlterConfigOp.DELETE:
            altered.pop(name, None)
        elif operation is AlterConfigOp.SET:
            altered[name] = to_text(value)
        else:
            altered[name] = _list_altered(name, operation, to_text(value), altered, model)
    known = model.keys()
    config = model.parse({key: value for key, value in altered.items() if key in known})
    if isinstance(config, TopicConfig):
        _check_columns(overrides, config)
    checked = config.dotted()
    altered |= {key: to_text(checked[key]) for key in altered if key in checked}
    return [
        ConfigRecord(
            resource_type=kind.resource_type,
            resource_name=resource_name,
            name=key,
            value=altered.get(key),
        )
        for key in sorted({*overrides, *altered})
        if altered.get(key) != overrides.get(key)
    ]


def check_group_limits(overrides: Mapping[str, str], limits: ClusterConfig) -> None:
    """Check the configs of a group against the limits of the cluster; the messages are Kafka's.

    Args:
        overrides: the overrides of the group.
        limits: the configs of the cluster.

    Raises:
        InvalidConfigurationError: a value is below its minimum or above its maximum.
    """
    found: Mapping[str, Any] = limits.dotted()
    for key, value in overrides.items():
        least, most = (key.replace("consumer.", f"group.consumer.{each}.", 1) for each in _LIMITS)
        if least in found and int(value) < found[least]:
            raise InvalidConfigurationError(
                f"{key} must be greater than or equal to {least}", key=key
            )
        if most in found and int(value) > found[most]:
            raise InvalidConfigurationError(f"{key} must be less than or equal to {most}", key=key)


def _check_columns(overrides: Mapping[str, str], config: TopicConfig) -> None:
    """Check the typed columns of a topic, and that a table that has some keeps them.

    Args:
        overrides: the present overrides of the topic.
        config: its new settings.
    """
    typed_values_of(config)
    names = ("table.value.format", "table.schema")
    before = {name: overrides[name] for name in names if name in overrides}
    check_new_columns(present_columns(TopicConfig.parse(before)), present_columns(config))


def key_name(key: str, model: type[ConfigModel]) -> str:
    """Return the Kafka name of a key, which may be given in ``snake_case``.

    Raises:
        InvalidConfigurationError: there is no such key; the message names the nearest one.
    """
    name = model.key_name(key)
    known = model.keys()
    if name not in known:
        raise unknown_key_error(model, key)
    return name


def _operation(key: str, change: object) -> tuple[AlterConfigOp, object]:
    operation, value = change if isinstance(change, tuple) else (AlterConfigOp.SET, change)
    if isinstance(operation, str) and operation.upper() in AlterConfigOp.__members__:
        operation = AlterConfigOp[operation.upper()]
    try:
        operation = AlterConfigOp(operation)
    except ValueError:
        names = ", ".join(AlterConfigOp.__members__)
        raise InvalidConfigurationError(
            f"config {key!r}: there is no operation {operation!r}; expected {names}", key=key
        ) from None
    if value is None and operation is not AlterConfigOp.DELETE:
        raise InvalidConfigurationError(
            f"config {key!r}: {operation.name} needs a value; to restore the default, DELETE it",
            key=key,
        )
    return operation, value


def _list_altered(
    key: str,
    operation: AlterConfigOp,
    value: str,
    overrides: Mapping[str, str],
    model: type[ConfigModel],
) -> str:
    row = model.keys()[key]
    if row.type != "list":
        raise InvalidConfigurationError(
            f"Can't {operation.name} to key {key} because its type is not LIST. SET it", key=key
        )
    # As in Kafka: a key without an override starts from its default, an empty list stays empty.
    before = _parts(overrides.get(key, _default(key, model)))
    given = _parts(value)
    if operation is AlterConfigOp.APPEND:
        return ",".join(dict.fromkeys([*before, *given]))
    return ",".join(part for part in before if part not in given)


def _parts(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def _entry(key: str, dynamic: list[ConfigSynonym], model: type[ConfigModel]) -> ConfigEntry:
    row = model.keys().get(key)
    default = _default(key, model)
    synonyms = dynamic
    if row is not None:
        synonyms = [*dynamic, ConfigSynonym(key, default, DEFAULT_SOURCE)]
    return ConfigEntry(
        name=key,
        value=synonyms[0].value,
        source=synonyms[0].source,
        default=default,
        is_default=synonyms[0].source == DEFAULT_SOURCE,
        is_sensitive=False,  # no key is
        is_read_only=False,
        synonyms=tuple(synonyms),
        type="UNKNOWN" if row is None else row.type.upper(),
        documentation=_UNKNOWN_DOC if row is None else row.doc,
    )


def _default(key: str, model: type[ConfigModel]) -> str | None:
    value = model().dotted().get(key)
    return None if value is None else to_text(value)
