"""The page of the search. The stream of hits and the export take the same parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from spark_log.console.budget import Budget
from spark_log.console.console import Console
from spark_log.console.decoding import Form
from spark_log.console.reading import PREVIEW_BYTES, DecodedRecord, shown_records
from spark_log.console.search import COLUMNS, Expression, Search, SearchProgress
from spark_log.console.view import (
    Isolation,
    Parameters,
    PartitionNumber,
    Time,
    TopicName,
    View,
    time_us,
)
from spark_log.errors import KafkaTimeoutError
from spark_log.log import FetchedRecords


class SearchParameters(Parameters):
    """The conditions of a search. A hit fulfils all of them; without one every record is a hit."""

    topic: TopicName
    partition: PartitionNumber = None
    key: Annotated[str | None, Field(max_length=10_000, description="The key, as text.")] = None
    header: Annotated[
        str | None,
        Field(max_length=10_000, description="A header's name, or name=value."),
    ] = None
    where: Annotated[
        str | None,
        Field(max_length=4000, description=f"A SQL expression over {', '.join(COLUMNS)}."),
    ] = None
    from_time: Annotated[Time | None, Field(description="First event time.")] = None
    to_time: Annotated[
        Time | None, Field(description="Time that the event times of all hits are before.")
    ] = None
    limit: Annotated[
        int, Field(ge=1, le=1000, description="Maximum number of hits. Not for an export.")
    ] = 100
    form: Annotated[
        Form, Field(description="Form in which values are shown. Not for an export.")
    ] = "auto"
    isolation: Isolation = "read_uncommitted"
    format: Annotated[Literal["jsonl", "parquet"], Field(description="Format of an export.")] = (
        "jsonl"
    )
    run: Annotated[bool, Field(description="Whether the page begins to search.")] = True


@dataclass(frozen=True, slots=True)
class SearchPage:
    """Hits of a search, by partition in offset order.

    Attributes:
        topic: the name of the topic.
        partitions: the numbers of all of the topic's partitions.
        hits: the records that match, at most ``limit``.
        progress: the progress of the search when it ended: all records were read, enough hits were
            found, or the time limit was reached. None if the search has not begun.
        is_complete: whether all records were read, or ``limit`` hits were found.
    """

    topic: str
    partitions: tuple[int, ...]
    hits: tuple[DecodedRecord, ...]
    progress: SearchProgress | None
    is_complete: bool


def open_search(console: Console, parameters: SearchParameters, *, limit: int | None) -> Search:
    """Return the search that the parameters describe. The caller closes its expression.

    Raises:
        UnknownTopicOrPartitionError: the topic or partition does not exist.
        InvalidConfigurationError: a time or the expression cannot be used.
    """
    topic = console.cluster.topic(parameters.topic)
    numbers = sorted(topic.partitions) if parameters.partition is None else [parameters.partition]
    from_us = time_us("from_time", parameters.from_time)
    to_us = time_us("to_time", parameters.to_time)
    logs = {number: console.cluster.partition_log(topic, number) for number in numbers}
    ranges = {}
    for number, log in logs.items():
        with console.cluster.detecting_deletion(topic):
            view = log.observe()
            start = view.log_start_offset
            if from_us is not None:
                first = log.offset_for_time(from_us)
                start = view.log_end_offset if first is None else first[0]
        ranges[number] = (start, max(start, view.log_end_offset))
    name, equals, value = (parameters.header or "").partition("=")
    return Search(
        logs,
        ranges,
        None if parameters.key is None else parameters.key.encode(errors="surrogateescape"),
        (name, value.encode(errors="surrogateescape") if equals else None) if name else None,
        from_us,
        to_us,
        None
        if parameters.where is None
        else Expression(parameters.where, memory_bytes=console.settings.search_memory_bytes),
        limit,
        parameters.isolation,
    )


def read_hits(console: Console, parameters: SearchParameters, budget: Budget) -> SearchPage:
    """Search until enough hits are found, all records are read, or most of the time is over."""
    topic = console.cluster.topic(parameters.topic)
    every = tuple(sorted(topic.partitions))
    if not parameters.run:
        return SearchPage(topic.name, every, (), None, False)
    search = open_search(console, parameters, limit=parameters.limit)
    avro = console.settings.avro.get(topic.name)
    found: list[DecodedRecord] = []
    reached = SearchProgress(0, 0, 0, 0.0)
    most = PREVIEW_BYTES if parameters.limit <= 500 else 500

    def on_hits(rows: FetchedRecords) -> None:
        found.extend(shown_records(rows, parameters.form, avro, most))

    def on_progress(progress: SearchProgress) -> None:
        nonlocal reached
        reached = progress
        if progress.elapsed_ms > 0.8 * budget.timeout_ms:
            raise budget.timeout_error()

    try:
        reached = search.run(budget, console.cluster.clock, on_hits, on_progress)
    except KafkaTimeoutError:
        pass  # the hits so far are shown; the stream of hits has more time
    finally:
        if search.expression is not None:
            search.expression.close()
    return SearchPage(topic.name, every, tuple(found), reached, reached.is_done)


SEARCH = View("/search", "Search", SearchParameters, SearchPage, read_hits, "search.html")
