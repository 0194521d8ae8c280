"""DescribeUserScramCredentials and AlterUserScramCredentials (KIP-554), for super users alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from spark_log.errors import SparkLogError
from spark_log.gateway.errors import ErrorCode, error_code
from spark_log.gateway.gateway import Gateway
from spark_log.gateway.protocol import message_class
from spark_log.gateway.request import Api, RequestContext
from spark_log.types import (
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

_Described = message_class("DescribeUserScramCredentialsResponse")
_Altered = message_class("AlterUserScramCredentialsResponse")


def _not_described(request: Any, code: int, message: str) -> Any:
    return _Described(error_code=code, error_message=message)


def _not_altered(request: Any, code: int, message: str) -> Any:
    names = dict.fromkeys(each.name for each in (*request.deletions, *request.upsertions))
    return _Altered(results=[_outcome(name, code, message) for name in names])


DESCRIBE: Final = Api(50, "DescribeUserScramCredentials", 0, 0, error_response=_not_described)
ALTER: Final = Api(51, "AlterUserScramCredentials", 0, 0, error_response=_not_altered)


async def describe(gateway: Gateway, context: RequestContext, request: Any) -> Any:
    """Answer with the mechanisms of the users that are asked for; of all if none is."""
    refusal = _refusal(gateway, context)
    if refusal is not None:
        return _not_described(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, refusal)
    known = await gateway.run_blocking(gateway.admin.describe_user_scram_credentials)
    asked = Counter(each.name for each in request.users or ()) or dict.fromkeys(known, 1)
    results = []
    for name, count in asked.items():
        result = _Described.DescribeUserScramCredentialsResult(user=name)
        if count > 1:
            result.error_code = ErrorCode.DUPLICATE_RESOURCE
            result.error_message = f"user {name!r} is in the request {count} times; ask once"
        elif name not in known:
            result.error_code = ErrorCode.RESOURCE_NOT_FOUND
            result.error_message = f"there is no user {name!r} in the metadata"
        else:
            result.credential_infos = [
                _Described.CredentialInfo(mechanism=each.mechanism, iterations=each.iterations)
                for each in known[name]
            ]
        results.append(result)
    return _Described(results=results)


async def alter(gateway: Gateway, context: RequestContext, request: Any) -> Any:
    """Change the credentials of each user: all that the request has for the user, or none."""
    refusal = _refusal(gateway, context)
    if refusal is not None:
        return _not_altered(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, refusal)
    return _Altered(results=await gateway.run_blocking(_alter_all, gateway, request))


def _refusal(gateway: Gateway, context: RequestContext) -> str | None:
    if context.principal in gateway.config.super_users:
        return None
    return (
        f"{context.principal} is not in super.users of this gateway; the command spark-log "
        f"gateway-users changes users with the rights of the storage"
    )


def _alter_all(gateway: Gateway, request: Any) -> list[Any]:
    by_user: dict[str, list[Any]] = {}
    for each in (*request.deletions, *request.upsertions):
        by_user.setdefault(each.name, []).append(each)
    return [_alter(gateway, name, asked) for name, asked in by_user.items()]


def _alter(gateway: Gateway, name: str, asked: Sequence[Any]) -> Any:
    try:
        alterations = list(map(_alteration, asked))
    except ValueError as error:
        return _outcome(name, ErrorCode.UNSUPPORTED_SASL_MECHANISM, str(error))
    try:
        gateway.admin.alter_user_scram_credentials(alterations)
    except SparkLogError as error:
        return _outcome(name, error_code(error), str(error))
    return _outcome(name, ErrorCode.NONE, None)


def _alteration(asked: Any) -> UserScramCredentialDeletion | UserScramCredentialUpsertion:
    """Return an alteration of a request.

    Raises:
        ValueError: its mechanism is unknown.
    """
    mechanism = ScramMechanism(asked.mechanism)
    if not hasattr(asked, "salted_password"):
        return UserScramCredentialDeletion(asked.name, mechanism)
    return UserScramCredentialUpsertion(
        asked.name,
        mechanism,
        asked.iterations,
        bytes(asked.salt),
        bytes(asked.salted_password),
    )


def _outcome(name: str, code: int, message: str | None) -> Any:
    return _Altered.AlterUserScramCredentialsResult(
        user=name, error_code=code, error_message=message
    )
