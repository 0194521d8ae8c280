"""The overview: health, throughput, and groups that lag.

One view reads the metadata, the committed offsets, the states of groups, and makes a bounded number
of listings and reads: `MAX_LISTED`, `MAX_TRANSACTIONS` and `_MAX_TIMES`. In a large cluster each
view lists other partitions, and shows earlier observations of the rest.
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
from spark_log.console.views.health import HealthNotice, health
from spark_log.console.views.open_transactions import OpenTransactionRow, open_transactions
from spark_log.console.views.partition_observations import (
    Committed,
    PartitionObservations,
    observe_partitions,
)
from spark_log.coordinator import OffsetsTable, PartitionKey
from spark_log.log import Lag, first_unread_us

_MAX_TIMES: Final = 4
"""Maximum number of partitions of each shown group whose first unread record is read."""
_SHOWN: Final = 6
"""Maximum number of topics, groups and transactions that are shown."""
_MINUTE_US: Final = 60_000_000


@dataclass(frozen=True, slots=True)
class Throughput:
    """The appends to all topics in the last half hour, by the dates of segments.

    Attributes:
        step_s: the length of a step in seconds. Each number is the mean of a step.
        times_us: the start of each step, in microseconds since the epoch.
        records_per_second: the number of offsets appended per second.
        bytes_per_second: the bytes of their segments per second, of one replica.
    """

    step_s: int
    times_us: tuple[int, ...]
    records_per_second: tuple[float, ...]
    bytes_per_second: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class TopicRate:
    """The appends to a topic, as the mean of the last minute.

    Attributes:
        name: the topic's name.
        records_per_second: the number of offsets appended per second.
        bytes_per_second: the bytes of their segments per second, of one replica.
    """

    name: str
    records_per_second: float
    bytes_per_second: float


@dataclass(frozen=True, slots=True)
class GroupBehind:
    """A group with unread records.

    Attributes:
        group_id: the group's id.
        state: one of `spark_log.coordinator.GROUP_STATES`.
        lag: the number of unread records in the partitions that were listed.
        lag_ms: the age of the oldest unread record in the partitions that were read; None if
            unknown.
    """

    group_id: str
    state: str
    lag: int
    lag_ms: int | None


@dataclass(frozen=True, slots=True)
class OverviewPage:
    """The cluster at a glance.

    Attributes:
        root: the URL of the root, without credentials.
        cluster_id: the id of the cluster.
        version: the version of spark-log.
        brokers: the number of brokers.
        topics: the number of topics.
        partitions: the number of partitions.
        partitions_seen: the number of partitions that this view or an earlier one has listed. The
            numbers below are sums of these partitions.
        oldest_look_ms: the age of the oldest of these listings; 0 without one.
        groups: group state → number of groups.
        findings: the findings about health, the worst first.
        records_per_second: the number of offsets appended per second, in the last minute.
        bytes_per_second: the bytes of their segments per second, of one replica.
        throughput: the same numbers over time.
        busiest_topics: the topics with the most bytes per second, at most `_SHOWN`.
        groups_behind: the groups with the most lag, at most `_SHOWN`.
        open_transactions: the longest open transactions, at most `_SHOWN`.
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
    findings: tuple[HealthNotice, ...]
    records_per_second: float
    bytes_per_second: float
    throughput: Throughput
    busiest_topics: tuple[TopicRate, ...]
    groups_behind: tuple[GroupBehind, ...]
    open_transactions: tuple[OpenTransactionRow, ...]


def read_overview(console: Console, _: NoParameters, budget: Budget) -> OverviewPage:
    """Read the metadata, the states of groups, and a bounded number of partitions."""
    clock, cluster = console.cluster.clock, console.cluster
    began_ms = clock.monotonic_ms()
    image = cluster.image()
    states = {each.group_id: each.group_state for each in console.admin.list_groups()}
    budget.check()
    # Read committed offsets first: a log end that is read later is never before them.
    committed = {
        group_id: {key: each.offset for key, each in positions.items()}
        for group_id, positions in OffsetsTable(cluster).all_committed_offsets().items()
    }
    budget.check()
    now_us = clock.time_us()  # wall clock: only shown
    now_step = step_of(now_us)
    observations = observe_partitions(console, image, committed, now_step - STEPS, budget)
    transactions = open_transactions(console, now_us, budget)
    throughput, topics = _throughput(observations, now_step)
    last = slice(-(_MINUTE_US // 1_000_000 // STEP_S), None)
    findings = health(console, observations, began_ms, committed, states, transactions)
    oldest_ms = min((each.observed_ms for each in observations.values()), default=began_ms)
    return OverviewPage(
        cluster.root,
        cluster.cluster_id,
        __version__,
        sum(1 for _ in image.brokers()),
        sum(1 for _ in image.topics()),
        sum(topic.num_partitions for topic in image.topics()),
        len(observations),
        max(0, int(began_ms - oldest_ms)),
        {state: list(states.values()).count(state) for state in sorted(set(states.values()))},
        findings,
        _mean(throughput.records_per_second[last]),
        _mean(throughput.bytes_per_second[last]),
        throughput,
        topics,
        _groups_behind(console, observations, committed, states, now_us, budget),
        tuple(transactions[:_SHOWN]),
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _throughput(
    observations: PartitionObservations, now_step: int
) -> tuple[Throughput, tuple[TopicRate, ...]]:
    """Return the appends to all topics, and to the topics with the most bytes per second.

    The present quarter minute is left out, because it has not ended.
    """
    steps = range(now_step - STEPS, now_step)
    last = steps[-(_MINUTE_US // 1_000_000 // STEP_S) :]
    records: defaultdict[int, float] = defaultdict(float)
    size_bytes: defaultdict[int, float] = defaultdict(float)
    topics: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for key, observation in observations.items():
        if observation.seen is None:
            continue
        for step, amount in observation.seen.records.items():
            records[step] += amount
            size_bytes[step] += observation.seen.size_bytes[step]
        for step in last:
            topics[key.topic][0] += observation.seen.records.get(step, 0.0)
            topics[key.topic][1] += observation.seen.size_bytes.get(step, 0.0)
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
    observations: PartitionObservations,
    committed: Committed,
    states: Mapping[str, str],
    now_us: int,
    budget: Budget,
) -> tuple[GroupBehind, ...]:
    lags: dict[str, dict[PartitionKey, tuple[int, int]]] = {}
    for group_id, offsets in committed.items():
        for key, offset in offsets.items():
            seen = observations[key].seen if key in observations else None
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


OVERVIEW = View("/", "Overview", NoParameters, OverviewPage, read_overview, "overview.html")
