"""Measures a scrape of ``spark-log exporter`` for a root of 1,000 topics and 100 groups.

    python -m benchmarks.exporter --topics 1000 --partitions 10 --groups 100

Each partition has two segments. Each group has a member, and has committed an offset before the
end in each partition of ten topics. Figures: the first scrape, which lists every partition; scrapes
while nothing is appended; and scrapes after an append to one partition of a hundred. For each the
calls to the storage are counted: on an object store they are requests. No peer; kafka_exporter
asks a broker, which has all of this in memory.
"""

import argparse
import tempfile
from collections import Counter
from statistics import median

from benchmarks.command_line import positive
from benchmarks.log_report import Figure, Report, parser, run
from benchmarks.timing import timed
from spark_log import Admin, NewTopic, OffsetAndMetadata, Producer, TopicPartition
from spark_log.cluster import Cluster
from spark_log.coordinator import GroupCoordinator, OffsetsTable
from spark_log.exporter import RootExporter, Scrape

_TOPICS_OF_A_GROUP = 10
_MAX_S = 1.0
_LAG_SECONDS = b"\nkafka_consumergroup_group_lag_seconds{"


def main() -> None:
    """Run the benchmark as the command line says."""
    options = parser("exporter", __doc__)
    options.add_argument("--topics", type=positive, default=1_000, help="number of topics (1000)")
    options.add_argument("--partitions", type=positive, default=10, help="of a topic (10)")
    options.add_argument("--groups", type=positive, default=100, help="number of groups (100)")
    options.add_argument("--scrapes", type=positive, default=5, help="of each kind (5)")
    run(options, measure)


def measure(options: argparse.Namespace) -> Report:
    """Create a root, and scrape it."""
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.directory) as directory:
        root = f"{directory}/root"
        names = [f"topic-{number:04}" for number in range(options.topics)]
        make_root(root, names, options.partitions, options.groups)
        exporter = RootExporter(lambda: Cluster(root), None)
        figures = _figures("first scrape", [_scrape(exporter)])
        # Lag in seconds is looked up for some positions in each scrape, until all are known.
        positions = options.groups * _TOPICS_OF_A_GROUP * options.partitions
        while exporter.scrape().text.count(_LAG_SECONDS) < positions:
            pass
        idle = [_scrape(exporter) for _ in range(options.scrapes)]
        figures += _figures("scrape without new records", idle, _MAX_S)
        busy = []
        for _ in range(options.scrapes):
            _send(root, names[::10], 1)
            busy.append(_scrape(exporter))
        figures += _figures("scrape, 1 partition of 100 appended to", busy, _MAX_S)
        lines = exporter.scrape().text.count(b"\n")
    notes = {
        "partitions": f"{options.topics * options.partitions:,} in {options.topics:,} topics",
        "groups": f"{options.groups}, each in {_TOPICS_OF_A_GROUP} topics",
        "lines of a scrape": f"{lines:,}",
    }
    return Report("exporter", figures, notes)


def make_root(root: str, names: list[str], partitions: int, groups: int) -> None:
    """Create topics with two segments per partition, and groups that lag in ten topics each."""
    settings = {"flush.on.append": False}
    Admin(root).create_topics(
        [NewTopic(each, partitions, topic_configs=settings) for each in names]
    )
    for _ in range(2):
        _send(root, names, partitions)
    cluster = Cluster(root)
    table = OffsetsTable(cluster)
    for number in range(groups):
        first = number * _TOPICS_OF_A_GROUP
        topics = {names[(first + each) % len(names)] for each in range(_TOPICS_OF_A_GROUP)}
        read = [TopicPartition(topic, each) for topic in topics for each in range(partitions)]
        table.commit(f"group-{number:03}", dict.fromkeys(read, OffsetAndMetadata(1)))
        GroupCoordinator(cluster, f"group-{number:03}").join(sorted(topics))


def _send(root: str, topics: list[str], partitions: int) -> None:
    """Append a record to the first ``partitions`` partitions of each topic."""
    with Producer(root) as producer:
        for topic in topics:
            for partition in range(partitions):
                producer.send(topic, b"value", partition=partition)


def _scrape(exporter: RootExporter) -> tuple[float, Counter[str]]:
    """Return the seconds of a scrape, and its calls to the storage by operation."""
    before = Counter(exporter.requests())
    found: list[Scrape] = []
    seconds = timed(lambda: found.append(exporter.scrape()))
    if found[0].error is not None:
        raise found[0].error
    return seconds, Counter(found[0].requests) - before


def _figures(
    name: str, scrapes: list[tuple[float, Counter[str]]], at_most_s: float | None = None
) -> list[Figure]:
    figures = [Figure(name, median(seconds for seconds, _ in scrapes), "s", at_most_s)]
    for operation, count in sorted(scrapes[-1][1].items()):
        figures.append(Figure(f"{name}: {operation}", count))
    return figures


if __name__ == "__main__":
    main()
