"""The options of ``format("spark_log")``: one table, parsed and checked in one place.

Names are those of Spark's Kafka connector, case-insensitive as everywhere in Spark. ``path`` is
the cluster root; ``storage.<key>`` options go to the file system. What a program sets for Kafka's
clients (`datasource.options.kafka_options`) does not break it here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from spark_log.config import ConsumerConfig, ProducerConfig
from spark_log.datasource.options.given_options import STORAGE_PREFIX, GivenOptions
from spark_log.datasource.options.kafka_options import (
    READ_TRANSLATION,
    WRITE_TRANSLATION,
    compression_instead,
)
from spark_log.datasource.read.offsets import EARLIEST, LATEST, AtOffsets, AtTime, OffsetLimit
from spark_log.errors import InvalidOptionError
from spark_log.types import TopicPartition

__all__ = [
    "READ_OPTIONS",
    "STORAGE_PREFIX",
    "WRITE_OPTIONS",
    "ReadOptions",
    "WriteOptions",
    "parse_read_options",
    "parse_write_options",
]

COMMON_OPTIONS = {"path": "the cluster root: a directory or a URL"}
SUBSCRIPTION_OPTIONS = {
    "subscribe": "topics to read, separated by commas",
    "assign": 'partitions to read, as JSON: {"topicA": [0, 1], "topicB": [2]}',
    "subscribePattern": "a regular expression: topics in whose name it is found are read, also "
    "those created while a query runs",
}
STREAM_OPTIONS = {
    "maxOffsetsPerTrigger": "most offsets that a micro-batch takes, of all partitions together",
    "minOffsetsPerTrigger": "a micro-batch waits for so many new offsets",
    "maxTriggerDelay": "but no longer than this: 30s, 15m, 1h (default 15m)",
    "checkpointLocation": "the query's checkpoint, given to readStream as well: needed only to go "
    "on with a first batch that a query on format kafka planned and did not finish",
}
READ_OPTIONS = (
    COMMON_OPTIONS
    | SUBSCRIPTION_OPTIONS
    | {
        "startingOffsets": "earliest, latest, or JSON by topic and partition; -2 earliest, "
        "-1 latest (default earliest for a batch, latest for a stream)",
        "endingOffsets": "latest, or JSON by topic and partition; -1 latest (default latest; "
        "batches only, as the other two that say where to end)",
        "startingTimestamp": "milliseconds since the epoch: from the first record at or after it; "
        "goes before startingOffsetsByTimestamp, and that before startingOffsets",
        "endingTimestamp": "milliseconds since the epoch: to before the first record at or after "
        "it; goes before endingOffsetsByTimestamp, and that before endingOffsets",
        "startingOffsetsByTimestamp": "startingTimestamp for each partition, as JSON",
        "endingOffsetsByTimestamp": "endingTimestamp for each partition, as JSON",
        "startingOffsetsByTimestampStrategy": "what to do where no record is at or after a "
        "starting time: error, or latest to begin at the end (default error)",
        "failOnDataLoss": "whether to fail where offsets are asked for that are not retained (any "
        "more), instead of reading what there is (default true)",
        "minPartitions": "at least about so many tasks: large partitions are read by several; with "
        "partition.assignment.strategy the number of members",
        "maxRecordsPerPartition": "most offsets that one task reads",
        "includeHeaders": "whether to add the column headers (default false)",
        "group.id": "the consumer group in whose name a streaming query reports its progress",
        "partition.assignment.strategy": "with group.id: range, roundrobin, sticky or "
        "cooperative-sticky: each task is a member that owns whole partitions; there are "
        "minPartitions of them, else one for each partition",
        "isolation.level": "read_uncommitted or read_committed (default read_uncommitted)",
        "check.crcs": "whether to check every batch's checksum (default true)",
    }
    | STREAM_OPTIONS
)
WRITE_OPTIONS = COMMON_OPTIONS | {
    "topic": "the topic to write to; wins over a column of that name",
    "compression.type": "none, lz4 or zstd, where the topic says producer",
    "idempotent": "whether a task or micro-batch that runs again appends nothing twice (default "
    "true)",
    "txnAppId": "with txnVersion: names a batch write, as Delta's options of these names do, so "
    "that when it runs again, by another program too, nothing is appended twice",
    "txnVersion": "a number that rises from write to write of one txnAppId",
    "summaryPath": "a local file of the driver that a batch write leaves a JSON summary in",
    "checkpointLocation": "Spark's own, of a streaming query",
}

_ASSIGNORS: Final = ("range", "roundrobin", "sticky", "cooperative-sticky")


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a read was asked for.

    Attributes:
        topics: all that are subscribed, or that have a partition assigned; empty with a pattern.
        pattern: topics in whose name it is found are read; None without one.
        assigned: only these partitions of the topics; None for all.
        starting: where to begin; None for the default, which a batch and a stream do not share.
        ending: where to end.
        begins_late: begin at the end where no record is at or after a starting time.
        min_partitions: about how many tasks at least.
        max_records_per_partition: how many offsets a task reads at most.
        max_trigger_delay_ms: how long `min_offsets_per_trigger` may hold records back.
        checkpoint_location: of a stream's query; empty where it was not given.
        group_id: of the group in whose name progress is reported; None for none.
        assignor: name of the one by which tasks own whole partitions; None: they read splits.
        ignored: options given that mean nothing here.
    """

    root: str
    storage_options: Mapping[str, str]
    topics: tuple[str, ...]
    pattern: str | None
    assigned: frozenset[TopicPartition] | None
    starting: OffsetLimit | None
    ending: OffsetLimit
    begins_late: bool
    fail_on_data_loss: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    checkpoint_location: str
    group_id: str | None
    assignor: str | None
    isolation_level: Literal["read_uncommitted", "read_committed"]
    include_headers: bool
    check_crcs: bool
    ignored: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """What a write was asked for.

    Attributes:
        topic: that all records go to; None where a column tells.
        compression: where the topic leaves it to the writer.
        idempotent: whether what is written again is recognised (`write_identity`).
        transaction: name and number of a batch write that may run again; None: it is drawn.
        summary_path: of the file that a batch write leaves its summary in; None for none.
        ignored: options given that mean nothing here.
        warnings: what else to tell the user, a sentence each.
    """

    root: str
    storage_options: Mapping[str, str]
    topic: str | None
    compression: str
    idempotent: bool = True
    transaction: tuple[str, int] | None = None
    summary_path: str | None = None
    ignored: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def parse_read_options(options: Mapping[str, str], *, is_stream: bool | None = None) -> ReadOptions:
    """Check the options of a read.

    Args:
        options: as the user gave them.
        is_stream: whether for a stream or a batch, to refuse what the other alone takes; None
            where that is not known yet.

    Raises:
        InvalidOptionError: an option is unknown (names the nearest), missing, or has a bad value.
    """
    given = GivenOptions(options, READ_OPTIONS, READ_TRANSLATION)
    topics, pattern, assigned = _subscription(given)
    starting = given.limit("starting")
    ending = given.limit("ending")
    ignored = list(given.ignored)
    if is_stream is True:
        _check_stream(given)
    elif is_stream is False:
        _check_batch(starting, ending)
        ignored += [name for name in STREAM_OPTIONS if name in given]
    least, most = given.integer("minOffsetsPerTrigger"), given.integer("maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise InvalidOptionError(
            f"minOffsetsPerTrigger is {least}, more than maxOffsetsPerTrigger, {most}: a "
            f"micro-batch could never be large enough; lower the one or raise the other",
            key="minOffsetsPerTrigger",
        )
    return ReadOptions(
        root=given.root(),
        storage_options=given.storage_options,
        topics=topics,
        pattern=pattern,
        assigned=assigned,
        starting=starting,
        ending=ending or AtOffsets("endingOffsets", LATEST),
        begins_late=given.choice("startingOffsetsByTimestampStrategy", ("error", "latest"))
        == "latest",
        fail_on_data_loss=given.boolean("failOnDataLoss", default=True),
        min_partitions=given.integer("minPartitions", least=1, most=2**31 - 1),
        max_records_per_partition=given.integer("maxRecordsPerPartition", least=1),
        max_offsets_per_trigger=most,
        min_offsets_per_trigger=least,
        max_trigger_delay_ms=given.duration_ms("maxTriggerDelay", "15m"),
        checkpoint_location=given.get("checkpointLocation"),
        group_id=given.get("group.id") or None,
        assignor=_assignor(given),
        isolation_level="read_committed"
        if given.choice("isolation.level", ("read_uncommitted", "read_committed"))
        == "read_committed"
        else "read_uncommitted",
        include_headers=given.boolean("includeHeaders", default=False),
        check_crcs=ConsumerConfig.parse(given.subset("check.crcs")).check_crcs,
        ignored=tuple(ignored),
    )


def parse_write_options(options: Mapping[str, str]) -> WriteOptions:
    """Check the options of a write.

    Raises:
        InvalidOptionError: an option is unknown (names the nearest), missing, or has a bad value.
    """
    given = GivenOptions(options, WRITE_OPTIONS, WRITE_TRANSLATION)
    instead = compression_instead(options)
    compression = (
        ProducerConfig.parse(given.subset("compression.type")).compression_type
        if instead is None
        else instead[0]
    )
    return WriteOptions(
        root=given.root(),
        storage_options=given.storage_options,
        topic=given.get("topic").strip() or None,
        compression=compression,
        idempotent=given.boolean("idempotent", default=True),
        transaction=_transaction(given),
        summary_path=given.get("summaryPath") or None,
        ignored=given.ignored,
        warnings=() if instead is None else (instead[1],),
    )


def _transaction(given: GivenOptions) -> tuple[str, int] | None:
    name, number = given.get("txnAppId"), given.integer("txnVersion")
    if not name and number is None:
        return None
    if not name or number is None:
        lacking = "txnVersion" if name else "txnAppId"
        raise InvalidOptionError(
            f"option {lacking!r} is missing: 'txnAppId' and 'txnVersion' together name a write",
            key=lacking,
        )
    return name, number


def _subscription(
    given: GivenOptions,
) -> tuple[tuple[str, ...], str | None, frozenset[TopicPartition] | None]:
    """Return topics, pattern and assigned partitions, of which the user gave exactly one."""
    chosen = [name for name in SUBSCRIPTION_OPTIONS if name in given]
    if len(chosen) != 1:
        ways = "; ".join(f"{name!r}: {text}" for name, text in SUBSCRIPTION_OPTIONS.items())
        got = " and ".join(map(repr, chosen)) or "none of them"
        raise InvalidOptionError(
            f"give exactly one of the options {', '.join(map(repr, SUBSCRIPTION_OPTIONS))}; this "
            f"read has {got}. {ways}",
            key=chosen[-1] if chosen else "subscribe",
        )
    option, text = chosen[0], given.get(chosen[0]).strip()
    if option == "assign":
        assigned = given.assigned()
        return tuple(sorted({named.topic for named in assigned})), None, assigned
    if option == "subscribe":
        names = [name.strip() for name in text.split(",") if name.strip()]
        if not names:
            raise InvalidOptionError(
                f"option 'subscribe' is {given.get('subscribe')!r}, which names no topic; expected "
                f"{READ_OPTIONS['subscribe']}",
                key=option,
            )
        return tuple(dict.fromkeys(names)), None, None
    try:
        if not text:
            raise re.error("it is empty, and would match everything")
        re.compile(text)
    except re.error as error:
        raise InvalidOptionError(
            f"option 'subscribePattern' is {text!r}, expected a regular expression: {error}",
            key=option,
        ) from None
    return (), text, None


def _check_stream(given: GivenOptions) -> None:
    for name in ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"):
        if name in given:
            raise InvalidOptionError(
                f"option {name!r} is for batches: a streaming query has no end; read a batch, or "
                f"leave it out and use trigger(availableNow=True) to end with what is there now",
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
                f"a batch read cannot {text} ({limit.option}): there would be nothing to read; "
                f"give an offset or a time",
                key=limit.option,
            )
        if isinstance(limit.offsets, Mapping):
            wrong = sorted(named for named, offset in limit.offsets.items() if offset == word)
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
                f"options {starting.option!r} and {ending.option!r} do not name the same "
                f"partitions: only one of them has "
                f"{', '.join(map(str, sorted(begins.keys() ^ ends.keys())))}",
                key=ending.option,
            )
        pairs = [(f"{named}: ", begins[named], ends[named]) for named in sorted(begins)]
    elif is_time and not isinstance(begins, Mapping) and not isinstance(ends, Mapping):
        pairs = [("", begins, ends)]
    else:
        return
    for where, begin, end in pairs:
        if begin > end and (is_time or end >= 0):
            raise InvalidOptionError(
                f"{where}{starting.option} is {begin} and {ending.option} before it, {end}; a read "
                f"cannot end before it starts",
                key=ending.option,
            )


def _assignor(given: GivenOptions) -> str | None:
    name = "partition.assignment.strategy"
    if name not in given:
        return None
    strategy = given.choice(name, _ASSIGNORS)
    if not given.get("group.id"):
        raise InvalidOptionError(
            f"option {name!r} ({strategy}) counts only with 'group.id'; give a group, or leave it "
            f"out",
            key=name,
        )
    if "maxRecordsPerPartition" in given:
        raise InvalidOptionError(
            f"with option {name!r} ({strategy}) a task owns whole partitions, and "
            f"'maxRecordsPerPartition' would cut them; leave one of both out",
            key="maxRecordsPerPartition",
        )
    return strategy
