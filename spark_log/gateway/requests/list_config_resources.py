"""ListConfigResources: the names of what has configs (KIP-1142)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from spark_log.gateway.errors import ErrorCode
from spark_log.gateway.gateway import Gateway
from spark_log.gateway.protocol import message_class
from spark_log.gateway.request import Api, RequestContext


def _failed(request: Any, code: int, message: str) -> Any:
    return _Response(error_code=code)


API = Api(74, "ListConfigResources", 0, 1, error_response=_failed)

_TOPIC, _BROKER, _BROKER_LOGGER, _CLIENT_METRICS, _GROUP = 2, 4, 8, 16, 32
_TYPES: Final = frozenset({_TOPIC, _BROKER, _BROKER_LOGGER, _CLIENT_METRICS, _GROUP})

_Response = message_class("ListConfigResourcesResponse")


async def handle(gateway: Gateway, context: RequestContext, request: Any) -> Any:
    """Answer with the topics, the groups with configs, and the gateways as brokers.

    Version 0 asks for subscriptions to clients' metrics alone.
    """
    types = {_CLIENT_METRICS}
    if context.api_version >= 1:
        types = set(request.resource_types) or set(_TYPES)
    if types - _TYPES:
        return _Response(error_code=ErrorCode.UNSUPPORTED_VERSION)
    found = []
    if types & {_TOPIC, _GROUP}:
        image = await gateway.run_blocking(gateway.cluster.image)
        if _TOPIC in types:
            found += _resources(_TOPIC, [topic.name for topic in image.topics()])
        if _GROUP in types:
            found += _resources(_GROUP, sorted(image.group_overrides))
    ids = [str(each.gateway_id) for each in gateway.gateways]
    for each in sorted(types & {_BROKER, _BROKER_LOGGER}):
        found += _resources(each, ids)
    return _Response(config_resources=found)


def _resources(resource_type: int, names: Collection[str]) -> list[Any]:
    return [
        _Response.ConfigResource(resource_type=resource_type, resource_name=name) for name in names
    ]
