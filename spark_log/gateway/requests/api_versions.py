"""ApiVersions: the requests that the gateway answers, and their versions."""

from __future__ import annotations

import re
from typing import Any

from spark_log.gateway.errors import ErrorCode
from spark_log.gateway.gateway import Gateway
from spark_log.gateway.protocol import API_VERSIONS_KEY, message_class
from spark_log.gateway.request import Api, RequestContext

API = Api(API_VERSIONS_KEY, "ApiVersions", 0, 4)

_FIRST_WITH_LEVEL_0 = 4
"""The first version in which a feature may be supported from level 0 on: Java's clients before 3.9
fail at such a feature (KAFKA-17011). As in Kafka, they are not told of it."""

_Response = message_class("ApiVersionsResponse")
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


async def handle(gateway: Gateway, context: RequestContext, request: Any) -> Any:
    """Answer with all APIs; refuse a client whose name or version Kafka would refuse."""
    if context.api_version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name)
        and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return _Response(error_code=ErrorCode.INVALID_REQUEST)
    apis = sorted(gateway.apis.values(), key=lambda api: api.key)
    return _Response(
        api_keys=[_version_of(api, api.first_advertised) for api in apis],
        supported_features=[
            _Response.SupportedFeatureKey(name=name, min_version=0, max_version=level)
            for name, level in gateway.features.items()
            if context.api_version >= _FIRST_WITH_LEVEL_0
        ],
        finalized_features_epoch=0 if gateway.features else -1,
        finalized_features=[
            _Response.FinalizedFeatureKey(
                name=name, max_version_level=level, min_version_level=level
            )
            for name, level in gateway.features.items()
        ],
    )


def unsupported_version_response() -> Any:
    """Return the answer to an ApiVersions request of an unknown version (KIP-511).

    It has version 0, so that any client can read it, and names the versions that the client may
    ask with.
    """
    return _Response(
        error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[_version_of(API, API.min_version)]
    )


def _version_of(api: Api, first: int) -> Any:
    return _Response.ApiVersion(api_key=api.key, min_version=first, max_version=api.max_version)
