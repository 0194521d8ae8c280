"""Gateways that are processes of their own, so that a test can kill them."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from contextlib import contextmanager

SHORT = {
    "broker.session.timeout.ms": 1500,
    "broker.heartbeat.interval.ms": 200,
    "broker.join.delay.ms": 300,
}
"""Settings with which clients soon leave a gateway that was killed."""


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class GatewayProcess:
    """``spark-log gateway`` on 127.0.0.1, by default on a free port; it listens when returned."""

    def __init__(self, root, settings=SHORT, address=None):
        self.address = address or f"127.0.0.1:{free_port()}"
        listen = f"127.0.0.1:{self.address.rpartition(':')[2]}"
        options = ["--listen", listen, "--advertise", self.address]
        options += [
            argument
            for name, value in settings.items()
            for argument in ("--override", f"{name}={value}")
        ]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "spark_log", "gateway", "--create", "--root", root, *options],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.first_line = self._process.stdout.readline()
        assert self.first_line, f"the gateway at {self.address} has not started: it says why above"

    @property
    def pid(self):
        return self._process.pid

    def kill(self):
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self):
        self._process.terminate()
        self._process.wait(60)


@contextmanager
def gateway_processes(root, count, settings=SHORT, address=None):
    """Run gateways for the block; those that were killed meanwhile are left alone.

    Only the first one has an address that is given; the others have free ports.
    """
    running = []
    try:
        for number in range(count):
            running.append(GatewayProcess(root, settings, None if number else address))
        yield running
    finally:
        for each in running:
            each.kill()
