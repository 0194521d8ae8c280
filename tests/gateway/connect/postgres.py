"""A PostgreSQL server of its own, whose log Debezium can read."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.gateway.processes import free_port

PROGRAMS = max(Path("/usr/lib/postgresql").glob("*/bin"), default=None)
"""The folder of PostgreSQL's programs; None if it is not installed."""


@dataclass(frozen=True, slots=True)
class Postgres:
    """A running server, with the database and the user ``postgres``, on 127.0.0.1."""

    programs: Path
    port: int
    data: Path

    def sql(self, statements: str) -> str:
        """Run statements, in one transaction; return the rows, one a line, with ``|`` between."""
        address = ["-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres"]
        options = ["-q", "-A", "-t", "-1", "-v", "ON_ERROR_STOP=1", "-f", "-"]
        return _run([self.programs / "psql", *address, *options], statements)

    def start(self) -> None:
        """Start it again after `stop`."""
        listen = f"-p {self.port} -c listen_addresses=127.0.0.1 -k {self.data}"
        options = f"-c wal_level=logical -c max_replication_slots=8 -c max_wal_senders=8 {listen}"
        self._control("-o", options, "-l", self.data / "log", "start")

    def stop(self) -> None:
        """Stop it as by a crash; what was committed stays."""
        self._control("-m", "immediate", "stop")

    def _control(self, *arguments: str | Path) -> None:
        _run([self.programs / "pg_ctl", "-D", self.data / "data", "-w", "-t", "300", *arguments])


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    """Run a server with an empty database for the block.

    Raises:
        FileNotFoundError: PostgreSQL is not installed.
    """
    if PROGRAMS is None:
        raise FileNotFoundError("PostgreSQL is not installed: install Debian's package postgresql")
    # Not in pytest's folder, which is root's alone.
    data = Path(tempfile.mkdtemp(prefix="postgres-"))
    if os.geteuid() == 0:
        shutil.chown(data, "nobody")
    server = Postgres(PROGRAMS, free_port(), data)
    try:
        _run([PROGRAMS / "initdb", "-D", data / "data", "-A", "trust", "-U", "postgres"])
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(data)


def _run(command: list[str | Path], given: str | None = None) -> str:
    """Return the output of a program; as root the server refuses to run, so it is nobody's."""
    user: dict[str, Any] = {"user": "nobody", "cwd": "/"} if os.geteuid() == 0 else {}
    # A server that is started keeps stdout, so there is no end of it to wait for.
    with tempfile.TemporaryFile("w+") as output:
        done = subprocess.run(
            command,
            input=given,
            stdin=None if given is not None else subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            **user,
        )
        output.seek(0)
        text = output.read()
    if done.returncode:
        raise RuntimeError(f"{Path(command[0]).name} failed with {done.returncode}: {text}")
    return text
