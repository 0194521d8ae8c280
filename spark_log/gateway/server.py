"""`GatewayServer`: listens, and answers the requests of all connections."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_log.errors import InvalidConfigurationError, SparkLogError
from spark_log.gateway.connection import Connection
from spark_log.gateway.errors import ErrorCode, error_code
from spark_log.gateway.gateway import Gateway
from spark_log.gateway.protocol import (
    API_VERSIONS_KEY,
    MalformedMessageError,
    RequestHeader,
    decode_request,
    encode_response,
)
from spark_log.gateway.request import EndConnectionError
from spark_log.gateway.request_memory import RequestMemory
from spark_log.gateway.request_metrics import RequestMetrics
from spark_log.gateway.requests import HANDLERS, Handler, unsupported_version_response
from spark_log.gateway.security import (
    Authenticator,
    MetadataUsers,
    Users,
    UsersFile,
    UserSource,
    tls_context,
)
from spark_log.metrics import Family
from spark_log.metrics.definitions import (
    FETCH_SESSION_EVICTIONS,
    FETCH_SESSION_PARTITIONS,
    FETCH_SESSIONS,
    GATEWAY_CLOSED,
    GATEWAY_CONNECTIONS,
    GATEWAY_MEMORY,
    GATEWAY_RECEIVED,
    GATEWAY_SENT,
    GATEWAYS,
)
from spark_log.util import SYSTEM_CLOCK, Clock

if TYPE_CHECKING:
    from spark_log.admin import Admin
    from spark_log.cluster import Cluster
    from spark_log.config import GatewayConfig
    from spark_log.gateway.request import Api, RequestContext
    from spark_log.metadata import MetadataImage

_log = logging.getLogger(__name__)

_CHECK_INTERVAL_S = 5.0
"""Pause between two checks for idle and slow connections."""


class GatewayServer:
    """A socket on which a gateway answers Kafka's protocol.

    Attributes:
        gateway: what the handlers share.
        connections: the open connections.
        memory: the memory of all requests without an answer.
    """

    def __init__(
        self,
        cluster: Cluster,
        admin: Admin,
        config: GatewayConfig,
        *,
        handlers: Mapping[int, Handler] = HANDLERS,
        version: str = "",
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Return a server that does not listen yet.

        Args:
            cluster: the opened root; the caller closes it.
            admin: an admin client that uses ``cluster``.
            config: the settings.
            handlers: the handlers by the keys of their APIs.
            version: the version of spark-log, which the registry shows.
            clock: measures the times of requests, and of the sessions of SASL.

        Raises:
            InvalidConfigurationError: a file of TLS, or of the users, cannot be used.
        """
        self._config = config
        self._handlers = handlers
        self._version = version
        self._clock = clock
        self.memory = RequestMemory(config.queued_max_request_bytes)
        protocol = config.security_protocol
        self._tls = tls_context(config) if protocol.endswith("SSL") else None
        self._users = _users(cluster, config) if protocol.startswith("SASL") else None
        self._server: asyncio.Server | None = None
        self._is_stopping = False
        self._checks: asyncio.Task[None] | None = None
        self.gateway = Gateway(
            cluster, admin, config, apis={key: each.api for key, each in handlers.items()}
        )
        self.connections: set[Connection] = set()
        self._metrics = RequestMetrics()
        self._closed = 0
        self._received_bytes = 0  # of connections that have ended
        self._sent_bytes = 0

    async def start(
        self, host: str, port: int, *, advertised: tuple[str, int] | None = None
    ) -> tuple[str, int]:
        """Register the gateway, and listen; return the address.

        Args:
            host: the address to listen on.
            port: the port to listen on; 0 for a free one.
            advertised: the host and the port that clients connect to; a port 0 is ``port``. None
                if they are those to listen on.

        Raises:
            InvalidConfigurationError: the address cannot be listened on.
            DuplicateBrokerRegistrationError: ``broker.id`` belongs to another gateway.
            StorageError: the root cannot be read or written.
        """
        loop = asyncio.get_running_loop()
        more: dict[str, Any] = {"host": host, "port": port}
        try:
            if host == "::":
                more = {"sock": _bind_to_all(port)}
            self._server = await loop.create_server(
                self._new_connection, backlog=1024, start_serving=False, ssl=self._tls, **more
            )
        except OSError as error:
            raise InvalidConfigurationError(
                f"cannot listen on {host}, port {port} ({error.strerror}); give another address"
            ) from None
        found = self._server.sockets[0].getsockname()
        shown_host, shown_port = advertised or (host, 0)
        try:
            registered = await self.gateway.join(shown_host, shown_port or found[1], self._version)
        except BaseException:
            self._server.close()
            raise
        await self._warn_without_users()
        await self._server.start_serving()
        self._checks = loop.create_task(self._check_connections())
        _log.info(
            "%s: gateway %d listens on %s, port %d",
            self.gateway.cluster.root,
            registered.gateway_id,
            host,
            found[1],
        )
        return found[0], found[1]

    async def _warn_without_users(self) -> None:
        cluster = self.gateway.cluster
        if self._users is None:
            return
        with cluster.suppressed.suppress("gateway users", cluster.root, SparkLogError):
            if not await self.gateway.run_blocking(self._users.names):
                _log.warning(
                    "%s: no client can authenticate, because there are no users: add one with "
                    "spark-log gateway-users add",
                    cluster.root,
                )

    @property
    def is_listening(self) -> bool:
        """Whether new connections are accepted."""
        return self._server is not None and self._server.is_serving()

    async def stop(self, timeout_s: float = 30.0) -> None:
        """Accept no more connections, answer what was received, and close all connections.

        Args:
            timeout_s: the time after which connections are closed whose requests have no answer.
        """
        if self._server is None or self._is_stopping:
            return
        self._is_stopping = True
        await self.gateway.leave()
        # What waits for others is answered at once: clients go on at another gateway.
        self.gateway.groups.close()
        self.gateway.consumer_groups.close()
        self.gateway.partitions.drain()
        self.memory.drain()
        self._server.close()
        assert self._checks is not None
        self._checks.cancel()
        for connection in tuple(self.connections):
            connection.drain()
        closed = asyncio.gather(*(each.closed.wait() for each in tuple(self.connections)))
        try:
            await asyncio.wait_for(closed, timeout_s)
        except TimeoutError:
            _log.warning(
                "%d connections still had requests after %.0f s, and were closed",
                len(self.connections),
                timeout_s,
            )
            for connection in tuple(self.connections):
                connection.abort("the gateway stops")
        self.gateway.close()

    # --- connections -----------------------------------------------------------------------------

    @property
    def received_bytes(self) -> int:
        """The size of all that clients have sent; any thread may ask."""
        return self._received_bytes + sum(each.received_bytes for each in tuple(self.connections))

    @property
    def sent_bytes(self) -> int:
        """The size of all answers to clients; any thread may ask."""
        return self._sent_bytes + sum(each.sent_bytes for each in tuple(self.connections))

    def _new_connection(self) -> Connection:
        return Connection(
            self,
            self._config,
            self.memory,
            listener=self._config.security_protocol,
            authenticator=self._new_authenticator(),
            on_open=self._on_open,
            on_close=self._on_close,
        )

    def _new_authenticator(self) -> Authenticator | None:
        if self._users is None:
            return None
        return Authenticator(
            self._users,
            self._config.sasl_enabled_mechanisms,
            session_lifetime_ms=self._config.connections_max_reauth_ms,
            clock=self._clock,
        )

    def _on_open(self, connection: Connection) -> bool:
        if len(self.connections) >= self._config.max_connections:
            self.gateway.cluster.suppressed.add(
                "accept",
                self.gateway.cluster.root,
                SparkLogError("max.connections is reached; a connection was closed"),
            )
            return False
        self.connections.add(connection)
        return True

    def _on_close(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self._closed += connection.is_aborted
        self._received_bytes += connection.received_bytes
        self._sent_bytes += connection.sent_bytes

    async def _check_connections(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_CHECK_INTERVAL_S)
            self.check_connections(loop.time())

    def check_connections(self, now_s: float) -> None:
        """Close connections that are idle or slow.

        Args:
            now_s: the time of the event loop.
        """
        for connection in tuple(self.connections):
            connection.check_age(now_s)

    # --- requests --------------------------------------------------------------------------------

    def decode(self, header: RequestHeader, frame: memoryview) -> Any:
        """Return a request; None for an ApiVersions request of an unknown version.

        Raises:
            MalformedMessageError: the frame is not a request that this gateway knows.
        """
        handler = self._handlers.get(header.api_key)
        if handler is None:
            raise MalformedMessageError(f"there is no API with the key {header.api_key}")
        api = handler.api
        if not api.min_version <= header.api_version <= api.max_version:
            if api.key == API_VERSIONS_KEY:
                return None
            raise MalformedMessageError(
                f"{api.name} has the version {header.api_version}; expected "
                f"{api.min_version} to {api.max_version}"
            )
        return decode_request(api.name, header, frame)

    def api(self, api_key: int) -> Api:
        """Return the API of a request that was decoded."""
        return self._handlers[api_key].api

    async def answer(self, context: RequestContext, request: Any) -> list[bytes] | None:
        """Return the parts of the answer's frame; None if the client expects no answer."""
        handler = self._handlers[context.api_key]
        name, version = handler.api.name, context.api_version
        began_ms = self._clock.monotonic_ms()
        code: int = ErrorCode.NONE
        try:
            if request is None:  # of an unknown version
                version, response = 0, unsupported_version_response()
            else:
                response = await handler.handle(self.gateway, context, request)
            code = getattr(response, "error_code", ErrorCode.NONE)
        except EndConnectionError as error:
            code = error.code
            raise
        except Exception as error:
            code = error_code(error)
            response = self._error_response(handler, context, request, error)
        finally:
            duration_ms = self._clock.monotonic_ms() - began_ms
            self._metrics.record(name, version, duration_ms, ErrorCode(code).name if code else None)
        if response is None:
            return None
        return encode_response(name, version, context.correlation_id, response)

    def families(self) -> Iterator[Family]:
        """Yield the values of the gateway's metrics; any thread may call it."""
        yield from self._metrics.families()
        yield Family(GATEWAY_CONNECTIONS, [((), len(self.connections))])
        yield Family(GATEWAY_RECEIVED, [((), self.received_bytes)])
        yield Family(GATEWAY_SENT, [((), self.sent_bytes)])
        yield Family(GATEWAY_CLOSED, [((), self._closed)])
        yield Family(GATEWAY_MEMORY, [((), self.memory.used_bytes)])
        yield Family(GATEWAYS, [((), len(self.gateway.gateways))])
        sessions = self.gateway.fetch_sessions
        yield Family(FETCH_SESSIONS, [((), len(sessions))])
        yield Family(FETCH_SESSION_PARTITIONS, [((), sessions.partitions)])
        yield Family(FETCH_SESSION_EVICTIONS, [((), sessions.evictions)])

    def _error_response(
        self, handler: Handler, context: RequestContext, request: Any, error: Exception
    ) -> Any:
        """Return the response to a request whose handler failed.

        Raises:
            Exception: the API has no such response; the connection is closed.
        """
        code = error_code(error)
        if code is ErrorCode.UNKNOWN_SERVER_ERROR:
            _log.error(
                "%s %d from %s failed",
                handler.api.name,
                context.api_version,
                context.client_host,
                exc_info=error,
            )
        else:
            self.gateway.cluster.suppressed.add(
                f"{handler.api.name} request", self.gateway.cluster.root, error
            )
        if handler.api.error_response is None:
            raise error
        return handler.api.error_response(request, code, str(error))


def _bind_to_all(port: int) -> socket.socket:
    """Bind to all addresses of IPv4 and IPv6, as Kafka does; asyncio binds to those of IPv6 alone.

    Raises:
        OSError: the port cannot be bound to.
    """
    found = socket.socket(socket.AF_INET6)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        found.bind(("::", port))
    except OSError:
        found.close()
        raise
    return found


def _users(cluster: Cluster, config: GatewayConfig) -> Users:
    """Return the users of a listener with SASL: those of the file before those of the metadata."""

    def image() -> MetadataImage:
        found = cluster.metadata.recent_image(config.metadata_max_age_ms)
        return cluster.image() if found is None else found

    in_metadata: UserSource = MetadataUsers(image)
    if not config.sasl_users_file:
        return Users(in_metadata)
    return Users(UsersFile(Path(config.sasl_users_file)), in_metadata)
