"""Configs of topics, of the cluster and of client ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, get_args

from spark_log.admin.cluster_calls import commit
from spark_log.cluster import Cluster
from spark_log.errors import InvalidConfigurationError, check_unicode
from spark_log.metadata import (
    CONFIG_KINDS,
    GROUP_CONFIGS,
    ConfigKind,
    ConfigRecord,
    MetadataImage,
    MetadataRecord,
    alterations,
    check_group_limits,
    config_entries,
    kind_of,
    on_configs_altered,
    resettable,
)
from spark_log.types import AlterConfigOp, ConfigEntry, ConfigResource, ConfigResourceType

ConfigFilter = Literal["all", "modified", "default"]
"""The configs that `describe_configs` returns: all, those that a user has set, or the others."""

_DELETE = (AlterConfigOp.DELETE, None)


def alter_configs(
    cluster: Cluster, config_resources: Sequence[ConfigResource], *, validate_only: bool
) -> None:
    """Change configs, all of them or none."""

    def changes(resource: ConfigResource, _: Mapping[str, str]) -> Mapping[str, object]:
        configs = resource.configs
        return configs if isinstance(configs, Mapping) else dict.fromkeys(configs or ())

    _change_configs(cluster, config_resources, changes, validate_only)


def reset_configs(
    cluster: Cluster, config_resources: Sequence[ConfigResource], *, validate_only: bool
) -> None:
    """Restore the defaults of configs, all of them or none."""

    def changes(resource: ConfigResource, overrides: Mapping[str, str]) -> Mapping[str, object]:
        return dict.fromkeys(resource.configs or resettable(overrides), _DELETE)

    _change_configs(cluster, config_resources, changes, validate_only)


def describe_configs(
    cluster: Cluster, config_resources: Sequence[ConfigResource], *, config_filter: ConfigFilter
) -> dict[str, dict[str, dict[str, ConfigEntry]]]:
    """Return the entries of configs by resource type, name and key."""
    if config_filter not in get_args(ConfigFilter):
        raise InvalidConfigurationError(
            f"there is no config filter {config_filter!r}; expected "
            f"{', '.join(get_args(ConfigFilter))}"
        )
    image = cluster.image()
    described: dict[str, dict[str, dict[str, ConfigEntry]]] = {}
    for resource in config_resources:
        kind = kind_of(resource)
        keys = None if resource.configs is None else list(resource.configs)
        entries = config_entries(
            kind.overrides(image, resource.name),
            keys,
            kind,
            name=resource.name,
            inherited=kind.inherited(image, resource.name),
        )
        described.setdefault(kind.resource_type, {})[resource.name] = {
            key: entry
            for key, entry in entries.items()
            if config_filter == "all" or entry.is_default == (config_filter == "default")
        }
    return described


def list_config_resources(
    cluster: Cluster, resource_types: Iterable[ConfigResourceType | str] | None
) -> dict[str, list[str]]:
    """Return the names of the resources that have configs, by resource type."""
    wanted = {kind_of(ConfigResource(each, "")) for each in resource_types or CONFIG_KINDS}
    image = cluster.image()
    return {
        kind.resource_type: kind.names(image) for kind in CONFIG_KINDS.values() if kind in wanted
    }


def _change_configs(
    cluster: Cluster,
    config_resources: Sequence[ConfigResource],
    changes_of: Callable[[ConfigResource, Mapping[str, str]], Mapping[str, object]],
    validate_only: bool,
) -> None:
    """Commit the changes that ``changes_of`` returns for each resource and its overrides."""
    resources = [(kind_of(each), each) for each in config_resources]
    for kind, resource in resources:
        check_unicode(f"the name of a {kind.resource_type}", resource.name)

    def decide(image: MetadataImage) -> list[MetadataRecord]:
        # Two resources may be the same topic: the second change applies on top of the first.
        overrides: dict[tuple[ConfigKind, str], dict[str, str]] = {}
        records: list[ConfigRecord] = []
        for kind, resource in resources:
            name = resource.name
            own = overrides.setdefault((kind, name), dict(kind.overrides(image, name)))
            for record in alterations(name, own, changes_of(resource, own), kind):
                records.append(record)
                own.pop(record.name, None)
                own |= {} if record.value is None else {record.name: record.value}
            if kind is GROUP_CONFIGS:
                check_group_limits(own, image.cluster_config())
        return [*records, *on_configs_altered(image, records)]

    commit(cluster, decide, validate_only=validate_only)
