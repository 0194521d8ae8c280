"""A real S3 server for tests, on 127.0.0.1: versitygw if it was built, otherwise moto.

Use it in a ``conftest.py``::

    from spark_log.testing.servers.s3_server import s3_server  # a pytest fixture, for the whole run


    def test_something(s3_server):
        root = s3_server.new_bucket()  # s3://…
        Admin(root, storage_options=s3_server.storage_options)

versitygw serves a directory as buckets; ``make s3-server`` builds it with Go. moto, written in
Python and not atomic by itself, runs behind one lock. The server is a separate process, which
ends with this one, even if this one is killed.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
from tenacity import (
    retry,
    retry_if_exception_type,
    retry_if_result,
    stop_after_delay,
    wait_fixed,
)

VERSITYGW_VERSION: Final = "1.8.0"

_KEY, _SECRET = "spark-log", "a-secret-of-the-tests"
_START_TIMEOUT_S = 60

# The server ends at the end of its standard input, which this process holds open while it lives.
_UNTIL_INPUT_ENDS = '"$@" </dev/null & pid=$!; cat >/dev/null; kill -9 $pid; wait $pid'


@dataclass(frozen=True, slots=True)
class S3Server:
    """A running server.

    Attributes:
        name: its name and version.
        endpoint_url: ``http://127.0.0.1:…``.
        pid: id of its process group, for tests that stop and continue it.
    """

    name: str
    endpoint_url: str
    pid: int
    _directory: Path | None = field(repr=False)

    @property
    def storage_options(self) -> dict[str, Any]:
        """The ``storage_options`` for this server; all values are strings."""
        return self._options(_KEY, _SECRET)

    def create_user(self, name: str) -> dict[str, Any]:
        """Create a user without any right, and return the ``storage_options`` of this user.

        A bucket policy gives rights. The server must be started with ``users=True``.
        """
        secret = f"secret-of-{name}"
        root = ["--access", _KEY, "--secret", _SECRET, "--endpoint-url", self.endpoint_url]
        user = ["--access", name, "--secret", secret, "--role", "user"]
        command = [str(versitygw_binary()), "admin", *root, "create-user", *user]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return self._options(name, secret)

    def _options(self, key: str, secret: str) -> dict[str, Any]:
        return {
            "key": key,
            "secret": secret,
            "endpoint_url": self.endpoint_url,
            "region": "us-east-1",
        }

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop the processes within the context: connections succeed, requests get no answer."""
        os.killpg(self.pid, signal.SIGSTOP)
        try:
            _wait_until_stopped(self.pid)
            yield
        finally:
            os.killpg(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """Kill the server; acknowledged data stays in its directory."""
        os.killpg(self.pid, signal.SIGKILL)

    def new_bucket(self) -> str:
        """Create a new bucket, and return its URL."""
        name = f"test-{uuid.uuid4().hex[:20]}"
        if self._directory is not None:
            (self._directory / name).mkdir()
        else:
            import boto3

            client = boto3.client(
                "s3",
                endpoint_url=self.endpoint_url,
                aws_access_key_id=_KEY,
                aws_secret_access_key=_SECRET,
                region_name="us-east-1",
            )
            client.create_bucket(Bucket=name)
        return f"s3://{name}"


def versitygw_binary() -> Path:
    """Return the path at which ``make s3-server`` installs versitygw, whether or not it exists."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "spark-log" / f"versitygw-{VERSITYGW_VERSION}" / "versitygw"


def server_name(*, moto: bool = False) -> str:
    """Return the name of the server that `run_s3_server` would start."""
    if versitygw_binary().exists() and not moto:
        return f"versitygw {VERSITYGW_VERSION}"
    try:
        from moto import __version__
    except ModuleNotFoundError:
        return "none: neither versitygw (make s3-server) nor moto is installed"
    return f"moto {__version__} behind a lock (make s3-server builds a better one)"


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """A server for the whole test run."""
    with run_s3_server() as server:
        yield server


@contextmanager
def run_s3_server(
    *, moto: bool = False, directory: Path | None = None, port: int = 0, users: bool = False
) -> Iterator[S3Server]:
    """Start a server with no buckets, and stop it at the end.

    Args:
        moto: start moto even if versitygw is installed. moto checks no signatures.
        directory: versitygw's directory, to continue with the data of an earlier server; None for a
            temporary one.
        port: the port, to continue at the address of an earlier server; 0 for any free port.
        users: let versitygw store users, which `S3Server.create_user` adds.
    """
    binary = versitygw_binary()
    moto = moto or not binary.exists()
    with (
        TemporaryDirectory(prefix="spark-log-s3-") as folder,
        TemporaryDirectory(prefix="spark-log-s3-users-") as accounts,
        _bind(port) as free,
    ):
        port = free.getsockname()[1]
        free.close()
        directory = None if moto else directory or Path(folder)
        if directory is None:
            command = [sys.executable, "-m", "spark_log.testing.servers.s3_server", str(port)]
        else:
            options = ["--port", f"127.0.0.1:{port}", "--quiet", "--keep-alive"]
            options += ["--iam-dir", accounts] if users else []
            command = [str(binary), *options, "posix", str(directory)]
        process = subprocess.Popen(
            ["sh", "-c", _UNTIL_INPUT_ENDS, "sh", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "ROOT_ACCESS_KEY": _KEY, "ROOT_SECRET_KEY": _SECRET},
            start_new_session=True,
        )
        try:
            _wait_until_it_listens(port)
            endpoint = f"http://127.0.0.1:{port}"
            yield S3Server(server_name(moto=moto), endpoint, process.pid, directory)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(timeout=30)


@retry(
    retry=retry_if_exception_type(OSError),
    wait=wait_fixed(0.02),
    stop=stop_after_delay(_START_TIMEOUT_S),
    reraise=True,
)
def _bind(port: int) -> socket.socket:
    """Bind a port, which a server that was just killed may still hold for a moment."""
    return socket.create_server(("127.0.0.1", port))


@retry(
    retry=retry_if_exception_type(OSError),
    wait=wait_fixed(0.02),
    stop=stop_after_delay(_START_TIMEOUT_S),
    reraise=True,
)
def _wait_until_it_listens(port: int) -> None:
    socket.create_connection(("127.0.0.1", port), timeout=1).close()


@retry(
    retry=retry_if_result(lambda is_stopped: not is_stopped),
    wait=wait_fixed(0.001),
    stop=stop_after_delay(_START_TIMEOUT_S),
)
def _wait_until_stopped(group: int) -> bool:
    """Wait until all threads of a process group are stopped, as far as ``/proc`` shows it.

    Raises:
        RetryError: a thread continues to run.
    """
    states = []
    for process in Path("/proc").glob("[0-9]*"):
        threads: list[Path] = []
        with suppress(OSError):  # it has exited
            threads += process.glob("task/[0-9]*/stat")
        for path in threads:
            with suppress(OSError):
                state, _, process_group = path.read_text().rpartition(")")[2].split()[:3]
                if int(process_group) == group:
                    states.append(state)
    return not set(states) - {"T", "Z"}


class _OneWriteAtATime:
    """A WSGI application that passes on one write at a time, and reads at once."""

    def __init__(self, application: Callable[..., Iterable[bytes]]) -> None:
        self._application = application
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] in ("GET", "HEAD"):
            return self._application(environ, start)
        with self._lock:
            return list(self._application(environ, start))


def _serve_moto(port: int) -> None:
    from moto.server import (  # type: ignore[attr-defined]
        DomainDispatcherApplication,
        create_backend_app,
    )
    from werkzeug.serving import run_simple

    application = _OneWriteAtATime(DomainDispatcherApplication(create_backend_app))
    run_simple("127.0.0.1", port, application, threaded=True)


if __name__ == "__main__":
    _serve_moto(int(sys.argv[1]))
