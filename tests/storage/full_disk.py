"""Disks that a test can fill."""

import os
import resource
import subprocess
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest


class LimitedDisk:
    """A directory in which files cannot grow past a limit, which any user may set (RLIMIT_FSIZE).

    Writing past it fails with EFBIG (Python ignores the signal), as a quota does.
    """

    ballast = ()

    def __init__(self, path: Path):
        self.path = path
        path.mkdir()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    @contextmanager
    def full_but_for(self, free_bytes: int):
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (free_bytes, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class SmallDisk:
    """A tmpfs, by default of four megabytes, with a file that fills it; only root can mount it."""

    ballast = (".ballast",)
    size_bytes = 4 << 20

    def __init__(self, path: Path, size_bytes: int = size_bytes):
        self.path = path
        self._size_bytes = size_bytes
        path.mkdir()

    def __enter__(self):
        options = f"size={self._size_bytes}"
        mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(self.path)]
        try:
            subprocess.run(mount, check=True, capture_output=True, timeout=30)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no file system can be mounted here: {error}")
        return self

    def __exit__(self, *_):
        # Lazily, since a buffer that a test still holds keeps its file mapped.
        subprocess.run(["umount", "-l", str(self.path)], check=True, timeout=30)

    @contextmanager
    def full_but_for(self, free_bytes: int):
        status = os.statvfs(self.path)
        ballast = self.path / self.ballast[0]
        ballast.write_bytes(bytes(status.f_bavail * status.f_frsize - free_bytes))
        try:
            yield
        finally:
            ballast.unlink()

    @contextmanager
    def full(self):
        """Fill the disk while others may write to it."""
        ballast = self.path / self.ballast[0]
        try:
            with open(ballast, "wb", buffering=0) as file, suppress(OSError):
                while True:
                    file.write(bytes(1 << 20))
            yield
        finally:
            ballast.unlink()


DISKS: list[Any] = [LimitedDisk, SmallDisk]
