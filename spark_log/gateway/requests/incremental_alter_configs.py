"""IncrementalAlterConfigs: changes of single configs (KIP-339)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from spark_log.errors import SparkLogError
from spark_log.gateway.errors import ErrorCode, error_code
from spark_log.gateway.gateway import Gateway
from spark_log.gateway.protocol import message_class
from spark_log.gateway.request import Api, RequestContext
from spark_log.types import AlterConfigOp, ConfigResource, ConfigResourceType

API = Api(44, "IncrementalAlterConfigs", 0, 1)

_Response = message_class("IncrementalAlterConfigsResponse")


async def handle(gateway: Gateway, context: RequestContext, request: Any) -> Any:
    """Change the configs of each resource by itself: all that are given for it, or none."""
    return await gateway.run_blocking(alter_resources, gateway, request, _Response, _change_of)


def _change_of(gateway: Gateway, resource: Any) -> ConfigResource:
    return config_resource(resource.resource_type, resource.resource_name, _changes(resource))


def alter_resources(
    gateway: Gateway,
    request: Any,
    response: Any,
    change_of: Callable[[Gateway, Any], ConfigResource],
) -> Any:
    """Return the response to a request after changing each of its resources by itself.

    Args:
        gateway: the gateway.
        request: the request.
        response: the class of the response.
        change_of: returns the changes of a resource of the request, or raises
            `InvalidRequestError` or a `SparkLogError`.
    """
    results = []
    for resource in request.resources:
        result = response.AlterConfigsResourceResponse(
            resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        try:
            changed = change_of(gateway, resource)
            gateway.admin.alter_configs([changed], validate_only=request.validate_only)
        except InvalidRequestError as error:
            result.error_code, result.error_message = ErrorCode.INVALID_REQUEST, str(error)
        except SparkLogError as error:
            result.error_code, result.error_message = error_code(error), str(error)
        results.append(result)
    return response(responses=results)


Changes = dict[str, tuple[AlterConfigOp, Any]]
"""The operation and the value for each config, by name."""


class InvalidRequestError(ValueError):
    """The request contradicts itself, or is about something that has no configs."""


def config_resource(resource_type: int, name: str, changes: Changes) -> ConfigResource:
    """Return a resource with changes.

    Raises:
        InvalidRequestError: no config of such a resource can be altered.
    """
    if resource_type == ConfigResourceType.TOPIC:
        return ConfigResource(ConfigResourceType.TOPIC, name, changes)
    if resource_type == ConfigResourceType.GROUP:
        if not name:
            raise InvalidRequestError("Group name must not be empty")
        return ConfigResource(ConfigResourceType.GROUP, name, changes)
    if resource_type == ConfigResourceType.BROKER:
        if name and all(operation is AlterConfigOp.DELETE for operation, _ in changes.values()):
            return ConfigResource(ConfigResourceType.BROKER, "", {})  # it has none to delete
        if name:
            raise InvalidRequestError(
                f"the configs of gateway {name} are given when it starts; alter those of the "
                f"cluster, with an empty name (--entity-default)"
            )
        return ConfigResource(ConfigResourceType.BROKER, "", changes)
    raise InvalidRequestError(
        f"configs of the resource type {resource_type} cannot be altered; expected "
        f"{ConfigResourceType.TOPIC:d} (topic), {ConfigResourceType.BROKER:d} (broker) or "
        f"{ConfigResourceType.GROUP:d} (group)"
    )


def refuse_null_values(configs: Iterable[Any]) -> None:
    """Refuse configs of a request that have no value, in Kafka's words.

    Raises:
        InvalidRequestError: a config has no value.
    """
    names = [each.name for each in configs if each.value is None]
    if names:
        raise InvalidRequestError(f"Null value not supported for : {', '.join(names)}")


def _changes(resource: Any) -> Changes:
    refuse_null_values(
        each for each in resource.configs if each.config_operation != AlterConfigOp.DELETE
    )
    changes: Changes = {}
    for each in resource.configs:
        if each.name in changes:
            raise InvalidRequestError(f"config {each.name!r} is given more than once")
        try:
            operation = AlterConfigOp(each.config_operation)
        except ValueError:
            raise InvalidRequestError(
                f"config {each.name!r}: there is no operation {each.config_operation}"
            ) from None
        changes[each.name] = operation, each.value
    return changes
