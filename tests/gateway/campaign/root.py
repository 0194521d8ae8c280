"""The root of a campaign, on a disk or on an S3 server, and how it fails."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from benchmarks.latency_proxy import LatencyProxy
from tests.faults.restarted_server import RestartedServer

_LATENCY_MS = 20


class DiskRoot:
    """A directory."""

    faults: tuple[str, ...] = ("clock",)
    """S3 refuses requests of clocks that are 15 minutes off, so clocks are wrong on disks only."""

    def __init__(self, folder: Path) -> None:
        self.url = str(folder / "root")
        self.storage_options: dict[str, Any] | None = None

    def options_of_gateway(self, number: int) -> dict[str, Any]:
        """Return the storage options of one of the gateways."""
        return {}

    def close(self) -> None:
        """Nothing was started."""


class S3Root:
    """A bucket of a server that hangs and is killed. One gateway sees it behind a slow network."""

    faults = ("freeze_store", "kill_store")

    def __init__(self, folder: Path) -> None:
        folder = folder / "s3"
        folder.mkdir()
        self._server = RestartedServer(folder)
        self._stack = ExitStack()
        self.url = f"{self._server.server.new_bucket()}/root"
        self.storage_options = self._server.server.storage_options
        slow = LatencyProxy.running(self._server.server.endpoint_url, _LATENCY_MS)
        self._slow = self._stack.enter_context(slow)

    def options_of_gateway(self, number: int) -> dict[str, Any]:
        """Return the storage options of one of the gateways."""
        endpoint = {"endpoint_url": self._slow.url} if number == 0 else {}
        return {**self.storage_options, **endpoint}

    def freeze(self) -> None:
        """Let the server accept connections, and answer nothing."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Continue after `freeze`."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """End the server. Its data stays."""
        self._server.kill()

    def start(self) -> None:
        """Start the server again, at the same address."""
        self._server.start()

    def forget_requests(self) -> None:
        """Free the memory of the slow network's list of requests."""
        self._slow.begin()

    def close(self) -> None:
        """End the server."""
        with suppress(ProcessLookupError):  # a campaign that failed left it dead
            self.thaw()
        self._stack.close()
        self._server.close()

    def _signal(self, number: int) -> None:
        os.killpg(self._server.server.pid, number)
