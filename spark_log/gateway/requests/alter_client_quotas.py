"""AlterClientQuotas: changes the quotas of client ids (KIP-546)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from spark_log.config import ClientQuotaConfig
from spark_log.errors import InvalidConfigurationError, SparkLogError
from spark_log.gateway.errors import ErrorCode, error_code
from spark_log.gateway.gateway import Gateway
from spark_log.gateway.protocol import message_class
from spark_log.gateway.request import Api, RequestContext
from spark_log.gateway.requests.describe_client_quotas import CLIENT_ID

API = Api(49, "AlterClientQuotas", 0, 1)

_LIMIT: Final = 2.0**63

_Response = message_class("AlterClientQuotasResponse")


async def handle(gateway: Gateway, context: RequestContext, request: Any) -> Any:
    """Change the quotas of each client id by itself, or only check them."""
    return _Response(entries=await gateway.run_blocking(_alter_all, gateway, request))


def _alter_all(gateway: Gateway, request: Any) -> list[Any]:
    return [_alter(gateway, each, validate_only=request.validate_only) for each in request.entries]


def _alter(gateway: Gateway, entry: Any, *, validate_only: bool) -> Any:
    result = _Response.EntryData(
        entity=[
            _Response.EntityData(entity_type=each.entity_type, entity_name=each.entity_name)
            for each in entry.entity
        ]
    )
    try:
        client_id, quotas = _client_id(entry.entity), _quotas(entry.ops)
        gateway.admin.alter_client_quotas({client_id: quotas}, validate_only=validate_only)
    except InvalidConfigurationError as error:
        result.error_code, result.error_message = ErrorCode.INVALID_REQUEST, str(error)
    except SparkLogError as error:
        result.error_code, result.error_message = error_code(error), str(error)
    return result


def _client_id(entity: Sequence[Any]) -> str | None:
    types = sorted(each.entity_type for each in entity)
    if types != [CLIENT_ID]:
        raise InvalidConfigurationError(
            f"the entity has the types {types}; quotas are those of client ids alone: give one "
            f"{CLIENT_ID}"
        )
    name: str | None = entity[0].entity_name
    return name


def _quotas(operations: Sequence[Any]) -> dict[str, int | None]:
    known = sorted(ClientQuotaConfig.keys())
    quotas: dict[str, int | None] = {}
    for each in operations:
        if each.key not in known:
            raise InvalidConfigurationError(
                f"there is no quota {each.key!r}; expected one of {', '.join(known)}"
            )
        if each.remove:
            quotas[each.key] = None
            continue
        # A whole number is needed; NaN and infinity fail, too.
        if not (0 < each.value < _LIMIT and each.value == int(each.value)):
            raise InvalidConfigurationError(
                f"{each.key} is {each.value}; expected a whole number of bytes per second above 0"
            )
        quotas[each.key] = int(each.value)
    return quotas
