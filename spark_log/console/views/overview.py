"""The overview: what is wrong, how much is written, and which groups are behind.

One view costs the metadata, the committed offsets, the states of groups, and a bounded number of
listings and reads: `_MAX_LISTED`, `_MAX_TRANSACTIONS` and `_MAX_TIMES`. In a large cluster each
view looks at other partitions, and shows of the rest what an earlier one saw.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from spark_log import __version__
from spark_log.admin import partition_keys
from spark_log.console.activity import STEP_S, STEPS, Activity, activity, step_of
from spark_log.console.budget import Budget
from spark_log.console.console import Console
from spark_log.console.looks import Look
from spark_log.console.templates import age_text, link, number
from spark_log.console.view import NoParameters, View
from spark_log.coordinator import OffsetsTable, PartitionKey
from spark_log.errors import (
    SparkLogError,
    TransactionalIdNotFoundError,
    UnknownTopicOrPartitionError,
)
from spark_log.log import LiveSegment, LogView, first_unread_us
from spark_log.metadata import MetadataImage, TopicImage
from spark_log.transaction import list_transactional_ids
from spark_log.types import TransactionDescription

_MAX_LISTED: Final = 200
"""Most partitions that one view lists, and most merged segments whose headers it reads.

On an object store, where requests are paid for, it is a fifth of it."""
_MAX_TRANSACTIONS: Final = 100
"""Most transactional ids whose state one view reads."""
_MAX_TIMES: Final = 4
"""Most partitions of a group that is shown whose first unread record is read."""
_SHOWN: Final = 6
"""Most topics, groups, transactions, and findings of a kind that are shown."""
_MINUTE_US: Final = 60_000_000


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that a person should know.

    Attributes:
        severity: ``error`` (data cannot be read or written), ``warning``, ``info`` or ``ok``.
        sentence: what it is.
        path: the page that shows more; empty for none.
        command: the command of a shell that mends it, or shows more; empty for none.
    """

    severity: Literal["error", "warning", "info", "ok"]
    sentence: str
    path: str = ""
    command: str = ""


@dataclass(frozen=True, slots=True)
class Throughput:
    """What was appended to all topics in the last half hour, by the dates of segments.

    Attributes:
        step_s: seconds that one number is the mean of.
        times_us: begin of each such time, in microseconds since the epoch.
        records_per_second: offsets appended.
        bytes_per_second: size of their segments, of one replica.
    """

    step_s: int
    times_us: tuple[int, ...]
    records_per_second: tuple[float, ...]
    bytes_per_second: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class TopicRate:
    """What was appended to a topic, as the mean of the last minute.

    Attributes:
        name: its name.
        records_per_second: offsets appended.
        bytes_per_second: size of their segments, of one replica.
    """

    name: str
    records_per_second: float
    bytes_per_second: float


@dataclass(frozen=True, slots=True)
class GroupBehind:
    """A group with unread records.

    Attributes:
        group_id: its id.
        state: ``Empty``, ``Stable`` or ``Reconciling``.
        lag: records that it can read and has not; of partitions that were looked at.
        lag_ms: age of the oldest of their first unread records, as far as it is known; else None.
    """

    group_id: str
    state: str
    lag: int
    lag_ms: int | None


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that readers with ``read_committed`` wait for.

    Attributes:
        transactional_id: its id.
        state: ``Ongoing``, ``PrepareCommit`` and so on, as in Kafka.
        open_ms: time since it began, by the clock of the process that began it.
        timeout_ms: ``transaction.timeout.ms``.
        partitions: those that are registered.
    """

    transactional_id: str
    state: str
    open_ms: int
    timeout_ms: int
    partitions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Overview:
    """The cluster at a glance.

    Attributes:
        root: its URL, without credentials.
        cluster_id: its id.
        version: of spark-log.
        brokers: number of brokers.
        topics: number of topics.
        partitions: number of partitions.
        partitions_seen: number of partitions that this view or an earlier one has looked at; the
            numbers below are of these.
        oldest_look_ms: how long ago the first of them was looked at; 0 without one.
        groups: group state → number of groups.
        findings: its health, the worst first.
        records_per_second: offsets appended, as the mean of the last minute.
        bytes_per_second: size of their segments, of one replica.
        throughput: the same over time.
        busiest_topics: topics with the most bytes a second, the first ones.
        groups_behind: groups with the most lag, the first ones.
        open_transactions: transactions that are open, the longest first; the first ones.
    """

    root: str
    cluster_id: str
    version: str
    brokers: int
    topics: int
    partitions: int
    partitions_seen: int
    oldest_look_ms: int
    groups: dict[str, int]
    findings: tuple[Finding, ...]
    records_per_second: float
    bytes_per_second: float
    throughput: Throughput
    busiest_topics: tuple[TopicRate, ...]
    groups_behind: tuple[GroupBehind, ...]
    open_transactions: tuple[OpenTransaction, ...]


def read_overview(console: Console, _: NoParameters, budget: Budget) -> Overview:
    """Read the metadata, the states of groups, and a bounded number of partitions."""
    clock, cluster = console.cluster.clock, console.cluster
    began_ms = clock.monotonic_ms()
    image = cluster.image()
    states = {each.group_id: each.group_state for each in console.admin.list_groups()}
    budget.check()
    # Committed offsets first: a log end that is read later is never before them.
    committed = {
        group_id: {key: each.offset for key, each in positions.items()}
        for group_id, positions in OffsetsTable(cluster).all_positions().items()
    }
    budget.check()
    now_us = clock.time_us()  # wall clock: only shown
    now_step = step_of(now_us)
    looks = _look_at_partitions(console, image, committed, now_step - STEPS, budget)
    transactions = _open_transactions(console, now_us, budget)
    throughput, topics = _throughput(looks, now_step)
    last = slice(-(_MINUTE_US // 1_000_000 // STEP_S), None)
    findings = [
        *_of_doctor(console),
        *_of_transactions(transactions),
        *_of_partitions(looks, committed, began_ms),
        *_of_groups(states),
    ]
    order = ("error", "warning", "info")
    findings.sort(key=lambda each: order.index(each.severity))
    if all(each.severity == "info" for each in findings):
        findings.insert(0, Finding("ok", "Nothing is wrong with brokers, replicas and groups."))
    oldest_ms = min((each.looked_ms for each in looks.values()), default=began_ms)
    return Overview(
        cluster.root,
        cluster.cluster_id,
        __version__,
        sum(1 for _ in image.brokers()),
        sum(1 for _ in image.topics()),
        sum(topic.num_partitions for topic in image.topics()),
        len(looks),
        max(0, int(began_ms - oldest_ms)),
        {state: list(states.values()).count(state) for state in sorted(set(states.values()))},
        tuple(findings),
        _mean(throughput.records_per_second[last]),
        _mean(throughput.bytes_per_second[last]),
        throughput,
        topics,
        _groups_behind(console, looks, committed, states, now_us, budget),
        tuple(transactions[:_SHOWN]),
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


# --- partitions ----------------------------------------------------------------------------------

_Looks = Mapping[PartitionKey, Look[Activity | None]]
_Committed = Mapping[str, Mapping[PartitionKey, int]]


def _look_at_partitions(
    console: Console,
    image: MetadataImage,
    committed: _Committed,
    since_step: int,
    budget: Budget,
) -> _Looks:
    """List some partitions: those of groups come first, then the first ones of each topic."""
    by_topic = [partition_keys(topic) for topic in image.topics()]
    every = [key for keys in itertools.zip_longest(*by_topic) for key in keys if key is not None]
    of_groups = {key for offsets in committed.values() for key in offsets}
    every.sort(key=lambda key: key not in of_groups)

    is_mapped = console.cluster.store.is_mapped
    limit = _MAX_LISTED if is_mapped else _MAX_LISTED // 5
    opened = itertools.count()

    def see(key: PartitionKey) -> Activity | None:
        topic = image.topic(key.topic)
        with suppress(UnknownTopicOrPartitionError):  # deleted since the metadata were read
            view = console.observe(topic, key.partition)
            if view is None:
                return None

            def merged(segment: LiveSegment) -> Mapping[int, float]:
                return console.merged.steps(
                    f"{view.origin}/{segment.name.log}",
                    since_step,
                    lambda: (
                        _headers(console, topic, key.partition, view, segment)
                        if next(opened) < limit
                        else None
                    ),
                )

            return activity(view, since_step, merged)
        return Activity(0, 0)

    return console.activities.refresh(every, lambda keys: console.map(see, keys, budget), limit)


def _headers(
    console: Console, topic: TopicImage, partition: int, view: LogView, segment: LiveSegment
) -> np.ndarray | None:
    """Return the batch headers of a segment of the replica that was listed, if it can be read."""
    cluster = console.cluster
    with cluster.suppressed.suppress("console segment", view.origin, SparkLogError):
        for broker_id in topic.partitions[partition].replicas:
            log = cluster.replica_log(topic, partition, broker_id)
            if log.files.url == view.origin:
                return log.files.open_listed(segment, view.observed_ms).header_array()
    return None


def _throughput(looks: _Looks, now_step: int) -> tuple[Throughput, tuple[TopicRate, ...]]:
    """Return what was appended to all topics, and to those with the most bytes a second.

    The present quarter minute is not over, so it is left out.
    """
    steps = range(now_step - STEPS, now_step)
    last = steps[-(_MINUTE_US // 1_000_000 // STEP_S) :]
    records: defaultdict[int, float] = defaultdict(float)
    size_bytes: defaultdict[int, float] = defaultdict(float)
    topics: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for key, look in looks.items():
        if look.seen is None:
            continue
        for step, amount in look.seen.records.items():
            records[step] += amount
            size_bytes[step] += look.seen.size_bytes[step]
        for step in last:
            topics[key.topic][0] += look.seen.records.get(step, 0.0)
            topics[key.topic][1] += look.seen.size_bytes.get(step, 0.0)
    seconds = len(last) * STEP_S
    busy = sorted((each[1], name) for name, each in topics.items() if each[0] > 0)
    return (
        Throughput(
            STEP_S,
            tuple(step * STEP_S * 1_000_000 for step in steps),
            tuple(round(records[step] / STEP_S, 3) for step in steps),
            tuple(round(size_bytes[step] / STEP_S, 1) for step in steps),
        ),
        tuple(
            TopicRate(name, topics[name][0] / seconds, topics[name][1] / seconds)
            for _, name in reversed(busy[-_SHOWN:])
        ),
    )


# --- groups --------------------------------------------------------------------------------------


def _groups_behind(
    console: Console,
    looks: _Looks,
    committed: _Committed,
    states: Mapping[str, str],
    now_us: int,
    budget: Budget,
) -> tuple[GroupBehind, ...]:
    lags: dict[str, dict[PartitionKey, tuple[int, int]]] = {}
    for group_id, offsets in committed.items():
        for key, offset in offsets.items():
            seen = looks[key].seen if key in looks else None
            if seen is not None:
                first = max(offset, seen.log_start_offset)
                if seen.log_end_offset > first:
                    lag = seen.log_end_offset - first
                    lags.setdefault(group_id, {})[key] = (lag, first)
    total = {group_id: sum(lag for lag, _ in each.values()) for group_id, each in lags.items()}
    farthest = sorted(total, key=lambda group_id: (-total[group_id], group_id))[:_SHOWN]
    positions = [
        (group_id, key, first)
        for group_id in farthest
        for key, (_, first) in sorted(
            lags[group_id].items(), key=lambda item: item[1], reverse=True
        )[:_MAX_TIMES]
    ]
    image = console.cluster.image()

    def age_ms(position: tuple[str, PartitionKey, int]) -> int | None:
        _, key, first = position
        topic = image.find_by_id(key.topic_id)
        if topic is None:
            return None
        since_us = first_unread_us(console.cluster.partition_log(topic, key.partition), first)
        return None if since_us is None else max(0, now_us - since_us) // 1000

    ages: dict[str, list[int]] = {group_id: [] for group_id in farthest}
    for (group_id, _, _), age in zip(
        positions, console.map(age_ms, positions, budget), strict=True
    ):
        if age is not None:
            ages[group_id].append(age)
    return tuple(
        GroupBehind(
            group_id,
            states.get(group_id, "Empty"),
            total[group_id],
            max(ages[group_id], default=None),
        )
        for group_id in farthest
    )


# --- transactions --------------------------------------------------------------------------------


def _open_transactions(console: Console, now_us: int, budget: Budget) -> list[OpenTransaction]:
    """Return the open transactions, the longest first, by their present state."""
    cluster = console.cluster
    ids = list_transactional_ids(cluster.store, cluster.clock)

    def see(transactional_id: str) -> TransactionDescription | None:
        try:
            return console.admin.describe_transactions([transactional_id])[transactional_id]
        except TransactionalIdNotFoundError:
            return None
        except SparkLogError as error:
            cluster.suppressed.add("console transaction", transactional_id, error)
            return None

    began_ms = cluster.clock.monotonic_ms()
    looks = console.transactions.refresh(
        ids, lambda due: console.map(see, due, budget), _MAX_TRANSACTIONS
    )
    found = [(key, look) for key, look in looks.items() if _is_open(look.seen)]
    # What an earlier view saw may be over.
    old = [key for key, look in found if look.looked_ms < began_ms][:_MAX_TRANSACTIONS]
    seen = {key: look.seen for key, look in found}
    seen.update(zip(old, console.map(see, old, budget), strict=True))
    transactions = [
        OpenTransaction(
            key,
            each.state,
            max(0, now_us // 1000 - each.transaction_start_time_ms),
            each.transaction_timeout_ms,
            tuple(map(str, sorted(each.topic_partitions))),
        )
        for key, each in seen.items()
        if each is not None and _is_open(each)
    ]
    return sorted(transactions, key=lambda each: each.open_ms, reverse=True)


def _is_open(seen: TransactionDescription | None) -> bool:
    return seen is not None and seen.transaction_start_time_ms >= 0


# --- findings ------------------------------------------------------------------------------------


def _of_doctor(console: Console) -> Iterator[Finding]:
    for each in console.checkup.findings():
        subject = each.subject
        if subject.topic is not None:
            path = link("/topic", topic=subject.topic)
        elif subject.group is not None:
            path = link("/group", group=subject.group)
        else:
            path = "" if subject.broker is None else "/brokers"
        text = subject.text[:1].upper() + subject.text[1:]
        yield Finding(each.severity.value, f"{text}: {each.message}.", path, each.command or "")


def _of_transactions(transactions: Sequence[OpenTransaction]) -> Iterator[Finding]:
    late = [each for each in transactions if each.open_ms > each.timeout_ms]
    for each in late[:_SHOWN]:
        yield Finding(
            "warning",
            f"The transaction of {each.transactional_id} has been open for "
            f"{age_text(each.open_ms)}, longer than its timeout of {age_text(each.timeout_ms)}: "
            f"readers with read_committed wait for it in {_names(each.partitions)}.",
            link("/transactions", q=each.transactional_id),
        )
    if len(late) > _SHOWN:
        more = f"{number(len(late) - _SHOWN)} more transactions are open after their timeout."
        yield Finding("warning", more, "/transactions")


def _of_partitions(looks: _Looks, committed: _Committed, began_ms: float) -> Iterator[Finding]:
    unreadable = [key for key, look in looks.items() if look.seen is None]
    if unreadable:
        names = [f"{key.topic}-{key.partition}" for key in unreadable]
        yield Finding(
            "error",
            f"Logs of partitions cannot be read: {_names(names)}.",
            link("/topic", topic=unreadable[0].topic),
            "spark-log doctor",
        )
    after: list[tuple[str, PartitionKey]] = []
    before: list[tuple[str, PartitionKey]] = []
    for group_id, offsets in committed.items():
        for key, offset in offsets.items():
            look = looks.get(key)
            if look is None or look.seen is None:
                continue
            if offset < look.seen.log_start_offset:
                before.append((group_id, key))
            elif offset > look.seen.log_end_offset and look.looked_ms >= began_ms:
                after.append((group_id, key))
    for found, severity, what in (
        (after, "error", "committed offsets after the log's end: records were lost, or skipped"),
        (before, "warning", "not read records that were deleted"),
    ):
        groups = sorted({group_id for group_id, _ in found})
        for group_id in groups[:_SHOWN]:
            names = [f"{key.topic}-{key.partition}" for each, key in found if each == group_id]
            yield Finding(
                severity,  # type: ignore[arg-type]
                f"Group {group_id} has {what}, in {_names(names)}.",
                link("/group", group=group_id),
            )
        if len(groups) > _SHOWN:
            more = f"{number(len(groups) - _SHOWN)} more groups have {what}."
            yield Finding(severity, more, "/groups")  # type: ignore[arg-type]


def _of_groups(states: Mapping[str, str]) -> Iterator[Finding]:
    moving = [group_id for group_id, state in states.items() if state == "Reconciling"]
    if moving:
        path = link("/group", group=moving[0]) if len(moving) == 1 else "/groups"
        yield Finding("info", f"Partitions move between members of {_names(moving)}.", path)


def _names(names: Sequence[str]) -> str:
    more = f" and {number(len(names) - 3)} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


OVERVIEW = View("/", "Overview", NoParameters, Overview, read_overview, "overview.html")
