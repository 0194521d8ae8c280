"""DescribeClientQuotas: the quotas of client ids (KIP-546)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from spark_log.gateway.errors import ErrorCode
from spark_log.gateway.gateway import Gateway
from spark_log.gateway.protocol import message_class
from spark_log.gateway.request import Api, RequestContext

CLIENT_ID: Final = "client-id"
"""The only entity type with quotas. Kafka also has ``user`` and ``ip``."""

_EXACT, _DEFAULT, _ANY = range(3)

_Response = message_class("DescribeClientQuotasResponse")


def _failed(request: Any, code: int, message: str) -> Any:
    return _Response(error_code=code, error_message=message, entries=None)


API = Api(48, "DescribeClientQuotas", 0, 1, error_response=_failed)


async def handle(gateway: Gateway, context: RequestContext, request: Any) -> Any:
    """Answer with the quotas of the client ids that the filter selects.

    A filter by user or by address selects nothing: there are no such quotas.
    """
    problem = _problem(request.components)
    if problem is not None:
        return _failed(request, ErrorCode.INVALID_REQUEST, problem)
    entries = await gateway.run_blocking(_describe, gateway, request)
    return _Response(entries=entries)


def _problem(components: Sequence[Any]) -> str | None:
    """Return what is wrong with a filter; None if nothing is."""
    types = [each.entity_type for each in components]
    if not all(types):
        return "an entity type is empty"
    if len(set(types)) < len(types):
        return "an entity type is in the filter more than once"
    if "ip" in types and {"user", CLIENT_ID} & set(types):
        return "a filter by ip cannot be combined with others"
    for each in components:
        if each.match_type not in (_EXACT, _DEFAULT, _ANY):
            return f"there is no match type {each.match_type}; expected 0, 1 or 2"
        if (each.match is None) == (each.match_type == _EXACT):
            return "an exact match has a name, and the other ones have none"
    return None


def _describe(gateway: Gateway, request: Any) -> list[Any]:
    types = {each.entity_type for each in request.components}
    if types - {CLIENT_ID} or (request.strict and not types):
        return []
    client_ids: Collection[str | None] | None = None
    for each in request.components:
        if each.match_type != _ANY:
            client_ids = [each.match if each.match_type == _EXACT else None]
    return [
        _Response.EntryData(
            entity=[_Response.EntityData(entity_type=CLIENT_ID, entity_name=client_id)],
            values=[_Response.ValueData(key=key, value=float(quotas[key])) for key in quotas],
        )
        for client_id, quotas in gateway.admin.describe_client_quotas(client_ids).items()
        if quotas
    ]
