"""`Connection`: one client's socket: frames in, answers out in the same order."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from spark_log.gateway.protocol import (
    API_VERSIONS_KEY,
    MalformedMessageError,
    RequestHeader,
    decode_header,
)
from spark_log.gateway.request import RequestContext
from spark_log.gateway.request_memory import ReservedMemory
from spark_log.gateway.security import AuthenticationError, principal_of_certificate

if TYPE_CHECKING:
    from spark_log.config import GatewayConfig
    from spark_log.gateway.request import Api
    from spark_log.gateway.request_memory import RequestMemory
    from spark_log.gateway.security import Authenticator

_log = logging.getLogger(__name__)

_LENGTH = struct.Struct(">i")
ANONYMOUS = "User:ANONYMOUS"

_MAX_BYTES_BEFORE_AUTHENTICATION = 524_288
"""Kafka's limit of a request of a client that is not authenticated."""

_HANDSHAKE_KEY, _AUTHENTICATE_KEY = 17, 36
_KEYS_BEFORE_AUTHENTICATION = (_HANDSHAKE_KEY, API_VERSIONS_KEY, _AUTHENTICATE_KEY)


class Dispatcher(Protocol):
    """Decodes requests, and answers them."""

    def decode(self, header: RequestHeader, frame: memoryview) -> Any:
        """Return a request.

        Raises:
            MalformedMessageError: the frame is not a request that this gateway knows.
        """

    async def answer(self, context: RequestContext, request: Any) -> list[bytes] | None:
        """Return the parts of the answer's frame; None if the client expects no answer."""

    def api(self, api_key: int) -> Api:
        """Return the API of a request that was decoded."""


@dataclass(slots=True)
class _Request:
    """A request that has no answer yet.

    Attributes:
        memory: the memory of the request and its answer.
        api: its API; None for a message of SASL without a request's header.
        task: the handler; its result is the answer's frame.
    """

    memory: ReservedMemory
    api: Api | None
    task: asyncio.Task[list[bytes] | None] = field(repr=False)

    @property
    def only_reads(self) -> bool:
        """Whether it may be cancelled when its client is gone, and none has to wait for its end."""
        return self.api is not None and self.api.only_reads

    @property
    def overlaps(self) -> bool:
        """Whether it began before those in front of it had ended."""
        return self.api is not None and self.api.overlaps


class Connection(asyncio.Protocol):
    """Reads the requests of one client, and answers each in the order of arrival.

    A client sees what it would see if one request was handled after the other, as in Kafka: a
    request begins when those before it have ended that may have changed something. Requests whose
    APIs overlap (`Api.overlaps`) begin at once, in the order of arrival: each runs to its first
    await before the next one is started. Answers that are ready early wait for those before them.

    The connection stops reading while the client has too many requests without an answer, while
    all requests of the gateway take too much memory, and while the client does not read its
    answers. A frame that cannot be read ends the connection, and no other.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        config: GatewayConfig,
        memory: RequestMemory,
        *,
        listener: str,
        authenticator: Authenticator | None,
        on_open: Callable[[Connection], bool],
        on_close: Callable[[Connection], None],
    ) -> None:
        """Return a connection that asyncio opens.

        Args:
            dispatcher: decodes and answers requests.
            config: the limits.
            memory: the memory of all requests of the gateway.
            listener: the name of the listener, for handlers.
            authenticator: authenticates the client; None if the listener has no SASL.
            on_open: called with the open connection; returns whether to keep it.
            on_close: called with the closed connection.
        """
        self._dispatcher = dispatcher
        self._config = config
        self._memory = memory
        self._listener = listener
        self._authenticator = authenticator
        self._principal = ANONYMOUS
        self._has_raw_tokens = False
        self._on_open = on_open
        self._on_close = on_close
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport = None  # type: ignore[assignment] # until it is made
        self._received = bytearray()
        self._frame_bytes = 0  # of the frame that is being received; 0 between frames
        self._frame_memory: ReservedMemory | None = None  # of that frame
        self._frame_began_s = 0.0
        self._requests: deque[_Request] = deque()
        self._is_reading = True
        self._can_write = True
        self._unread: list[ReservedMemory] = []  # of answers that the client has not read yet
        self._unread_bytes = 0
        self._read_s = 0.0  # when the client last read some of them
        self._is_draining = False
        self._is_closed = False
        self._client_software: tuple[str, str] | None = None
        self._transactions: dict[str, int] = {}
        self._last_active_s = self._loop.time()
        self.client_host = ""
        self.received_bytes = 0
        self.sent_bytes = 0
        self.is_aborted = False
        self.closed = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Connection from {self.client_host}>"

    # --- asyncio ---------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin; close at once if the gateway has too many connections."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self.client_host = str(peer[0]) if isinstance(peer, tuple) else ""
        tls = transport.get_extra_info("ssl_object")
        if tls is not None:
            self._principal = principal_of_certificate(tls.getpeercert()) or ANONYMOUS
        if not self._on_open(self):
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """Drop everything; handlers that have begun run to their end."""
        self._is_closed = True
        if self._frame_memory is not None:
            self._frame_memory.release()
        self._frame_bytes, self._frame_memory = 0, None
        self._release_unread()
        self._received.clear()
        for request in tuple(self._requests):
            if request.only_reads:
                request.task.cancel()
        self._on_close(self)
        self.closed.set()

    def pause_writing(self) -> None:
        """Stop: the client does not read its answers."""
        self._can_write = False
        self._unread_bytes = self._transport.get_write_buffer_size()
        self._read_s = self._loop.time()
        self._update_reading()

    def resume_writing(self) -> None:
        """Continue: the client has read its answers."""
        self._can_write = True
        self._release_unread()
        self._write_answers()
        self._parse()

    def data_received(self, data: bytes) -> None:
        """Take bytes of requests."""
        self._last_active_s = self._loop.time()
        self.received_bytes += len(data)
        self._received += data
        self._parse()

    def eof_received(self) -> bool:
        """Close: the client sends no more, and as in Kafka gets no more answers."""
        return False

    # --- limits ----------------------------------------------------------------------------------

    def check_age(self, now_s: float) -> None:
        """Close the connection if it is idle, or if its client sends or reads too slowly.

        A client that does not read its answers is closed only if others wait for their memory.

        Args:
            now_s: the time of the event loop.
        """
        frame_ms = (now_s - self._frame_began_s) * 1000
        idle_ms = (now_s - self._last_active_s) * 1000
        memory = self._frame_memory
        has_memory = memory is not None and not memory.is_waiting
        if has_memory and frame_ms > self._config.socket_receive_max_ms:
            self.abort("a request did not arrive within socket.receive.max.ms")
        elif not self._reads_answers(now_s) and self._memory.has_waiting:
            self.abort("it read nothing of its answers for socket.receive.max.ms")
        elif not self._requests and idle_ms > self._config.connections_max_idle_ms:
            self.abort("it was idle for connections.max.idle.ms")

    def _reads_answers(self, now_s: float) -> bool:
        if self._can_write:
            return True
        unread_bytes = self._transport.get_write_buffer_size()
        if unread_bytes < self._unread_bytes:
            self._unread_bytes, self._read_s = unread_bytes, now_s
        return (now_s - self._read_s) * 1000 <= self._config.socket_receive_max_ms

    def drain(self) -> None:
        """Read no more requests, answer those that were received, and close."""
        self._is_draining = True
        self._update_reading()
        self._close_if_drained()

    @property
    def in_flight(self) -> int:
        """The number of requests that have no answer yet."""
        return len(self._requests)

    # --- requests --------------------------------------------------------------------------------

    def _parse(self) -> None:
        """Start the handlers of all requests that have arrived, as far as limits allow."""
        while self._may_start():
            if not self._frame_bytes and not self._begin_frame():
                break
            memory = self._frame_memory
            assert memory is not None
            received_bytes = len(self._received) - _LENGTH.size
            if not memory.grow(received_bytes) or received_bytes < self._frame_bytes:
                break
            end = _LENGTH.size + self._frame_bytes
            frame = memoryview(bytes(memoryview(self._received)[_LENGTH.size : end]))
            del self._received[:end]
            self._frame_bytes, self._frame_memory = 0, None
            memory.arrived()
            self._start(frame, memory)
        self._update_reading()

    def _may_start(self) -> bool:
        return (
            not self._is_closed
            and not self._is_draining
            and self._can_write
            and len(self._requests) < self._max_in_flight
        )

    @property
    def _max_in_flight(self) -> int:
        """One before authentication, which decides about the next request."""
        return self._config.max_in_flight_requests_per_connection if self._is_authenticated else 1

    @property
    def _is_authenticated(self) -> bool:
        return self._authenticator is None or bool(self._authenticator.principal)

    @property
    def _max_bytes(self) -> int:
        limit = self._config.socket_request_max_bytes
        return limit if self._is_authenticated else min(limit, _MAX_BYTES_BEFORE_AUTHENTICATION)

    def _begin_frame(self) -> bool:
        """Read the length of the next frame; return whether it is known."""
        if len(self._received) < _LENGTH.size:
            return False
        (size,) = _LENGTH.unpack_from(self._received)
        if not 0 < size <= self._max_bytes:
            self.abort(f"a request has the size {size}")
            return False
        self._frame_bytes = size
        self._frame_began_s = self._loop.time()
        # Clients that have not shown who they are take no memory from those that have.
        counted_bytes = size if self._is_authenticated else 0
        self._frame_memory = ReservedMemory(self._memory, counted_bytes, self._on_memory)
        return True

    def _on_memory(self) -> None:
        self._frame_began_s = self._loop.time()
        self._parse()

    def _start(self, frame: memoryview, memory: ReservedMemory) -> None:
        authenticator = self._authenticator
        if self._has_raw_tokens and authenticator is not None and authenticator.expects_token:
            self._add(self._answer_token(authenticator, bytes(frame)), memory, None)
            return
        try:
            header = decode_header(frame)
            if not self._is_authenticated and header.api_key not in _KEYS_BEFORE_AUTHENTICATION:
                raise MalformedMessageError(
                    f"a request with the key {header.api_key} before authentication"
                )
            if (
                authenticator is not None
                and authenticator.has_expired
                and header.api_key not in _KEYS_BEFORE_AUTHENTICATION
            ):
                raise MalformedMessageError(
                    f"{authenticator.principal} did not authenticate again within "
                    f"connections.max.reauth.ms"
                )
            request = self._dispatcher.decode(header, frame)
        except MalformedMessageError as error:
            memory.release()
            self.abort(str(error))
            return
        if header.api_key == API_VERSIONS_KEY and header.api_version >= 3 and request is not None:
            self._client_software = (
                request.client_software_name,
                request.client_software_version,
            )
        context = RequestContext(
            header.api_key,
            header.api_version,
            header.correlation_id,
            header.client_id,
            self._client_software,
            self.client_host,
            self._listener,
            authenticator.principal or ANONYMOUS if authenticator else self._principal,
            memory,
            authenticator,
            self._transactions,
        )
        if header.api_key == _HANDSHAKE_KEY:
            self._has_raw_tokens = header.api_version == 0
        api = self._dispatcher.api(header.api_key)
        before = () if api.overlaps else self._unfinished()
        if before:
            self._add(self._answer_after(before, api, context, request), memory, api)
        else:
            self._add(self._dispatcher.answer(context, request), memory, api)

    def _add(
        self,
        answer: Coroutine[Any, Any, list[bytes] | None],
        memory: ReservedMemory,
        api: Api | None,
    ) -> None:
        task = self._loop.create_task(answer)
        self._requests.append(_Request(memory, api, task))
        task.add_done_callback(self._on_answer)

    def _unfinished(self) -> Sequence[asyncio.Task[list[bytes] | None]]:
        """Return the handlers whose end the next request has to wait for."""
        found = []
        for request in reversed(self._requests):
            if request.only_reads:
                continue
            if not request.task.done():
                found.append(request.task)
            if not request.overlaps:
                break  # it has waited for those before it
        return found

    async def _answer_after(
        self,
        before: Sequence[asyncio.Task[Any]],
        api: Api,
        context: RequestContext,
        request: Any,
    ) -> list[bytes] | None:
        """Return the answer of a handler that begins when others have ended."""
        await asyncio.wait(before)
        if self._is_closed and api.needs_client:
            return None
        return await self._dispatcher.answer(context, request)

    async def _answer_token(self, authenticator: Authenticator, token: bytes) -> list[bytes]:
        """Return the answer to a message of SASL that came without a request's header."""
        try:
            answer = await self._loop.run_in_executor(None, authenticator.step, token)
        except AuthenticationError:
            await asyncio.sleep(self._config.connection_failed_authentication_delay_ms / 1000)
            raise
        return [_LENGTH.pack(len(answer)), answer]

    def _on_answer(self, task: asyncio.Task[list[bytes] | None]) -> None:
        self._last_active_s = self._loop.time()
        self._write_answers()
        if self._received or not self._is_reading:
            self._parse()

    def _write_answers(self) -> None:
        """Write the answers that are ready and have no other before them."""
        while self._can_write and self._requests and self._requests[0].task.done():
            done = self._requests.popleft()
            self._write_answer(done.task)
            if self._can_write or self._is_closed:
                done.memory.release()
            else:
                self._unread.append(done.memory)
            if self._authenticator is not None and self._authenticator.has_failed:
                self._is_draining = True
        self._close_if_drained()

    def _write_answer(self, task: asyncio.Task[list[bytes] | None]) -> None:
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            if not self._is_closed:
                self.abort(f"a request failed ({type(error).__name__}: {error})")
        elif (answer := task.result()) is not None and not self._is_closed:
            self.sent_bytes += sum(map(len, answer))
            self._transport.writelines(answer)

    def _release_unread(self) -> None:
        unread, self._unread = self._unread, []
        for memory in unread:
            memory.release()

    def _close_if_drained(self) -> None:
        if self._is_draining and not self._requests and not self._is_closed:
            self._transport.close()

    def _update_reading(self) -> None:
        """Read from the socket only if what arrives can be used."""
        if self._is_closed or self._transport.is_closing():
            return
        memory = self._frame_memory
        is_wanted = self._may_start() and (memory is None or not memory.is_waiting)
        if is_wanted != self._is_reading:
            self._is_reading = is_wanted
            if is_wanted:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def abort(self, reason: str) -> None:
        """Close the connection at once.

        Args:
            reason: the reason, for the log.
        """
        _log.info("closed the connection from %s: %s", self.client_host, reason)
        self._is_draining = True
        self.is_aborted = True
        self._transport.abort()
