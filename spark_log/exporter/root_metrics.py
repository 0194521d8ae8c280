"""A sample of a root in Prometheus' text format, with kafka_exporter's names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Final

from spark_log.admin import OffsetsSample, PartitionSample, partition_keys
from spark_log.metadata import PartitionRecord
from spark_log.metrics import MetricDefinition, definitions, label_text, metric_lines
from spark_log.types import GroupDescription

_Samples = Iterable[tuple[str, float]]


def root_metrics(sample: OffsetsSample, cluster_name: str) -> Iterator[str]:
    """Yield the lines of all metrics of a sample.

    Args:
        sample: the sample, with members and lag in time.
        cluster_name: the label ``cluster_name`` of `definitions.GROUP_LAG_SECONDS`.
    """
    brokers = sample.brokers
    values: dict[MetricDefinition, _Samples] = {
        definitions.BROKERS: [("", sum(not each.fenced for each in brokers))],
        definitions.BROKER_INFO: [
            (label_text(("id", "address"), (str(each.broker_id), each.root)), 1) for each in brokers
        ],
        definitions.TOPIC_PARTITIONS: [
            (label_text(("topic",), (topic.name,)), topic.num_partitions) for topic in sample.topics
        ],
        **_of_partitions(sample),
        **_of_groups(sample),
        definitions.GROUP_LAG_SECONDS: _lag_seconds(sample, cluster_name),
        **_of_tables(sample),
        **_of_stripes(sample),
        definitions.UNREADABLE_PARTITIONS: [
            ("", sum(topic.num_partitions for topic in sample.topics) - len(sample.partitions))
        ],
    }
    for definition, samples in values.items():
        yield from metric_lines(definition, samples)


def _of_partitions(sample: OffsetsSample) -> dict[MetricDefinition, _Samples]:
    # The labels of a partition are in nine metrics, so their text is built once.
    read: list[tuple[str, PartitionSample]] = []
    states: list[tuple[str, PartitionRecord]] = []
    for topic in sample.topics:
        prefix = label_text(("topic",), (topic.name,))[:-1]
        for key in partition_keys(topic):
            labels = f'{prefix},partition="{key.partition}"}}'
            states.append((labels, topic.partitions[key.partition]))
            if key in sample.partitions:
                read.append((labels, sample.partitions[key]))
    return {
        definitions.CURRENT_OFFSET: [(labels, each.log_end_offset) for labels, each in read],
        definitions.OLDEST_OFFSET: [(labels, each.log_start_offset) for labels, each in read],
        definitions.PARTITION_SIZE: [(labels, each.size_bytes) for labels, each in read],
        definitions.LEADER: [(labels, each.leader) for labels, each in states],
        definitions.REPLICAS: [(labels, len(each.replicas)) for labels, each in states],
        definitions.IN_SYNC_REPLICA: [(labels, len(each.isr)) for labels, each in states],
        definitions.LEADER_IS_PREFERRED: [
            (labels, int(each.leader == each.replicas[0])) for labels, each in states
        ],
        definitions.UNDER_REPLICATED: [
            (labels, int(len(each.isr) < len(each.replicas))) for labels, each in states
        ],
    }


def _of_tables(sample: OffsetsSample) -> dict[MetricDefinition, _Samples]:
    topics = [
        (label_text(("topic",), (topic,)), table) for topic, table in sorted(sample.tables.items())
    ]
    lags = [
        (f'{labels[:-1]},partition="{key.partition}"}}', found)
        for labels, table in topics
        for key, found in table.lags.items()
    ]
    return {
        definitions.TABLE_VERSION: [(labels, table.version) for labels, table in topics],
        definitions.TABLE_FILES: [(labels, table.files) for labels, table in topics],
        definitions.TABLE_SIZE: [(labels, table.size_bytes) for labels, table in topics],
        definitions.TABLE_LAG: [(labels, found.lag) for labels, found in lags],
        definitions.TABLE_LAG_SECONDS: [
            (labels, found.lag_ms / 1000) for labels, found in lags if found.lag_ms is not None
        ],
    }


def _of_stripes(sample: OffsetsSample) -> dict[MetricDefinition, _Samples]:
    stripes = [
        (label_text(("topic", "stripe"), (topic, str(each.stripe))), each)
        for topic, found in sorted(sample.stripes.items())
        for each in found
    ]
    return {
        definitions.STRIPE_OBJECTS: [(labels, each.objects) for labels, each in stripes],
        definitions.STRIPE_BYTES: [(labels, each.behind_bytes) for labels, each in stripes],
        definitions.STRIPE_SECONDS: [(labels, each.behind_ms / 1000) for labels, each in stripes],
    }


def _of_groups(sample: OffsetsSample) -> dict[MetricDefinition, _Samples]:
    offsets: list[tuple[str, float]] = []
    lags: list[tuple[str, float]] = []
    deleted: list[tuple[str, float]] = []
    offset_sums: dict[str, float] = {}
    lag_sums: dict[str, float] = {}
    for group_id, positions in sample.groups.items():
        for topic, in_topic in groupby(positions.items(), lambda item: item[0].topic):
            labels = label_text(("consumergroup", "topic"), (group_id, topic))
            offset_sums[labels] = lag_sums[labels] = 0
            for key, found in in_topic:
                partition = f'{labels[:-1]},partition="{key.partition}"}}'
                offsets.append((partition, found.offset))
                lags.append((partition, found.lag))
                deleted.append((partition, found.deleted))
                offset_sums[labels] += found.offset
                lag_sums[labels] += found.lag
    members = {group_id: len(each.members) for group_id, each in sample.descriptions.items()}
    return {
        definitions.GROUP_MEMBERS: [
            (label_text(("consumergroup",), (group_id,)), members.get(group_id, 0))
            for group_id in sorted(sample.groups.keys() | members.keys())
            if sample.groups.get(group_id) or members.get(group_id)
        ],
        definitions.GROUP_CURRENT_OFFSET: offsets,
        definitions.GROUP_CURRENT_OFFSET_SUM: offset_sums.items(),
        definitions.GROUP_LAG: lags,
        definitions.GROUP_LAG_SUM: lag_sums.items(),
        definitions.GROUP_DELETED: deleted,
    }


def _lag_seconds(sample: OffsetsSample, cluster_name: str) -> Iterator[tuple[str, float]]:
    names = definitions.GROUP_LAG_SECONDS.labels
    for group_id, positions in sample.groups.items():
        owners = _owner_labels(sample.descriptions.get(group_id))
        for topic, in_topic in groupby(positions.items(), lambda item: item[0].topic):
            place = label_text(names[:3], (cluster_name, group_id, topic))[:-1]
            for key, found in in_topic:
                if found.lag_ms is not None:
                    owner = owners.get((topic, key.partition), _NO_OWNER)
                    labels = f'{place},partition="{key.partition}",{owner}'
                    yield labels, found.lag_ms / 1000


_OWNER: Final = definitions.GROUP_LAG_SECONDS.labels[4:]


def _owner_text(host: str, member_id: str, client_id: str) -> str:
    """Return the last labels of a lag in seconds: those of the member that has the partition."""
    return label_text(_OWNER, (host, member_id, client_id))[1:]


_NO_OWNER: Final = _owner_text("", "", "")


def _owner_labels(description: GroupDescription | None) -> Mapping[tuple[str, int], str]:
    found: dict[tuple[str, int], str] = {}
    for member in () if description is None else description.members:
        text = _owner_text(member.client_host, member.member_id, member.client_id)
        found |= dict.fromkeys((*member.revoking, *member.assignment), text)
    return found
