"""Gateways that are processes of their own, so that a test can kill them."""

from __future__ import annotations

import os
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
    """``spark-log gateway`` on 127.0.0.1, which listens when its first line has been read.

    Args:
        root: URL of the root.
        settings: settings of the gateway.
        address: the address that clients connect to, with any name of this machine; None for a free
            port of 127.0.0.1.
        options: more options of the command.
        environment: more environment variables.
        log: the file for its log; None: that of the test.
        wait: whether to wait for its first line.
    """

    def __init__(
        self,
        root,
        settings=SHORT,
        address=None,
        *,
        options=(),
        environment=None,
        log=None,
        wait=True,
    ):
        self.address = address or f"127.0.0.1:{free_port()}"
        self.port = int(self.address.rpartition(":")[2])
        listen = ["--listen", f"127.0.0.1:{self.port}", "--advertise", self.address]
        overrides = [
            argument
            for name, value in settings.items()
            for argument in ("--override", f"{name}={value}")
        ]
        command = [sys.executable, "-m", "spark_log", "gateway", "--create", "--root", root]
        self.command = [*command, *listen, *overrides, *options]
        self._process = subprocess.Popen(
            self.command,
            stdout=subprocess.PIPE,
            stderr=log,
            env={**os.environ, **(environment or {})},
            text=True,
        )
        self.first_line = None
        if wait:
            self.first_line = self.wait_for_line()
            assert self.first_line, f"the gateway at {self.address} has not started"

    def wait_for_line(self):
        """Return the first line, with which the gateway listens; empty if it has ended before."""
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    @property
    def pid(self):
        return self._process.pid

    @property
    def status(self):
        """The exit status; None while it runs."""
        return self._process.poll()

    def pause(self):
        self._process.send_signal(signal.SIGSTOP)

    def resume(self):
        self._process.send_signal(signal.SIGCONT)

    def kill(self):
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def terminate(self):
        self._process.terminate()

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
