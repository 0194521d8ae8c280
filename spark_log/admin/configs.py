"""`Admin` methods for configs of topics, of the cluster and of client ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, get_args

from spark_log.admin.cluster_access import ClusterAccess, limited
from spark_log.errors import InvalidConfigurationError, check_unicode
from spark_log.metadata import (
    CONFIG_KINDS,
    ConfigKind,
    ConfigRecord,
    MetadataImage,
    MetadataRecord,
    alterations,
    config_entries,
    kind_of,
    on_configs_altered,
)
from spark_log.types import AlterConfigOp, ConfigEntry, ConfigResource, ConfigResourceType

ConfigFilter = Literal["all", "modified", "default"]
"""The configs that `describe_configs` returns: all, those that a user has set, or the others."""

_DELETE = (AlterConfigOp.DELETE, None)


class ConfigOperations(ClusterAccess):
    """Alters, resets and describes configs."""

    @limited
    def alter_configs(
        self, config_resources: Sequence[ConfigResource], *, validate_only: bool = False
    ) -> None:
        """Change configs, all of them or none; keys that are not given stay (KIP-339).

        Resources are topics, or the cluster: ``ConfigResource(ConfigResourceType.BROKER, "",
        {…})``. A process that has a topic open applies a change when it next refreshes the metadata
        (``metadata.max.age.ms``).

        Args:
            config_resources: the resources; ``configs`` of each is a dict: key → new value, or
                key → ``(AlterConfigOp, value)``. ``DELETE`` restores the default. ``APPEND`` and
                ``SUBTRACT`` work on list keys only, with several values separated by commas.
            validate_only: whether to check everything and change nothing.

        Raises:
            UnknownTopicOrPartitionError, InvalidConfigurationError: nothing was changed.
        """

        def changes(resource: ConfigResource, _: Mapping[str, str]) -> Mapping[str, object]:
            configs = resource.configs
            return configs if isinstance(configs, Mapping) else dict.fromkeys(configs or ())

        self._change_configs(config_resources, changes, validate_only)

    @limited
    def reset_configs(
        self, config_resources: Sequence[ConfigResource], *, validate_only: bool = False
    ) -> None:
        """Restore the defaults of configs, all of them or none.

        Args:
            config_resources: the resources; ``configs`` of each are the keys to reset (the values
                of a dict are ignored). None or empty resets every key that the resource overrides.
            validate_only: whether to check everything and change nothing.

        Raises:
            UnknownTopicOrPartitionError, InvalidConfigurationError: nothing was changed.
        """

        def changes(resource: ConfigResource, overrides: Mapping[str, str]) -> Mapping[str, object]:
            return dict.fromkeys(resource.configs or overrides, _DELETE)

        self._change_configs(config_resources, changes, validate_only)

    @limited
    def describe_configs(
        self,
        config_resources: Sequence[ConfigResource],
        *,
        config_filter: ConfigFilter = "all",
    ) -> dict[str, dict[str, dict[str, ConfigEntry]]]:
        """Describe configs of topics, client ids or the cluster: value, source, default, meaning.

        Args:
            config_resources: the resources; ``configs`` of each are the keys to describe, None for
                all keys.
            config_filter: the keys to return: ``modified`` only those that were set, for this
                resource or for all clients; ``default`` only those that were not set.

        Returns:
            ``{"topic": {name: {key: entry}}}``, as in kafka-python. The configs of the cluster are
            under ``["broker"][""]``, those of client ids under ``["client"]``.

        Raises:
            UnknownTopicOrPartitionError, InvalidConfigurationError: a topic, a key or the filter is
                not known.
        """
        if config_filter not in get_args(ConfigFilter):
            raise InvalidConfigurationError(
                f"there is no config filter {config_filter!r}; expected "
                f"{', '.join(get_args(ConfigFilter))}"
            )
        image = self._cluster().image()
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

    @limited
    def list_config_resources(
        self, resource_types: Iterable[ConfigResourceType | str] | None = None
    ) -> dict[str, list[str]]:
        """List the resources that `describe_configs` can describe (KIP-1142).

        Args:
            resource_types: members of `ConfigResourceType`, or their names in any case; None for
                all.

        Returns:
            Resource type, in lower case → sorted names: every topic, ``""`` for the cluster, and
            the client ids that have a quota (``""`` for the default quotas).

        Raises:
            InvalidConfigurationError: a type is not known.
        """
        wanted = {kind_of(ConfigResource(each, "")) for each in resource_types or CONFIG_KINDS}
        image = self._cluster().image()
        return {
            kind.resource_type: kind.names(image)
            for kind in CONFIG_KINDS.values()
            if kind in wanted
        }

    def _change_configs(
        self,
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
            return [*records, *on_configs_altered(image, records)]

        self._commit(decide, validate_only)
