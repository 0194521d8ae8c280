"""Measures the memory of a producer and a consumer of many partitions, in separate processes."""

import multiprocessing
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from rich.console import Console

from benchmarks.log_report import Figure
from benchmarks.process_memory import memory_bytes
from spark_log import Admin, Consumer, NewTopic, Producer, TopicPartition

_PROCESSES = multiprocessing.get_context("spawn")
_TOPIC = "many"
_GOAL_MB = 150
_FLAT_MB = 5
_WARM_MINUTES = 10


@dataclass(frozen=True, slots=True)
class _Sample:
    """The progress and the memory of a process at the end of a minute."""

    records: int
    own_mb: float


class _Watched:
    """A process that counts records, and its memory at the end of each minute."""

    def __init__(self, name: str, work: BaseProcess, counts: Connection) -> None:
        self.name = name
        self.samples: list[_Sample] = []
        self._process = work
        self._counts = counts
        self._records = 0

    def sample(self) -> _Sample:
        """Take a sample now.

        Raises:
            RuntimeError: the process has ended.
        """
        while self._counts.poll():
            self._records = self._counts.recv()
        sizes = memory_bytes(self._process.pid or "self")
        if "RssAnon" not in sizes:
            raise RuntimeError(f"the {self.name} has ended")
        self.samples.append(_Sample(self._records, sizes["RssAnon"] / 1e6))
        return self.samples[-1]

    def stop(self) -> None:
        """Kill the process: it has nothing to save."""
        self._process.kill()
        self._process.join()


def measured_figures(root: str, partitions: int, minutes: int, console: Console) -> list[Figure]:
    """Append single records to all partitions in turn, follow them, and watch both processes.

    Args:
        root: the root of a new cluster, which this creates.
        partitions: the number of partitions of the topic.
        minutes: the duration.
        console: the console that gets a line per minute.
    """
    with Admin(root) as admin:
        configs = {"flush.on.append": "false"}
        admin.create_topics([NewTopic(_TOPIC, partitions, 1, topic_configs=configs)])
    both = [_started("producer", _produce, root), _started("consumer", _consume, root)]
    try:
        for minute in range(1, minutes + 1):
            time.sleep(60)
            texts = [
                f"{each.name} {now.records:,} records, {now.own_mb:.0f} MB"
                for each, now in ((each, each.sample()) for each in both)
            ]
            console.print(f"minute {minute}: {'; '.join(texts)}", highlight=False)
    finally:
        for each in both:
            each.stop()
    return [figure for each in both for figure in _figures(each, minutes)]


def _figures(watched: _Watched, minutes: int) -> list[Figure]:
    samples, name = watched.samples, watched.name
    most = max(each.own_mb for each in samples)
    figures = [
        Figure(f"{name}: records", samples[-1].records),
        Figure(f"{name}: own memory, most", most, "MB", at_most=_GOAL_MB),
    ]
    if minutes > _WARM_MINUTES:
        growth = samples[-1].own_mb - samples[_WARM_MINUTES - 1].own_mb
        text = f"{name}: growth after {_WARM_MINUTES} minutes"
        figures.append(Figure(text, growth, "MB", at_most=_FLAT_MB))
    return figures


def _started(name: str, work: object, root: str) -> _Watched:
    receiving, sending = _PROCESSES.Pipe(duplex=False)
    process = _PROCESSES.Process(target=work, args=(root, sending), daemon=True)  # type: ignore[arg-type]
    process.start()
    return _Watched(name, process, receiving)


def _produce(root: str, counts: Connection) -> None:
    """Send one record to each partition in turn, and wait for all of them after each round."""
    records = 0
    with Producer(root, linger_ms=0) as producer:
        partitions = sorted(producer.partitions_for(_TOPIC))
        while True:
            for partition in partitions:
                producer.send(_TOPIC, b"x" * 100, key=b"k%d" % records, partition=partition)
                records += 1
            producer.flush()
            counts.send(records)


def _consume(root: str, counts: Connection) -> None:
    records = 0
    with Consumer(root=root) as consumer:
        partitions = consumer.partitions_for_topic(_TOPIC) or ()
        consumer.assign([TopicPartition(_TOPIC, each) for each in partitions])
        consumer.seek_to_beginning()
        while True:
            polled = consumer.poll(1_000)
            if polled:
                records += sum(map(len, polled.values()))
                counts.send(records)
