"""Measures a root with many partitions: create, list, describe, produce, read, plan, clean.

    python -m benchmarks.scale --partitions 100000 --topics 100

No peer: shown is what grows with the number of partitions. Each step runs in a process of its own
that opens the root anew, as a command does. *Calls* are those of the local store; on an object
store each of them is a request. CPU time is shown beside wall time, for machines that are busy.
"""

import argparse
import multiprocessing
import resource
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.command_line import positive
from benchmarks.log_report import Figure, Report, parser, run
from spark_log import Admin, Consumer, NewTopic, Producer, TopicPartition
from spark_log.cluster import Cluster, ClusterCleaner
from spark_log.metadata import METADATA_DIRECTORY
from spark_log.storage.local import LocalStore

_PROCESSES = multiprocessing.get_context("spawn")
_CALLS = ("put_if_absent", "put", "read", "read_tail", "open_buffer", "list", "head", "delete")


@dataclass(frozen=True, slots=True)
class Size:
    """The root that is measured."""

    root: str
    topics: int
    partitions: int

    @property
    def names(self) -> list[str]:
        """The names of the topics."""
        return [f"topic-{number:05}" for number in range(self.topics)]

    @property
    def of_each(self) -> int:
        """Number of partitions of each topic."""
        return self.partitions // self.topics

    def all(self) -> list[TopicPartition]:
        """Return all partitions."""
        return [
            TopicPartition(name, number) for name in self.names for number in range(self.of_each)
        ]

    def metadata_bytes(self) -> int:
        """Return the size of the metadata log's segments."""
        segments = Path(self.root, METADATA_DIRECTORY).glob("*.log")
        return sum(segment.stat().st_size for segment in segments)


@dataclass(frozen=True, slots=True)
class Step:
    """The cost of one step.

    Attributes:
        wall_s: the wall-clock time of the process, without its imports.
        cpu_s: the CPU time of the process, without its imports.
        memory_mb: the peak memory of the process.
        calls: the number of calls of the store, by kind.
        result: the result of the step.
    """

    wall_s: float
    cpu_s: float
    memory_mb: float
    calls: dict[str, int]
    result: int


def create(size: Size) -> int:
    """Create the topics, one call for each."""
    admin = Admin(size.root)
    for name in size.names:
        admin.create_topics([NewTopic(name, size.of_each)])
    return len(size.names)


def list_topics(size: Size) -> int:
    """List the names of all topics."""
    return len(Admin(size.root).list_topics())


def describe(size: Size) -> int:
    """Describe all topics without offsets."""
    found = Admin(size.root).describe_topics(with_offsets=False)
    return sum(len(topic.partitions) for topic in found)


def describe_offsets(size: Size) -> int:
    """Describe all topics with the offsets of each partition."""
    found = Admin(size.root).describe_topics()
    return sum(each.log_end_offset for topic in found for each in topic.partitions)


def describe_one(size: Size) -> int:
    """Describe one topic with its offsets."""
    (found,) = Admin(size.root).describe_topics(size.names[:1])
    return len(found.partitions)


def produce(size: Size) -> int:
    """Send a record to each partition."""
    with Producer(size.root, linger_ms=100) as producer:
        for tp in size.all():
            producer.send(tp.topic, b"value", partition=tp.partition)
        producer.flush()
    return size.partitions


def read(size: Size) -> int:
    """Read all records with one consumer."""
    got = 0
    with Consumer(root=size.root, auto_offset_reset="earliest") as consumer:
        consumer.assign(size.all())
        while got < size.partitions:
            got += sum(map(len, consumer.poll(timeout_ms=10_000).values()))
    return got


def plan(size: Size) -> int:
    """Plan a batch read of all topics, like Spark's driver."""
    from spark_log.datasource.options.read_options import parse_read_options
    from spark_log.datasource.read.splits import plan_splits

    options = {"path": size.root, "subscribePattern": "topic-.*"}
    return len(plan_splits(parse_read_options(options, is_stream=False)))


def clean(size: Size) -> int:
    """Clean all partitions, in which nothing is due."""
    return sum(1 for _ in ClusterCleaner(Cluster(size.root)).clean())


STEPS: dict[str, Callable[[Size], int]] = {
    "create": create,
    "list": list_topics,
    "describe": describe,
    "describe one": describe_one,
    "describe, with offsets, empty": describe_offsets,
    "produce, first record of each": produce,
    "produce, second record of each": produce,
    "describe, with offsets": describe_offsets,
    "plan": plan,
    "clean": clean,
    "read": read,
}


def main() -> None:
    """Run the benchmark as the command line says."""
    options = parser("scale", __doc__)
    options.add_argument("--partitions", type=positive, default=2_000, help="how many (2000)")
    options.add_argument("--topics", type=positive, default=10, help="topics they are of (10)")
    options.add_argument("--only", nargs="*", choices=STEPS, help="steps to run, in their order")
    options.add_argument("--root", type=Path, help="keep the root here, and use it again")
    run(options, measure)


def measure(options: argparse.Namespace) -> Report:
    """Run the steps one after the other."""
    root = options.root or Path(tempfile.mkdtemp(dir=options.directory)) / "root"
    size = Size(str(root), options.topics, options.partitions)
    chosen = [name for name in STEPS if options.only is None or name in options.only]
    figures: list[Figure] = []
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    try:
        with Progress(*columns, TimeElapsedColumn()) as progress:
            task = progress.add_task("", total=len(chosen))
            for name in chosen:
                progress.update(task, description=name)
                step = in_own_process(name, size)
                progress.console.print(f"{name}: {step}", soft_wrap=True)
                figures += _figures(name, step)
                progress.advance(task)
        figures.append(Figure("metadata log", size.metadata_bytes(), "bytes"))
    finally:
        if options.root is None:
            shutil.rmtree(root.parent, ignore_errors=True)
    notes = {"partitions": f"{options.partitions:,} of {options.topics:,} topics"}
    return Report("scale", figures, notes)


def in_own_process(name: str, size: Size) -> Step:
    """Run a step in a new process."""
    theirs, own = _PROCESSES.Pipe()
    process = _PROCESSES.Process(target=_run_step, args=(name, size, own))
    process.start()
    own.close()  # a step that fails then raises EOFError here
    step: Step = theirs.recv()
    process.join()
    return step


def _run_step(name: str, size: Size, pipe: Any) -> None:
    with counted_calls() as calls:
        wall, cpu = time.perf_counter(), time.process_time()
        result = STEPS[name](size)
        wall_s, cpu_s = time.perf_counter() - wall, time.process_time() - cpu
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    pipe.send(Step(wall_s, cpu_s, memory_mb, dict(calls), result))


@contextmanager
def counted_calls() -> Iterator[Counter[str]]:
    """Count the calls of local stores in this process."""
    calls: Counter[str] = Counter()
    with ExitStack() as stack:
        for name in _CALLS:
            stack.enter_context(mock.patch.object(LocalStore, name, _counting(name, calls)))
        yield calls


def _counting(name: str, calls: Counter[str]) -> Callable[..., object]:
    original = getattr(LocalStore, name)

    def counting(self: LocalStore, *args: object, **options: object) -> object:
        calls[name] += 1
        return original(self, *args, **options)

    return counting


def _figures(name: str, step: Step) -> Iterator[Figure]:
    yield Figure(f"{name}: wall", round(step.wall_s, 2), "s")
    yield Figure(f"{name}: CPU", round(step.cpu_s, 2), "s")
    yield Figure(f"{name}: memory", round(step.memory_mb), "MB")
    yield Figure(f"{name}: calls", sum(step.calls.values()))


if __name__ == "__main__":
    main()
