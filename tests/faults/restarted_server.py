"""An S3 server that is killed, and started again at the same address with the same data."""

import random
import socket
from contextlib import ExitStack, suppress

from spark_log.testing.servers.s3_server import run_s3_server


def quiet_port():
    """Return a port outside of the range of client ports.

    A client that connects to a stopped server could otherwise get the server's port as its own, and
    connect to itself.
    """
    for port in random.sample(range(20_000, 32_000), 100):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("no port is free")


class RestartedServer:
    """A server that can be killed, and restarted on the same port and directory."""

    def __init__(self, folder):
        self.folder = folder
        self._running = ExitStack()
        self._port = quiet_port()
        self.start()

    def start(self):
        self.server = self._running.enter_context(
            run_s3_server(directory=self.folder, port=self._port)
        )

    def kill(self):
        self.server.kill()
        self._running.close()

    def restart(self, pause):
        self.kill()
        pause()
        self.start()

    def close(self):
        self._running.close()
