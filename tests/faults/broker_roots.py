"""The roots of the brokers of a replicated topic: how they fail, and how they lose their data."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

from tests.faults.restarted_server import RestartedServer
from tests.storage.full_disk import SmallDisk

BROKERS = (1, 2, 3)
_DISK_BYTES = 256 << 20

Failure = Callable[[int], AbstractContextManager[None]]
"""Lets the root of a broker fail within the context; after that, the root has its data again."""


class BrokerRoots(Protocol):
    """Three roots that fail.

    Attributes:
        urls: broker id → its root.
        options: broker id → its storage options.
        failures: the failures that can happen to a root, by name.
    """

    urls: Mapping[int, str]
    options: Mapping[int, Mapping[str, Any]]
    failures: Mapping[str, Failure]

    def empty(self, broker_id: int) -> None:
        """Let a root lose all of its data. It works afterwards."""

    def close(self) -> None:
        """End the processes and unmount the disks that were started."""


class Directories:
    """Three directories, each of which is taken away like a disk that is unmounted."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        self.urls = {broker_id: str(folder / f"broker{broker_id}") for broker_id in BROKERS}
        self.options: Mapping[int, Mapping[str, Any]] = {}
        self.failures: Mapping[str, Failure] = {
            "taken away": self._taken_away,
            "denied": lambda broker_id: _denied(self.urls[broker_id]),
        }

    @contextmanager
    def _taken_away(self, broker_id: int) -> Iterator[None]:
        away = self._set_aside(broker_id)
        yield
        if os.path.exists(self.urls[broker_id]):  # a put in that moment made it again
            self._set_aside(broker_id)
        away.rename(self.urls[broker_id])

    def empty(self, broker_id: int) -> None:
        """Put an empty directory in the place of a root."""
        self._set_aside(broker_id)
        os.makedirs(self.urls[broker_id], exist_ok=True)

    def close(self) -> None:
        """Nothing was started."""

    def _set_aside(self, broker_id: int) -> Path:
        self._count += 1
        aside = self._folder / f"aside{self._count}"
        Path(self.urls[broker_id]).rename(aside)
        return aside


class Mounts:
    """Three small disks: filled, mounted read-only, or unmounted, which leaves an empty directory.

    A disk is mounted twice, so that its files survive when one mount is removed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._disks: dict[int, SmallDisk] = {}
        self._count = 0
        self.urls = {broker_id: str(folder / f"broker{broker_id}") for broker_id in BROKERS}
        self.options: Mapping[int, Mapping[str, Any]] = {}
        self.failures: Mapping[str, Failure] = {
            "full": lambda broker_id: self._disks[broker_id].full(),
            "read-only": self._read_only,
            "unmounted": self._unmounted,
            "denied": lambda broker_id: _denied(self.urls[broker_id]),
        }
        for broker_id, path in self.urls.items():
            os.mkdir(path)
            self._new_disk(broker_id)

    @contextmanager
    def _read_only(self, broker_id: int) -> Iterator[None]:
        # While a file is open for writing, only a new mount can be made read-only.
        path = self.urls[broker_id]
        self._unmount(broker_id)
        _run("mount", "--bind", "-o", "ro", str(self._disks[broker_id].path), path)
        try:
            yield
        finally:
            _run("mount", "-o", "remount,bind,rw", path)

    @contextmanager
    def _unmounted(self, broker_id: int) -> Iterator[None]:
        self._unmount(broker_id)
        yield
        self._mount(broker_id)

    def empty(self, broker_id: int) -> None:
        """Put an empty disk in the place of another one."""
        self._unmount(broker_id)
        self._disks[broker_id].__exit__()
        self._new_disk(broker_id)

    def close(self) -> None:
        """Unmount all."""
        for broker_id, disk in self._disks.items():
            if os.path.ismount(self.urls[broker_id]):
                self._unmount(broker_id)
            disk.__exit__()

    def _new_disk(self, broker_id: int) -> None:
        self._count += 1
        disk = SmallDisk(self._folder / f"disk{self._count}", _DISK_BYTES)
        self._disks[broker_id] = disk.__enter__()
        self._mount(broker_id)

    def _mount(self, broker_id: int) -> None:
        _run("mount", "--bind", str(self._disks[broker_id].path), self.urls[broker_id])

    def _unmount(self, broker_id: int) -> None:
        _run("umount", "-l", self.urls[broker_id])


@contextmanager
def _denied(path: str) -> Iterator[None]:
    """Take all permissions of a root away, which a process with capabilities does not notice."""
    mode = os.stat(path).st_mode
    os.chmod(path, 0)
    try:
        yield
    finally:
        os.chmod(path, mode)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, timeout=30)


class S3Servers:
    """Three S3 servers with a bucket each: killed, or stopped, so that they answer no request."""

    def __init__(self, folder: Path) -> None:
        self._servers: dict[int, RestartedServer] = {}
        self.urls = {}
        for broker_id in BROKERS:
            directory = folder / f"server{broker_id}"
            self._make(directory, broker_id)
            self._servers[broker_id] = RestartedServer(directory)
            self.urls[broker_id] = f"{self._servers[broker_id].server.new_bucket()}/root"
        self.options = {
            broker_id: each.server.storage_options for broker_id, each in self._servers.items()
        }
        self.failures: Mapping[str, Failure] = {"killed": self._killed, "stopped": self._stopped}

    def _make(self, directory: Path, broker_id: int) -> None:
        """Make the directory of a server."""
        directory.mkdir()

    @contextmanager
    def _killed(self, broker_id: int) -> Iterator[None]:
        self._servers[broker_id].kill()
        try:
            yield
        finally:
            self._servers[broker_id].start()

    def _stopped(self, broker_id: int) -> AbstractContextManager[None]:
        return self._servers[broker_id].server.frozen()

    def empty(self, broker_id: int) -> None:
        """Kill a server, delete its files, and start it again."""
        server = self._servers[broker_id]

        def delete() -> None:
            for bucket in server.folder.glob("test-*"):
                shutil.rmtree(bucket)
                bucket.mkdir()

        server.restart(delete)

    def close(self) -> None:
        """End the servers."""
        for server in self._servers.values():
            server.close()


class S3ServersOnSmallDisks(S3Servers):
    """Three S3 servers whose disks are filled."""

    def __init__(self, folder: Path) -> None:
        self._disks: dict[int, SmallDisk] = {}
        self._mounted = ExitStack()
        super().__init__(folder)
        self.failures = {"full": lambda broker_id: self._disks[broker_id].full()}

    def close(self) -> None:
        """End the servers, and unmount the disks."""
        super().close()
        self._mounted.close()

    def _make(self, directory: Path, broker_id: int) -> None:
        disk = SmallDisk(directory, _DISK_BYTES)
        self._disks[broker_id] = self._mounted.enter_context(disk)
