"""A request's context, and the interface between the server and the handlers of requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spark_log.gateway.errors import ErrorCode
    from spark_log.gateway.request_memory import ReservedMemory
    from spark_log.gateway.security import Authenticator


@dataclass(frozen=True, slots=True)
class RequestContext:
    """Everything about a request besides its own fields.

    Attributes:
        api_key: the key of the request's API.
        api_version: the version of the request; the response has the same.
        correlation_id: the number that the response repeats.
        client_id: the client's name for itself; None if it gave none.
        client_software: the name and version of the client's library, from ApiVersions; None if it
            gave none.
        client_host: the address that the request came from.
        listener: the name of the listener that accepted the connection.
        principal: the authenticated user, such as ``User:alice``; ``User:ANONYMOUS`` without
            authentication.
        memory: the memory of the request and its answer.
        authenticator: the SASL exchange of the connection; None on a listener without SASL.
        transactions: the transactions that requests of this connection have shown, of clients that
            keep their identity: transactional id → number of the transaction (protocol T19).
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    client_software: tuple[str, str] | None
    client_host: str
    listener: str
    principal: str
    memory: ReservedMemory
    authenticator: Authenticator | None = None
    transactions: dict[str, int] = field(default_factory=dict)


class EndConnectionError(Exception):
    """A request failed whose client expects no answer: its connection is closed instead.

    Attributes:
        code: the code of the error, for the metrics.
    """

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(f"{code.name}: {message}" if message else code.name)
        self.code = code


@dataclass(frozen=True, slots=True)
class Api:
    """An API of Kafka's protocol as the gateway has it.

    Attributes:
        key: the API's key.
        name: Kafka's name of the API, such as ``Metadata``: its messages are ``MetadataRequest``
            and ``MetadataResponse``.
        min_version: the first version that is answered.
        max_version: the last version that is answered.
        advertised_min_version: the first version in ApiVersions, if it is not ``min_version``.
        error_response: makes the response to a request whose handler raised an error, from the
            request, the error's code and its message; None to close the connection then.
        only_reads: whether a handler changes nothing, and may wait for long: it is cancelled when
            its client is gone, and the requests after it do not wait for its end.
        overlaps: whether a handler begins before those of the client's earlier requests have ended:
            it keeps the order of its own effects.
        needs_client: whether a handler does not begin when its client is gone: the client repeats
            the request on another connection, and this one could take effect after its later ones.
    """

    key: int
    name: str
    min_version: int
    max_version: int
    advertised_min_version: int | None = None
    error_response: Callable[[Any, int, str], Any] | None = None
    only_reads: bool = False
    overlaps: bool = False
    needs_client: bool = False

    @property
    def first_advertised(self) -> int:
        """The first version in ApiVersions."""
        if self.advertised_min_version is None:
            return self.min_version
        return self.advertised_min_version
