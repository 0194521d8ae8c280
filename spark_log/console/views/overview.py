"""The overview: what is wrong, how much is written, and which groups are behind.

One view costs the metadata, the committed offsets, the states of groups, and a bounded number of
listings and reads: `MAX_LISTED`, `MAX_TRANSACTIONS` and `_MAX_TIMES`. In a large cluster each view
looks at other partitions, and shows of the rest what an earlier one saw.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from spark_log import __version__
from spark_log.console.activity import STEP_S, STEPS, step_of
from spark_log.console.budget import Budget
from spark_log.console.console import Console
from spark_log.console.view import NoParameters, View
from spark_log.console.views.health import Finding, health
from spark_log.console.views.open_transactions import OpenTransaction, open_transactions
from spark_log.console.views.partition_looks import (
    Committed,
    PartitionLooks,
    look_at_partitions,
)
from spark_log.coordinator import OffsetsTable, PartitionKey
from spark_log.log import Lag, first_unread_us

_MAX_TIMES: Final = 4
"""Most partitions of a group that is shown whose first unread record is read."""
_SHOWN: Final = 6
"""Most topics, groups and transactions that are shown."""
_MINUTE_US: Final = 60_000_000


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
    looks = look_at_partitions(console, image, committed, now_step - STEPS, budget)
    transactions = open_transactions(console, now_us, budget)
    throughput, topics = _throughput(looks, now_step)
    last = slice(-(_MINUTE_US // 1_000_000 // STEP_S), None)
    findings = health(console, looks, began_ms, committed, states, transactions)
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
        findings,
        _mean(throughput.records_per_second[last]),
        _mean(throughput.bytes_per_second[last]),
        throughput,
        topics,
        _groups_behind(console, looks, committed, states, now_us, budget),
        tuple(transactions[:_SHOWN]),
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _throughput(looks: PartitionLooks, now_step: int) -> tuple[Throughput, tuple[TopicRate, ...]]:
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
    looks: PartitionLooks,
    committed: Committed,
    states: Mapping[str, str],
    now_us: int,
    budget: Budget,
) -> tuple[GroupBehind, ...]:
    lags: dict[str, dict[PartitionKey, tuple[int, int]]] = {}
    for group_id, offsets in committed.items():
        for key, offset in offsets.items():
            seen = looks[key].seen if key in looks else None
            if seen is not None:
                lag = Lag.of(offset, seen.log_start_offset, seen.log_end_offset)
                if lag.unread:
                    lags.setdefault(group_id, {})[key] = (lag.unread, lag.first_offset)
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


OVERVIEW = View("/", "Overview", NoParameters, Overview, read_overview, "overview.html")
