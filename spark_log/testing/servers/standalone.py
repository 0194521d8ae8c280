"""A Spark standalone cluster of real processes on 127.0.0.1, for tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO, Self

import pyspark

_START_S = 120


class StandaloneCluster:
    """A master and its workers, as a context manager that ends them at exit.

    Attributes:
        url: the value for ``--master``.
        workers: the worker processes, which tests may kill.
    """

    def __init__(
        self, workers: int = 1, cores: int = 1, memory: str = "1g", *, own_hosts: bool = False
    ) -> None:
        """Return a cluster that is not started yet.

        Args:
            workers: number of workers.
            cores: cores of each worker.
            memory: memory of each worker, in Spark's notation.
            own_hosts: give each worker its own loopback address (Linux has many), because Spark
                runs speculative copies of a task only on different hosts.
        """
        self._wanted = (workers, cores, memory)
        self._own_hosts = own_hosts
        self._processes: list[subprocess.Popen[str]] = []
        self._directory = tempfile.TemporaryDirectory(prefix="spark-standalone-")
        self.url = ""

    @property
    def workers(self) -> list[subprocess.Popen[str]]:
        """The worker processes."""
        return self._processes[1:]

    def __enter__(self) -> Self:
        count, cores, memory = self._wanted
        try:
            self.url = self._start(
                "org.apache.spark.deploy.master.Master", r"(spark://127\.0\.0\.1:\d+)"
            )
            for number in range(count):
                self._start(
                    "org.apache.spark.deploy.worker.Worker",
                    r"(Successfully registered with master)",
                    *("--cores", str(cores), "--memory", memory),
                    *("--work-dir", self._directory.name, self.url),
                    host=f"127.0.0.{number + 1}" if self._own_hosts else "127.0.0.1",
                )
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End all processes, the workers first."""
        for process in reversed(self._processes):
            process.kill()
            process.wait()
            if process.stderr is not None:
                process.stderr.close()
        self._directory.cleanup()

    def _start(self, main_class: str, ready: str, *arguments: str, host: str = "127.0.0.1") -> str:
        """Start a process, and return the match of ``ready`` in its log."""
        program = Path(pyspark.__file__).parent / "bin" / "spark-class"
        process = subprocess.Popen(
            [
                *(str(program), main_class, "--host", host),
                *("--port", "0", "--webui-port", "0", *arguments),
            ],
            # An empty configuration folder, so that the log has the line that shows it is ready.
            env=os.environ
            | {
                "SPARK_CONF_DIR": self._directory.name,
                "SPARK_LOCAL_IP": host,
                "PYSPARK_PYTHON": sys.executable,
            },
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        self._processes.append(process)
        assert process.stderr is not None
        late = threading.Timer(_START_S, process.kill)
        late.start()
        try:
            for line in process.stderr:
                if match := re.search(ready, line):
                    threading.Thread(target=_drain, args=(process.stderr,), daemon=True).start()
                    return match[1]
        finally:
            late.cancel()
        raise RuntimeError(f"{main_class} did not start within {_START_S} s")


def _drain(stream: IO[str]) -> None:
    """Read the rest of the log, so that the process never blocks on a full pipe."""
    try:
        for _ in stream:
            pass
    except ValueError:
        pass  # closed by stop()
