"""AlterConfigs: all configs of a resource at once; Kafka has deprecated it, old tools use it."""

from __future__ import annotations

from typing import Any

from spark_log.gateway.gateway import Gateway
from spark_log.gateway.protocol import message_class
from spark_log.gateway.request import Api, RequestContext
from spark_log.gateway.requests.incremental_alter_configs import (
    Changes,
    alter_resources,
    config_resource,
    refuse_null_values,
)
from spark_log.metadata import kind_of, resettable
from spark_log.types import AlterConfigOp, ConfigResource

API = Api(33, "AlterConfigs", 0, 2)

_Response = message_class("AlterConfigsResponse")


async def handle(gateway: Gateway, context: RequestContext, request: Any) -> Any:
    """Give each resource the configs of the request, and no others."""
    return await gateway.run_blocking(alter_resources, gateway, request, _Response, _change_of)


def _change_of(gateway: Gateway, resource: Any) -> ConfigResource:
    refuse_null_values(resource.configs)
    changes: Changes = {each.name: (AlterConfigOp.SET, each.value) for each in resource.configs}
    changed = config_resource(resource.resource_type, resource.resource_name, changes)
    for key in resettable(kind_of(changed).overrides(gateway.cluster.image(), changed.name)):
        changes.setdefault(key, (AlterConfigOp.DELETE, None))
    return changed
