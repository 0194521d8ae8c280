"""Quotas of client ids (KIP-13, KIP-546): configs of the resource type ``CLIENT``."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from spark_log.admin.configs import alter_configs
from spark_log.cluster import Cluster
from spark_log.config import ClientQuotaConfig
from spark_log.errors import InvalidConfigurationError
from spark_log.metadata import DEFAULT_CLIENT
from spark_log.types import AlterConfigOp, ConfigResource, ConfigResourceType


def alter_client_quotas(
    cluster: Cluster,
    client_quotas: Mapping[str | None, Mapping[str, int | None]],
    *,
    validate_only: bool,
) -> None:
    """Change quotas, all of them or none."""
    if any(client_id is not None and not client_id for client_id in client_quotas):
        raise InvalidConfigurationError(
            "the client id is empty: give a name, or None for all clients that have no quota "
            "of their own"
        )
    delete = (AlterConfigOp.DELETE, None)
    resources = [
        ConfigResource(
            ConfigResourceType.CLIENT,
            DEFAULT_CLIENT if client_id is None else client_id,
            {key: delete if value is None else value for key, value in quotas.items()},
        )
        for client_id, quotas in client_quotas.items()
    ]
    alter_configs(cluster, resources, validate_only=validate_only)


def describe_client_quotas(
    cluster: Cluster, client_ids: Collection[str | None] | None
) -> dict[str | None, dict[str, int]]:
    """Return the quotas that were set, by client id; the default quotas first."""
    image = cluster.image()
    found: dict[str | None, dict[str, int]] = {}
    for name in sorted(image.client_overrides):
        client_id = None if name == DEFAULT_CLIENT else name
        if client_ids is None or client_id in client_ids:
            own = image.client_overrides[name]
            known = sorted(own.keys() & ClientQuotaConfig.keys().keys())
            found[client_id] = {key: int(own[key]) for key in known}
    return found
