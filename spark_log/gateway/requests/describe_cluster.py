"""DescribeCluster: the gateways (KIP-700)."""

from __future__ import annotations

from typing import Any

from spark_log.gateway.errors import ErrorCode
from spark_log.gateway.gateway import Gateway
from spark_log.gateway.protocol import message_class
from spark_log.gateway.request import Api, RequestContext
from spark_log.gateway.requests.authorized_operations import CLUSTER_OPERATIONS, NOT_REQUESTED

API = Api(60, "DescribeCluster", 0, 2)

_Response = message_class("DescribeClusterResponse")
_BROKERS = 1


async def handle(gateway: Gateway, context: RequestContext, request: Any) -> Any:
    """Answer with all gateways; there are no controllers of their own."""
    if request.endpoint_type != _BROKERS:
        return _Response(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="the gateway lists brokers only; ask for the endpoint type 1",
            endpoint_type=request.endpoint_type,
        )
    return _Response(
        cluster_id=gateway.cluster.cluster_id,
        controller_id=gateway.registered.gateway_id,
        brokers=[
            _Response.DescribeClusterBroker(
                broker_id=each.gateway_id, host=each.host, port=each.port, rack=each.rack or None
            )
            for each in gateway.gateways
        ],
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_REQUESTED
        ),
    )
