"""`Admin` methods for quotas of client ids (KIP-13, KIP-546)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from spark_log.admin.cluster_access import limited
from spark_log.admin.configs import ConfigOperations
from spark_log.config import ClientQuotaConfig
from spark_log.errors import InvalidConfigurationError
from spark_log.metadata import DEFAULT_CLIENT
from spark_log.types import AlterConfigOp, ConfigResource, ConfigResourceType


class QuotaOperations(ConfigOperations):
    """Alters and describes quotas: configs of the resource type ``CLIENT``."""

    @limited
    def alter_client_quotas(
        self,
        client_quotas: Mapping[str | None, Mapping[str, int | None]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Change quotas, all of them or none; quotas that are not given stay (KIP-546).

        Running producers and consumers apply a change when they next refresh the metadata. Each
        process has the whole quota of its client id for itself: docs/quotas.md.

        Args:
            client_quotas: client id → quotas. The key None stands for all client ids that have no
                quota of their own. Quotas are ``producer_byte_rate`` and ``consumer_byte_rate`` →
                bytes per second, or None to remove the quota.
            validate_only: whether to check everything and change nothing.

        Raises:
            InvalidConfigurationError: a client id is empty, or a quota is unknown or not above 0;
                nothing was changed.
        """
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
        self.alter_configs(resources, validate_only=validate_only)

    @limited
    def describe_client_quotas(
        self, client_ids: Collection[str | None] | None = None
    ) -> dict[str | None, dict[str, int]]:
        """Return the quotas that were set, in the form that `alter_client_quotas` takes (KIP-546).

        Args:
            client_ids: the client ids to describe; None among them stands for the default quotas of
                all client ids. None instead of a collection describes all.

        Returns:
            Quotas by client id, the default quotas (key None) first. Client ids without a quota of
            their own are left out.
        """
        image = self._cluster().image()
        found: dict[str | None, dict[str, int]] = {}
        for name in sorted(image.client_overrides):
            client_id = None if name == DEFAULT_CLIENT else name
            if client_ids is None or client_id in client_ids:
                own = image.client_overrides[name]
                known = sorted(own.keys() & ClientQuotaConfig.keys().keys())
                found[client_id] = {key: int(own[key]) for key in known}
        return found
