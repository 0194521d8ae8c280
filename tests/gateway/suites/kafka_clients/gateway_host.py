"""A program that starts gateways on request, within a fraction of the time of a new process.

The tests start several hundred gateways. Each is a process of its own, forked from this one, which
has loaded all modules. Requests are JSON objects on stdin, one a line; each has one line as its
answer on stdout:

- ``{"prepare": {"root", "brokers", "cluster", "users_file", "users"}}`` creates a root with this
  number of brokers, these settings of the cluster, and a file of these users.
- ``{"start": [[argument, ...], ...]}`` starts gateways, with these arguments of ``spark-log
  gateway``; answers ``{"pids": [...], "lines": [...]}`` when all listen.
- ``{"end": pid, "signal": number}`` ends a gateway, and waits for that.

An answer with ``error`` says why the request failed. All gateways are killed at the end of stdin.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import spark_log.cli.commands.gateway
import spark_log.gateway  # noqa: F401 - loaded before the forks
from spark_log import Admin, ConfigResource, ConfigResourceType
from spark_log.cli.main import main
from spark_log.cluster import open_cluster
from spark_log.gateway import GatewayServer  # noqa: F401 - loads what gateways need
from spark_log.gateway.security import credential_lines


def prepare(
    root: str,
    brokers: int,
    cluster: Mapping[str, str],
    users_file: str | None = None,
    users: Mapping[str, str] | None = None,
) -> None:
    """Create a root.

    Args:
        root: the directory of the root; those of its further brokers lie beside it.
        brokers: the number of brokers that hold replicas.
        cluster: settings of the cluster.
        users_file: the file of users to write, if any.
        users: the password of each user.
    """
    open_cluster(root, create=True).release()
    admin = Admin(root)
    for broker in range(1, brokers):
        admin.register_broker(broker, f"{root}-disk-{broker}")
    if cluster:
        admin.alter_configs([ConfigResource(ConfigResourceType.BROKER, "", dict(cluster))])
    admin.close()
    if users_file:
        path = Path(users_file)
        path.touch(0o600)
        lines = (credential_lines(name, password) for name, password in (users or {}).items())
        path.write_text("\n".join(line for of_user in lines for line in of_user))


class GatewayHost:
    """The gateways that run.

    Args:
        log: the file for the logs of all gateways.
    """

    def __init__(self, log: int) -> None:
        self._log = log
        self._running: set[int] = set()

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out a request, and return its answer."""
        if "prepare" in request:
            said = self._text_of(self._fork(lambda: prepare(**request["prepare"])))
            return {"error": said} if said else {}
        if "start" in request:
            started = [self._fork(_gateway(arguments)) for arguments in request["start"]]
            lines = [os.fdopen(output).readline() for _, output in started]
            self._running |= {pid for pid, _ in started}
            if all(lines):
                return {"pids": [pid for pid, _ in started], "lines": lines}
            return {"error": "a gateway has not started"}
        self._end(request["end"], request["signal"])
        return {}

    def kill(self) -> None:
        """Kill all gateways."""
        for each in [*self._running]:
            self._end(each, signal.SIGKILL)

    def _end(self, pid: int, number: int) -> None:
        if pid in self._running:
            self._running.remove(pid)
            os.kill(pid, number)
            os.waitpid(pid, 0)

    def _fork(self, run: Callable[[], object]) -> tuple[int, int]:
        """Run a function in a process of its own; return its id and the pipe of its stdout."""
        output, child_output = os.pipe()
        pid = os.fork()
        if pid:
            os.close(child_output)
            return pid, output
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(child_output, 1)
        os.dup2(self._log, 2)
        _run_and_exit(run)

    def _text_of(self, process: tuple[int, int]) -> str:
        """Return what a process prints until its end."""
        pid, output = process
        with os.fdopen(output) as stream:
            text = stream.read()
        os.waitpid(pid, 0)
        return text


def _gateway(arguments: Sequence[str]) -> Callable[[], object]:
    return lambda: main(["gateway", *arguments])


def _run_and_exit(run: Callable[[], object]) -> NoReturn:
    status = 0
    try:
        run()
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc(file=sys.stdout)
        status = 1
    sys.stdout.flush()
    os._exit(status)


def serve(log: str) -> None:
    """Answer requests until the end of stdin.

    Args:
        log: the path of the file for the gateways' logs.
    """
    host = GatewayHost(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND))
    try:
        for line in sys.stdin:
            try:
                found = host.answer(json.loads(line))
            except Exception:  # the tests say it
                found = {"error": traceback.format_exc()}
            sys.stdout.write(json.dumps(found) + "\n")
            sys.stdout.flush()
    finally:
        host.kill()


if __name__ == "__main__":
    serve(sys.argv[1])
