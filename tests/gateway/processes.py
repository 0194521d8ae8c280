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
    """``spark-log gateway`` on a free port of 127.0.0.1, which listens when it is returned."""

    def __init__(self, root, settings=SHORT):
        self.address = f"127.0.0.1:{free_port()}"
        options = ["--listen", self.address]
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
def gateway_processes(root, count, settings=SHORT):
    """Run gateways for the block; those that were killed meanwhile are left alone."""
    running = []
    try:
        for _ in range(count):
            running.append(GatewayProcess(root, settings))
        yield running
    finally:
        for each in running:
            each.kill()
