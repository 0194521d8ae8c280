"""AlterConfigs: all configs of a resource at once; Kafka has deprecated it, old tools use it."""

from __future__ import annotations

from typing import Any

from spark_log.errors import InvalidConfigurationError, SparkLogError
from spark_log.gateway.errors import ErrorCode, error_code
from spark_log.gateway.gateway import Gateway
from spark_log.gateway.protocol import message_class
from spark_log.gateway.request import Api, RequestContext
from spark_log.gateway.requests.incremental_alter_configs import (
    InvalidRequestError,
    config_resource,
)
from spark_log.types import AlterConfigOp

API = Api(33, "AlterConfigs", 0, 2)

_Response = message_class("AlterConfigsResponse")


async def handle(gateway: Gateway, context: RequestContext, request: Any) -> Any:
    """Give each resource the configs of the request, and no others."""
    return _Response(responses=await gateway.run_blocking(_alter_all, gateway, request))


def _alter_all(gateway: Gateway, request: Any) -> list[Any]:
    return [
        _alter(gateway, each, validate_only=request.validate_only) for each in request.resources
    ]


def _alter(gateway: Gateway, resource: Any, *, validate_only: bool) -> Any:
    result = _Response.AlterConfigsResourceResponse(
        resource_type=resource.resource_type, resource_name=resource.resource_name
    )
    try:
        changes: dict[str, object] = {}
        for each in resource.configs:
            if each.value is None:
                raise InvalidConfigurationError(
                    f"config {each.name!r} has no value; leave it out for its default",
                    key=each.name,
                )
            changes[each.name] = AlterConfigOp.SET, each.value
        changed = config_resource(resource.resource_type, resource.resource_name, changes)
        for key in _overrides(gateway, changed.name):
            changes.setdefault(key, (AlterConfigOp.DELETE, None))
        gateway.admin.alter_configs([changed], validate_only=validate_only)
    except InvalidRequestError as error:
        result.error_code, result.error_message = ErrorCode.INVALID_REQUEST, str(error)
    except SparkLogError as error:
        result.error_code, result.error_message = error_code(error), str(error)
    return result


def _overrides(gateway: Gateway, name: str) -> list[str]:
    image = gateway.cluster.image()
    return list(image.topic(name).overrides if name else image.cluster_overrides)
