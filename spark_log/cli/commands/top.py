"""``spark-log top``: topics and groups, live."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Final

import typer

from spark_log.cli.cluster import ClusterSample, ClusterSampler, GroupSample, TopicSample
from spark_log.cli.format import (
    Output,
    counted,
    live_table,
    print_json_lines,
    print_table,
    print_text,
)
from spark_log.cli.options import Root, Topics, complete_groups, with_option_groups
from spark_log.cli.terminal import quit_key, with_examples
from spark_log.storage import retry_while_unavailable
from spark_log.threads import Deadline

_TOPIC_COLUMNS: Final = ("Topic", "Records/s", "Bytes/s", "End-offsets", "Records", "Bytes")
_GROUP_COLUMNS: Final = ("Group", "Topic", "Partitions", "Lag", "Records/s")


class Sort(StrEnum):
    """Values of ``--sort``."""

    NAME = "name"
    RECORDS = "records"
    BYTES = "bytes"
    SIZE = "size"
    LAG = "lag"


@with_examples(
    "spark-log top --iterations 1",
    "spark-log top flights --sort lag --interval 0.1 --iterations 2",
    "spark-log top --group reports --interval 0.1 --iterations 2 --json",
)
@with_option_groups
def top(
    topics: Topics,
    root: Root,
    output: Output,
    group: Annotated[
        list[str] | None,
        typer.Option(
            "--group",
            metavar="GROUP",
            help="Show only this group. Repeatable.",
            autocompletion=complete_groups,
        ),
    ] = None,
    interval_s: Annotated[
        float, typer.Option("--interval", min=0.1, help="Seconds between two refreshes.")
    ] = 5.0,
    iterations: Annotated[
        int | None,
        typer.Option(
            "--iterations", "-n", min=1, help="Number of refreshes. [default: until q or Ctrl-C]"
        ),
    ] = None,
    sort: Annotated[
        Sort,
        typer.Option(
            "--sort",
            help="Rows to show first: those with the highest rate of records or bytes, the largest "
            "size, or the highest lag.",
        ),
    ] = Sort.NAME,
) -> None:
    """Show topics and groups live: rates, sizes and lag.

    Rates are measured since the refresh before, so the first one has none. End-offsets is the sum
    of the log end offsets of a topic's partitions. A group's rate is that of its commits.

    On a terminal q or Ctrl-C ends the command. Otherwise the tables follow each other; with --json
    each refresh is one JSON object on a line.

    While the storage does not answer, the command waits.

    On an object store a refresh costs a request for the metadata, one for new commits, and one for
    each partition. A partition with new records also costs a listing and a read; every other
    partition costs these once in half of file.delete.delay.ms.
    """
    cluster = root.cluster()
    sampler = ClusterSampler(cluster, topics.names_or_none, group or [])
    try:
        with quit_key(cluster.clock) as wait, _screen(output, sort) as show:
            refreshes = 0
            while True:
                deadline = Deadline("reading", "", math.inf)
                show(retry_while_unavailable(sampler.sample, deadline, cluster.clock))
                refreshes += 1
                if refreshes == iterations or wait(interval_s * 1000):
                    return
    except KeyboardInterrupt:
        return


@contextmanager
def _screen(output: Output, sort: Sort) -> Iterator[Callable[[ClusterSample], None]]:
    """Yield a function that shows a sample."""
    if output.is_json:
        yield lambda sample: print_json_lines([_document(_sorted(sample, sort))])
    elif sys.stdout.isatty():
        with _live_screen(sort) as show:
            yield show
    else:
        yield lambda sample: _print(_sorted(sample, sort))


@contextmanager
def _live_screen(sort: Sort) -> Iterator[Callable[[ClusterSample], None]]:
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    with Live(screen=True, auto_refresh=False) as live:

        def show(sample: ClusterSample) -> None:
            sample = _sorted(sample, sort)
            # Rows below the screen are cut off: each table gets half of the screen, and the rows
            # that the other table does not need.
            topics, groups = _topic_rows(sample), _group_rows(sample)
            room = max(2, live.console.height - 2 * _HEADING_LINES)
            topics = topics[: max(room - len(groups), room // 2)]
            live.update(
                Group(
                    Text(_headline(sample)),
                    live_table(_TOPIC_COLUMNS, topics),
                    Text(),
                    live_table(_GROUP_COLUMNS, groups[: room - len(topics)]),
                ),
                refresh=True,
            )

        yield show


_HEADING_LINES: Final = 3
"""Lines of a table on a screen that are not its rows: heading, rule, and the line before it."""


def _print(sample: ClusterSample) -> None:
    if sample.interval_ms is not None:
        print_text("")
    print_text(_headline(sample))
    print_table(_TOPIC_COLUMNS, _topic_rows(sample))
    if sample.groups:
        print_text("")
        print_table(_GROUP_COLUMNS, _group_rows(sample))


def _headline(sample: ClusterSample) -> str:
    shown = f"{_time(sample)}  {counted(len(sample.topics), 'topic')}"
    shown += f", {counted(len({each.group_id for each in sample.groups}), 'group')}"
    if sample.interval_ms is None:
        return shown
    return f"{shown}, rates of {sample.interval_ms / 1000:.1f} s"


def _time(sample: ClusterSample) -> str:
    moment = datetime.fromtimestamp(sample.sampled_us / 1e6, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def _topic_rows(sample: ClusterSample) -> list[list[object]]:
    return [
        [
            each.topic,
            each.records_per_second,
            None if each.bytes_per_second is None else round(each.bytes_per_second),
            sum(each.log_end_offsets),
            each.records,
            each.size_bytes,
        ]
        for each in sample.topics
    ]


def _group_rows(sample: ClusterSample) -> list[list[object]]:
    return [
        [each.group_id, each.topic, each.partitions, each.lag, each.records_per_second]
        for each in sample.groups
    ]


def _document(sample: ClusterSample) -> dict[str, object]:
    return {
        "time": _time(sample),
        "interval_ms": None if sample.interval_ms is None else round(sample.interval_ms),
        "topics": [asdict(each) for each in sample.topics],
        "groups": [asdict(each) for each in sample.groups],
    }


def _sorted(sample: ClusterSample, sort: Sort) -> ClusterSample:
    """Return a sample in the order of ``--sort``; equal rows stay in the order of names."""
    lags: dict[str, int] = {}
    for each in sample.groups:
        lags[each.topic] = max(each.lag, lags.get(each.topic, 0))

    def of_topic(topic: TopicSample) -> float:
        return {
            Sort.NAME: 0,
            Sort.RECORDS: topic.records_per_second or 0,
            Sort.BYTES: topic.bytes_per_second or 0,
            Sort.SIZE: topic.size_bytes,
            Sort.LAG: lags.get(topic.topic, 0),
        }[sort]

    def of_group(group: GroupSample) -> float:
        return {Sort.RECORDS: group.records_per_second or 0, Sort.LAG: group.lag}.get(sort, 0)

    return replace(
        sample,
        topics=tuple(sorted(sample.topics, key=of_topic, reverse=True)),
        groups=tuple(sorted(sample.groups, key=of_group, reverse=True)),
    )
