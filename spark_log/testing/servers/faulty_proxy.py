"""A proxy in front of an object store's server that loses, repeats, delays and changes requests.

It injects the faults of a network that a client cannot detect: a request that took effect although
its answer was lost, that was delivered twice, or that was delivered much later. It listens on
127.0.0.1, with plain HTTP only::

    with FaultyProxy(s3_server.endpoint_url) as proxy:
        proxy.rule = lambda request: "lose answer" if request.method == "PUT" else "pass"
        store = open_store(root, {**s3_server.storage_options, "endpoint_url": proxy.url})
"""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal, Self
from urllib.parse import urlsplit

Fault = Literal[
    "pass", "lose request", "lose answer", "deliver twice", "deliver late", "ignore condition"
]
"""The fault of a request.

``lose request``: the server never gets the request. ``lose answer``: the request takes effect, and
the connection is closed. ``deliver twice``: the client gets the second answer. ``deliver late``:
the connection is closed, and the request takes effect in `FaultyProxy.deliver_late`. ``ignore
condition``: the request is sent without ``If-None-Match`` and other conditions. In place of a
fault, a rule may return an ``int``: the proxy answers with this status.
"""

_CONDITIONS = ("if-none-match", "if-match", "x-goog-if-generation-match")


@dataclass(frozen=True, slots=True)
class Request:
    """A request from the client.

    Attributes:
        path: the path with the query.
        headers: the headers, with names in lower case.
    """

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def is_conditional(self) -> bool:
        """Whether the request is a put-if-absent."""
        return any(name in self.headers for name in _CONDITIONS)


class FaultyProxy:
    """A proxy. ``rule`` chooses the fault of each request; ``requests`` has all requests so far."""

    def __init__(self, server_url: str) -> None:
        self.rule: Callable[[Request], Fault | int] = lambda request: "pass"
        self.requests: list[Request] = []
        self._late: list[Request] = []
        self._host = urlsplit(server_url).netloc
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def deliver_late(self) -> list[int]:
        """Deliver the delayed requests, and return the statuses of their answers."""
        late, self._late = self._late, []
        return [self._forward(request)[0] for request in late]

    def _decide(self, request: Request) -> tuple[int, list[tuple[str, str]], bytes] | None:
        """Apply the rule, and return the answer; None to close the connection."""
        self.requests.append(request)
        fault = self.rule(request)
        if isinstance(fault, int):
            return fault, [], b""
        if fault == "lose request":
            return None
        if fault == "deliver late":
            self._late.append(request)
            return None
        if fault == "ignore condition":
            return self._forward(request, without=_CONDITIONS)
        answer = self._forward(request)
        if fault == "deliver twice":
            answer = self._forward(request)
        return None if fault == "lose answer" else answer

    def _forward(
        self, request: Request, without: tuple[str, ...] = ()
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection(self._host, timeout=60)
        try:
            headers = {name: text for name, text in request.headers.items() if name not in without}
            connection.request(request.method, request.path, request.body, headers)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except OSError:
                    self.close_connection = True

            def log_message(self, format: str, *args: object) -> None:
                pass

            def _handle(self) -> None:
                headers = {name.lower(): text for name, text in self.headers.items()}
                body = self.rfile.read(int(headers.get("content-length", 0)))
                answer = proxy._decide(Request(self.command, self.path, headers, body))
                if answer is None:
                    self.close_connection = True
                    return
                status, fields, content = answer
                head = [f"HTTP/1.1 {status} {http.client.responses.get(status, '')}"]
                skipped = {"transfer-encoding", "connection"}
                if self.command != "HEAD":
                    skipped.add("content-length")
                    head.append(f"Content-Length: {len(content)}")
                head += [f"{name}: {text}" for name, text in fields if name.lower() not in skipped]
                self.wfile.write("\r\n".join([*head, "", ""]).encode("latin-1") + content)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _handle  # noqa: N815 - its names

        return Handler
