"""Compares a gateway in a Spark executor with a gateway that is a process of its own.

    python -m benchmarks.gateway_executor

Both run on this machine, on roots of their own, and are measured in turns by the same client of
librdkafka. The executor is that of a standalone cluster on 127.0.0.1 with one worker and one core;
`jobs/serve.py` runs there as a user starts it. Topics sync nothing per append
(``flush.on.append=false``), as Kafka's defaults.

The memory and the idle CPU time of the one in the executor are shown with those of its parts: the
gateway's Python, the JVM of the executor with Spark's daemon, and the driver, which all gateways of
a job share.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.command_line import positive
from benchmarks.gateway import Server, cpu_s_of, measure_once, running_gateway
from benchmarks.kafka_broker import exit_status
from benchmarks.log_report import Figure, Report, parser, run
from benchmarks.process_memory import memory_bytes
from spark_log.cluster import Cluster
from spark_log.testing.servers.standalone import StandaloneCluster

HOME = Path(__file__).parents[1]
_UNSYNCED = {"flush.on.append": "false"}
_MB = 1e6
_START_S = 120
_RATIOS = {
    "produce 1024 B": 0.8,
    "consume 1024 B": 0.8,
    "produce 100 B": 0.8,
    "consume 100 B": 0.8,
}
"""The goals of throughput, relative to a process of its own."""


@dataclass(frozen=True, slots=True)
class Gateway:
    """A running gateway.

    Attributes:
        server: how its client measures it.
        start_s: the time from its command to its first answer.
        parts: name → ids of its processes; ``gateway`` is the one that answers clients.
    """

    server: Server
    start_s: float
    parts: dict[str, list[int]]


@contextmanager
def gateway_process(root: str) -> Iterator[Gateway]:
    """Run ``spark-log gateway`` for the block."""
    began_s = time.perf_counter()
    with running_gateway(root) as (address, pid):
        start_s = time.perf_counter() - began_s
        server = Server("process", address, lambda: cpu_s_of(pid), _UNSYNCED)
        yield Gateway(server, start_s, {"gateway": [pid]})


@contextmanager
def gateway_in_executor(root: str) -> Iterator[Gateway]:
    """Run `jobs/serve.py` on a standalone cluster for the block; the cluster is started before."""
    Cluster(root, create=True).release()
    with StandaloneCluster(workers=1, cores=1, memory="1g") as cluster:
        command = [
            *(str(Path(sys.executable).with_name("spark-submit")), "--master", cluster.url),
            *("--conf", "spark.executor.memory=512m", str(HOME / "jobs/serve.py")),
            *("--root", root, "--gateways", "1", "--listen", "127.0.0.1:0", "--json"),
        ]
        environment = {
            "SPARK_CONF_DIR": str(HOME / "conf"),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join([str(HOME), os.environ.get("PYTHONPATH", "")]),
        }
        began_s = time.perf_counter()
        process = subprocess.Popen(
            command,
            env=os.environ | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            assert process.stdout is not None
            line = next((each for each in process.stdout if each.startswith("{")), None)
            if line is None:
                raise RuntimeError(f"jobs/serve.py ended with {process.wait()}")
            start_s = time.perf_counter() - began_s
            found = json.loads(line)
            (executor,) = descendants(cluster.workers[0].pid, "ExecutorBackend")
            (daemon,) = descendants(executor, "pyspark.daemon")[:1]
            (gateway,) = children(daemon)
            server = Server(
                "executor", f"127.0.0.1:{found['port']}", lambda: cpu_s_of(gateway), _UNSYNCED
            )
            parts = {
                "gateway": [gateway],
                "executor's JVM and daemon": [executor, daemon],
                "driver": [process.pid, *descendants(process.pid, "")],
            }
            yield Gateway(server, start_s, parts)
        finally:
            process.terminate()
            process.wait(_START_S)


def children(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    path = Path(f"/proc/{pid}/task")
    found = [each.read_text() for each in path.glob("*/children")]
    return sorted(int(number) for text in found for number in text.split())


def descendants(pid: int, words: str) -> list[int]:
    """Return the processes below one whose command line has some words, nearest first."""
    found = []
    waiting = children(pid)
    while waiting:
        each = waiting.pop(0)
        waiting += children(each)
        if words in Path(f"/proc/{each}/cmdline").read_text().replace("\0", " "):
            found.append(each)
    return found


def idle_figures(gateway: Gateway, seconds: float) -> Iterator[Figure]:
    """Yield the memory, and the CPU time of a gateway without clients, by its parts."""
    before = {name: sum(map(cpu_s_of, pids)) for name, pids in gateway.parts.items()}
    began_s = time.perf_counter()
    time.sleep(seconds)
    took_s = time.perf_counter() - began_s
    for name, pids in gateway.parts.items():
        of = f"{gateway.server.name}: {name}"
        used_s = sum(map(cpu_s_of, pids)) - before[name]
        resident = sum(memory_bytes(each)["VmRSS"] for each in pids)
        yield Figure(f"{of}, memory", resident / _MB, "MB")
        yield Figure(f"{of}, idle CPU", used_s / took_s * 1000, "ms/s")


def figures_of(gateway: Gateway, peer: Gateway) -> Iterator[Figure]:
    """Yield the figures of a gateway, with goals relative to a process of its own."""
    server = gateway.server
    yield Figure(f"{server.name}: start", gateway.start_s, "s")
    for name in server.samples:
        value = server.median(name)
        if name.endswith("CPU"):
            yield Figure(f"{server.name}: {name}", value, "µs/record")
        elif "one record" in name:
            yield Figure(f"{server.name}: {name}", value, "ms")
        else:
            size_bytes = int(name.split()[1])
            yield Figure(f"{server.name}: {name}", value * size_bytes / _MB, "MB/s")
        if gateway is not peer and not name.endswith(("CPU", "p99")):
            ratio = value / peer.server.median(name)
            is_time = "one record" in name
            yield Figure(
                f"executor / process: {name}",
                ratio,
                at_least=_RATIOS.get(name),
                at_most=1.25 if is_time else None,
            )


def measure(options: argparse.Namespace) -> Report:
    """Measure both."""
    figures: list[Figure] = []
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(dir=options.directory))
        process = stack.enter_context(gateway_process(f"{directory}/process"))
        executor = stack.enter_context(gateway_in_executor(f"{directory}/executor"))
        both = (process, executor)
        for each in both:
            figures += idle_figures(each, options.idle_seconds)
        for turn in range(options.turns):
            for each in both if turn % 2 else both[::-1]:
                measure_once(each.server, turn, options.records)
        for each in both:
            figures += figures_of(each, process)
            resident = memory_bytes(each.parts["gateway"][0])["VmRSS"]
            figures.append(
                Figure(f"{each.server.name}: gateway, memory after work", resident / _MB, "MB")
            )
    load = f"{os.getloadavg()[0]:.1f} of {os.cpu_count()}"
    return Report("gateway_executor", figures, {"load of the machine, of cores": load})


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    options = parser("gateway_executor", __doc__)
    options.add_argument("--records", type=positive, default=1_000_000, help="of 100 bytes")
    options.add_argument("--turns", type=positive, default=3)
    options.add_argument("--idle-seconds", type=positive, default=20)
    run(options, measure, arguments)


if __name__ == "__main__":
    sys.exit(exit_status(main))
