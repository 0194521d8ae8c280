"""Options of a read with ``format("spark_log")``: a table of them, and the parsed result.

Names and meaning are those of Spark's Kafka connector.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from spark_log.config import (
    DEFAULT_CHECK_CRCS,
    DEFAULT_FETCH_IDLE_INTERVAL_MS,
    BrokerOptions,
)
from spark_log.datasource.options.kafka_options import READ_TRANSLATION
from spark_log.datasource.options.offsets import EARLIEST, LATEST, AtOffsets, AtTime, OffsetLimit
from spark_log.datasource.options.option_parser import OptionParser
from spark_log.errors import InvalidOptionError
from spark_log.types import TopicPartition

SUBSCRIPTION_OPTIONS: Final = {
    "subscribe": "topics to read, separated by commas",
    "assign": 'partitions to read, as JSON: {"topicA": [0, 1], "topicB": [2]}',
    "subscribePattern": "a regular expression; all topics whose name contains a match are read, "
    "also topics created while a query runs",
}
STREAM_OPTIONS: Final = {
    "maxOffsetsPerTrigger": "maximum number of offsets in a micro-batch, over all partitions",
    "minOffsetsPerTrigger": "minimum number of new offsets before a micro-batch starts, unless "
    "maxTriggerDelay has passed",
    "maxTriggerDelay": "maximum time between micro-batches with minOffsetsPerTrigger: 30s, 15m, 1h "
    "(default 15m)",
    "fetch.idle.interval.ms": "object stores only: milliseconds between two requests for new "
    "records of a partition that has had none for 5 seconds, so the first record after a rest is "
    "read up to this much later (default 1000)",
    "checkpointLocation": "the query's checkpoint. readStream needs it only if a query on format "
    "kafka planned the first batch and did not finish it",
}
READ_OPTIONS: Final = (
    SUBSCRIPTION_OPTIONS
    | {
        "startingOffsets": "earliest, latest, or JSON by topic and partition; -2 earliest, "
        "-1 latest (default earliest for a batch, latest for a stream)",
        "endingOffsets": "latest, or JSON by topic and partition; -1 latest (default latest; "
        "batches only)",
        "startingTimestamp": "milliseconds since the epoch: the read starts at the first record at "
        "or after it; takes precedence over startingOffsetsByTimestamp and startingOffsets",
        "endingTimestamp": "milliseconds since the epoch: the read ends before the first record at "
        "or after it; takes precedence over endingOffsetsByTimestamp and endingOffsets; batches "
        "only",
        "startingOffsetsByTimestamp": "milliseconds since the epoch for each partition, as JSON; "
        "takes precedence over startingOffsets",
        "endingOffsetsByTimestamp": "milliseconds since the epoch for each partition, as JSON; "
        "takes precedence over endingOffsets; batches only",
        "startingOffsetsByTimestampStrategy": "if a partition has no record at or after the "
        "starting time: error fails, latest starts at the end of the partition (default error)",
        "failOnDataLoss": "whether to fail if offsets to read are not retained or do not exist; if "
        "false, the existing records are read (default true)",
        "minPartitions": "approximate minimum number of tasks: large partitions are split; with "
        "partition.assignment.strategy the number of members",
        "maxRecordsPerPartition": "maximum number of offsets that one task reads",
        "includeHeaders": "whether to add the column headers (default false)",
        "group.id": "the consumer group to which a streaming query reports its progress",
        "partition.assignment.strategy": "with group.id: range, roundrobin, sticky or "
        "cooperative-sticky. Each task is then a member that owns whole partitions; minPartitions "
        "sets the number of members, by default one for each partition",
        "isolation.level": "read_uncommitted, or read_committed to leave out records of aborted "
        "transactions, and to end before the first one that is open (default read_uncommitted)",
        "client.rack": "rack of the executors: an in-sync replica whose broker has this rack is "
        "read first (KIP-392)",
        "check.crcs": "whether to verify the checksum of every record batch (default true)",
    }
    | STREAM_OPTIONS
)
_ASSIGNORS: Final = ("range", "roundrobin", "sticky", "cooperative-sticky")


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Parsed options of a read.

    Attributes:
        root: URL of the cluster root.
        storage_options: options of the file system; never shown.
        broker_options: broker id → options of the file system of its root; never shown.
        topics: subscribed topics, or topics with an assigned partition; empty with a pattern.
        pattern: regular expression for the names of the topics to read; None without one.
        assigned: the only partitions to read; None for all partitions of the topics.
        starting: the start of the read; None for the default, which is earliest for a batch and
            latest for a stream.
        ending: the end of the read.
        latest_if_no_match: start at the end of a partition that has no record at or after the
            starting time.
        fail_on_data_loss: fail if offsets to read do not exist.
        min_partitions: approximate minimum number of tasks.
        max_records_per_partition: maximum number of offsets that a task reads.
        max_offsets_per_trigger: maximum number of offsets in a micro-batch.
        min_offsets_per_trigger: minimum number of new offsets before a micro-batch starts.
        max_trigger_delay_ms: maximum time that `min_offsets_per_trigger` delays a micro-batch.
        fetch_idle_interval_ms: time between two requests for new records of a partition at rest.
        checkpoint_location: checkpoint of a streaming query; empty if it was not given.
        group_id: consumer group to which progress is reported; None for none.
        assignor: name of the assignor if tasks own whole partitions; None if they read splits.
        isolation_level: whether records of open and of aborted transactions are read.
        include_headers: add the column ``headers``.
        check_crcs: verify the checksum of every record batch.
        client_rack: rack whose replicas are read first; empty for none.
        ignored: options that were given and have no effect.
    """

    root: str
    storage_options: Mapping[str, str] = field(repr=False)
    broker_options: BrokerOptions = field(repr=False)
    topics: tuple[str, ...]
    pattern: str | None
    assigned: frozenset[TopicPartition] | None
    starting: OffsetLimit | None
    ending: OffsetLimit
    latest_if_no_match: bool
    fail_on_data_loss: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    fetch_idle_interval_ms: int
    checkpoint_location: str
    group_id: str | None
    assignor: str | None
    isolation_level: Literal["read_uncommitted", "read_committed"]
    include_headers: bool
    check_crcs: bool
    client_rack: str
    ignored: tuple[str, ...]

    @property
    def reads_committed(self) -> bool:
        """Whether records of open and of aborted transactions are left out."""
        return self.isolation_level == "read_committed"


def parse_read_options(options: Mapping[str, str], *, is_stream: bool | None = None) -> ReadOptions:
    """Parse the options of a read.

    Args:
        options: options as the user gave them.
        is_stream: whether the read is a stream or a batch, to refuse options of the other kind;
            None if this is not known yet.

    Raises:
        InvalidOptionError: an option is misspelled (the error names the nearest), missing, or has
            an invalid value.
    """
    parser = OptionParser(options, READ_OPTIONS, READ_TRANSLATION)
    if not any(name in parser for name in SUBSCRIPTION_OPTIONS):
        _refuse_topic(options)
    topics, pattern, assigned = _subscription(parser)
    starting = parser.limit("starting")
    ending = parser.limit("ending")
    ignored = list(parser.ignored)
    if is_stream is True:
        _check_stream(parser)
    elif is_stream is False:
        _check_batch(starting, ending)
        ignored += [name for name in STREAM_OPTIONS if name in parser]
    minimum, maximum = _offsets_per_trigger(parser)
    check_crcs, fetch_idle_interval_ms = _consumer_settings(parser)
    return ReadOptions(
        root=parser.root(),
        storage_options=parser.storage_options,
        broker_options=parser.broker_options,
        topics=topics,
        pattern=pattern,
        assigned=assigned,
        starting=starting,
        ending=ending or AtOffsets("endingOffsets", LATEST),
        latest_if_no_match=parser.choice("startingOffsetsByTimestampStrategy", ("error", "latest"))
        == "latest",
        fail_on_data_loss=parser.boolean("failOnDataLoss", default=True),
        min_partitions=parser.integer("minPartitions", minimum=1, maximum=2**31 - 1),
        max_records_per_partition=parser.integer("maxRecordsPerPartition", minimum=1),
        max_offsets_per_trigger=maximum,
        min_offsets_per_trigger=minimum,
        max_trigger_delay_ms=parser.duration_ms("maxTriggerDelay", "15m"),
        fetch_idle_interval_ms=fetch_idle_interval_ms,
        checkpoint_location=parser.get("checkpointLocation"),
        group_id=parser.get("group.id") or None,
        assignor=_assignor(parser),
        isolation_level="read_committed"
        if parser.choice("isolation.level", ("read_uncommitted", "read_committed"))
        == "read_committed"
        else "read_uncommitted",
        include_headers=parser.boolean("includeHeaders", default=False),
        check_crcs=check_crcs,
        client_rack=parser.get("client.rack"),
        ignored=tuple(ignored),
    )


def _consumer_settings(parser: OptionParser) -> tuple[bool, int]:
    """Return ``check.crcs`` and ``fetch.idle.interval.ms``, which consumers have, too."""
    given = parser.subset("check.crcs", "fetch.idle.interval.ms")
    if not given:
        return DEFAULT_CHECK_CRCS, DEFAULT_FETCH_IDLE_INTERVAL_MS
    from spark_log.config import ConsumerConfig  # late: most reads set neither

    consumer = ConsumerConfig.parse(given)
    return consumer.check_crcs, consumer.fetch_idle_interval_ms


def _offsets_per_trigger(parser: OptionParser) -> tuple[int | None, int | None]:
    """Return the minimum and the maximum of a micro-batch."""
    minimum = parser.integer("minOffsetsPerTrigger")
    maximum = parser.integer("maxOffsetsPerTrigger")
    if minimum is not None and maximum is not None and minimum > maximum:
        raise InvalidOptionError(
            f"minOffsetsPerTrigger is {minimum}, more than maxOffsetsPerTrigger, {maximum}; no "
            f"micro-batch could satisfy both, so lower the first or raise the second",
            key="minOffsetsPerTrigger",
        )
    return minimum, maximum


def _subscription(
    parser: OptionParser,
) -> tuple[tuple[str, ...], str | None, frozenset[TopicPartition] | None]:
    """Return topics, pattern and assigned partitions; exactly one of the three options is set."""
    chosen = [name for name in SUBSCRIPTION_OPTIONS if name in parser]
    if len(chosen) != 1:
        ways = "; ".join(f"{name!r}: {text}" for name, text in SUBSCRIPTION_OPTIONS.items())
        got = " and ".join(map(repr, chosen)) or "none of them"
        raise InvalidOptionError(
            f"a read needs exactly one of the options "
            f"{', '.join(map(repr, SUBSCRIPTION_OPTIONS))}; this read has {got}. {ways}",
            key=chosen[-1] if chosen else "subscribe",
        )
    option, text = chosen[0], parser.get(chosen[0]).strip()
    if option == "assign":
        assigned = parser.assigned()
        return tuple(sorted({tp.topic for tp in assigned})), None, assigned
    if option == "subscribe":
        names = [name.strip() for name in text.split(",") if name.strip()]
        if not names:
            raise InvalidOptionError(
                f"option 'subscribe' is {parser.get('subscribe')!r}, without a topic; expected "
                f"{READ_OPTIONS['subscribe']}",
                key=option,
            )
        return tuple(dict.fromkeys(names)), None, None
    try:
        if not text:
            raise re.error("an empty pattern would match every topic")
        re.compile(text)
    except re.error as error:
        raise InvalidOptionError(
            f"option 'subscribePattern' is {text!r}, expected a regular expression: {error}",
            key=option,
        ) from None
    return (), text, None


def _refuse_topic(options: Mapping[str, str]) -> None:
    """Refuse the option ``topic`` without topics to read: a view without columns is a read."""
    name = next((name for name in options if name.lower() == "topic"), None)
    if name is not None:
        raise InvalidOptionError(
            f"option {name!r} is for writes; a read takes 'subscribe'. A temporary view to write "
            f"lists its columns: CREATE TEMPORARY VIEW name (key STRING, value STRING) USING "
            f"spark_log OPTIONS (path '…', topic '…')",
            key=name,
        )


def _check_stream(parser: OptionParser) -> None:
    for name in ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"):
        if name in parser:
            raise InvalidOptionError(
                f"option {name!r} is for batches, a streaming query has no end; use spark.read, or "
                f"leave the option out and use trigger(availableNow=True), which ends after the "
                f"records that exist now",
                key=name,
            )


def _check_batch(starting: OffsetLimit | None, ending: OffsetLimit | None) -> None:
    for limit, word, text in (
        (starting, LATEST, "start at latest"),
        (ending, EARLIEST, "end at earliest"),
    ):
        if not isinstance(limit, AtOffsets):
            continue
        if limit.offsets == word:
            raise InvalidOptionError(
                f"a batch read cannot {text} ({limit.option}), it would read nothing; give an "
                f"offset or a time",
                key=limit.option,
            )
        if isinstance(limit.offsets, Mapping):
            wrong = sorted(tp for tp, offset in limit.offsets.items() if offset == word)
            if wrong:
                raise InvalidOptionError(
                    f"option {limit.option!r} has {word} for {', '.join(map(str, wrong))}, but a "
                    f"batch read cannot {text}; give an offset or a time",
                    key=limit.option,
                )
    if starting is None or ending is None or type(starting) is not type(ending):
        return
    begins = starting.offsets if isinstance(starting, AtOffsets) else starting.timestamp_ms
    ends = ending.offsets if isinstance(ending, AtOffsets) else ending.timestamp_ms
    is_time = isinstance(starting, AtTime)
    if isinstance(begins, Mapping) and isinstance(ends, Mapping):
        if begins.keys() != ends.keys():
            raise InvalidOptionError(
                f"options {starting.option!r} and {ending.option!r} must name the same "
                f"partitions; only one of them names "
                f"{', '.join(map(str, sorted(begins.keys() ^ ends.keys())))}",
                key=ending.option,
            )
        pairs = [(f"{tp}: ", begins[tp], ends[tp]) for tp in sorted(begins)]
    elif is_time and not isinstance(begins, Mapping) and not isinstance(ends, Mapping):
        pairs = [("", begins, ends)]
    else:
        return
    for where, begin, end in pairs:
        if begin > end and (is_time or end >= 0):
            raise InvalidOptionError(
                f"{where}{starting.option} is {begin}, and {ending.option} is {end}; a read cannot "
                f"end before it starts",
                key=ending.option,
            )


def _assignor(parser: OptionParser) -> str | None:
    name = "partition.assignment.strategy"
    if name not in parser:
        return None
    strategy = parser.choice(name, _ASSIGNORS)
    if not parser.get("group.id"):
        raise InvalidOptionError(
            f"option {name!r} ({strategy}) needs the option 'group.id'; give a group, or leave the "
            f"strategy out",
            key=name,
        )
    if "maxRecordsPerPartition" in parser:
        raise InvalidOptionError(
            f"with option {name!r} ({strategy}) a task owns whole partitions, but "
            f"'maxRecordsPerPartition' would split them; leave one of the two out",
            key="maxRecordsPerPartition",
        )
    return strategy
