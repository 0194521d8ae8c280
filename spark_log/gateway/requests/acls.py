"""DescribeAcls, CreateAcls and DeleteAcls: there are no ACLs, which Kafka has an error for."""

from __future__ import annotations

from typing import Any, Final

from spark_log.gateway.errors import ErrorCode
from spark_log.gateway.gateway import Gateway
from spark_log.gateway.protocol import message_class
from spark_log.gateway.request import Api, RequestContext

DESCRIBE: Final = Api(29, "DescribeAcls", 1, 3)
CREATE: Final = Api(30, "CreateAcls", 1, 3)
DELETE: Final = Api(31, "DeleteAcls", 1, 3)

_MESSAGE: Final = "the storage's permissions decide who may read and write a root: docs/security.md"

_Described = message_class("DescribeAclsResponse")
_Created = message_class("CreateAclsResponse")
_Deleted = message_class("DeleteAclsResponse")


async def describe(gateway: Gateway, context: RequestContext, request: Any) -> Any:
    """Answer that there are no ACLs."""
    return _Described(error_code=ErrorCode.SECURITY_DISABLED, error_message=_MESSAGE)


async def create(gateway: Gateway, context: RequestContext, request: Any) -> Any:
    """Answer for each ACL that there are none."""
    return _Created(
        results=[
            _Created.AclCreationResult(
                error_code=ErrorCode.SECURITY_DISABLED, error_message=_MESSAGE
            )
            for _ in request.creations
        ]
    )


async def delete(gateway: Gateway, context: RequestContext, request: Any) -> Any:
    """Answer for each filter that there are no ACLs."""
    return _Deleted(
        filter_results=[
            _Deleted.DeleteAclsFilterResult(
                error_code=ErrorCode.SECURITY_DISABLED, error_message=_MESSAGE
            )
            for _ in request.filters
        ]
    )
