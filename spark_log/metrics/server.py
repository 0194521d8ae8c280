"""Answers scrapes over HTTP."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from spark_log.errors import InvalidConfigurationError
from spark_log.metrics.exposition import CONTENT_TYPE

_log = logging.getLogger(__name__)

_MAX_CONNECTIONS: Final = 16
"""Maximum number of concurrent connections; more are refused, so that memory is bounded."""

_TIMEOUT_S: Final = 30.0
"""Time after which an idle connection is closed."""


class MetricsServer:
    """An HTTP server that answers ``GET /metrics``, in threads of its own.

    Attributes:
        port: the port that the server listens on.
    """

    def __init__(self, host: str, port: int, read: Callable[[], bytes]) -> None:
        """Listen; scrapes are answered from now on.

        Args:
            host: the name or address to listen on.
            port: the number of the port; 0 for any free port.
            read: returns the answer to a scrape; several threads may call it at the same time.

        Raises:
            InvalidConfigurationError: the server cannot listen on this address and port.
        """
        try:
            family = socket.getaddrinfo(host, port)[0][0]
            self._server = _Server(host, port, family, read)
        except (OSError, OverflowError) as error:
            raise InvalidConfigurationError(
                f"metrics cannot be served at {host}:{port}: {error}; take another port"
            ) from None
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.1},
            name=f"spark-log-metrics-{self.port}",
            daemon=True,
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening. A running scrape is answered."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, host: str, port: int, family: int, read: Callable[[], bytes]) -> None:
        self.address_family = family
        self.read = read
        self._free = threading.BoundedSemaphore(_MAX_CONNECTIONS)
        super().__init__((host, port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing: the client has disconnected, or has sent something other than HTTP."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _TIMEOUT_S

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/metrics":
            try:
                self._answer(HTTPStatus.OK, self.server.read(), CONTENT_TYPE)
            except Exception as error:  # an error must not end the thread without an answer
                _log.warning("a scrape failed: %s: %s", type(error).__name__, error)
                self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, b"the scrape failed; see the log\n")
        elif path == "/healthz":
            self._answer(HTTPStatus.OK, b"ok\n")
        elif path == "/":
            self._answer(HTTPStatus.OK, b"spark-log: the metrics are at /metrics\n")
        else:
            self._answer(HTTPStatus.NOT_FOUND, b"the metrics are at /metrics\n")

    def _answer(self, status: HTTPStatus, body: bytes, content_type: str = "text/plain") -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing for a request."""
