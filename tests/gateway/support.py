"""A gateway on a thread of its own, and a client that sends what a test says, right or wrong."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from contextlib import contextmanager

from spark_log import Admin
from spark_log.admin import share_cluster
from spark_log.cluster import Cluster
from spark_log.config import GatewayConfig
from spark_log.gateway import GatewayServer
from spark_log.gateway.protocol import decode_response, encode_request, new_message
from spark_log.util import SYSTEM_CLOCK

TIMEOUT_S = 30


class RunningGateway:
    """A gateway that listens on a free port of 127.0.0.1."""

    def __init__(self, root, *, port=0, handlers=None, clock=SYSTEM_CLOCK, **config):
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self.clock = clock
        self.cluster = Cluster(root, create=True)
        admin = Admin(root)
        share_cluster(admin, self.cluster)
        given = {"clock": clock} | ({} if handlers is None else {"handlers": handlers})

        async def start():
            self.server = GatewayServer(self.cluster, admin, GatewayConfig.parse(config), **given)
            return await self.server.start("127.0.0.1", port)

        self.host, self.port = self.run(start())

    @property
    def address(self):
        return f"{self.host}:{self.port}"

    def run(self, coroutine):
        """Return the result of a coroutine that runs on the gateway's event loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(TIMEOUT_S)

    def call(self, function, *args):
        """Return the result of a function that runs on the gateway's event loop."""

        async def called():
            return function(*args)

        return self.run(called())

    def stop(self):
        self.run(self.server.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(TIMEOUT_S)
        self.loop.close()
        self.cluster.release()

    def client(self):
        return RawClient(self.host, self.port)


@contextmanager
def running_gateway(root, **config):
    """Run a gateway for the block."""
    gateway = RunningGateway(root, **config)
    try:
        yield gateway
    finally:
        gateway.stop()


class RawClient:
    """One connection."""

    def __init__(self, host, port, *, client_id="a-test"):
        self.socket = socket.create_connection((host, port), timeout=TIMEOUT_S)
        self.client_id = client_id
        self._names = {}
        self._next_id = 0

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.socket.close()

    def send(self, name, version, request=None, **fields):
        """Send a request; return its correlation id."""
        if request is None:
            request = new_message(f"{name}Request", **fields)
        self._next_id += 1
        self._names[self._next_id] = name, version
        parts = encode_request(name, version, self._next_id, self.client_id, request)
        self.socket.sendall(b"".join(parts))
        return self._next_id

    def receive(self):
        """Return the correlation id of the next response, and the response."""
        frame = memoryview(self.receive_frame())
        (correlation_id,) = struct.unpack_from(">i", frame)
        name, version = self._names.pop(correlation_id)
        return decode_response(name, version, frame)

    def ask(self, name, version, request=None, **fields):
        """Return the response to a request."""
        sent = self.send(name, version, request, **fields)
        found, response = self.receive()
        assert found == sent
        return response

    def send_bytes(self, data):
        self.socket.sendall(data)

    def receive_frame(self):
        (length,) = struct.unpack(">i", self._read(4))
        return self._read(length)

    def is_closed(self):
        """Return whether the gateway closes the connection; waits for it or for an answer."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def _read(self, size):
        data = bytearray()
        while len(data) < size:
            found = self.socket.recv(size - len(data))
            if not found:
                raise ConnectionError("the gateway closed the connection")
            data += found
        return bytes(data)


def frame(data):
    """Return bytes with their length before them."""
    return struct.pack(">i", len(data)) + data
