"""Topics as tables and as JSON documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from spark_log.cli.format.output import print_table, print_text
from spark_log.types import PartitionDescription, StripeDescription, TopicDescription

_REPLICA_COLUMNS: Final = ("Partition", "Leader", "Replicas", "Isr", "Elr", "Offline")


def print_topic(topic: TopicDescription) -> None:
    """Print a topic, and a table of its partitions."""
    configs = ",".join(f"{key}={value}" for key, value in sorted(topic.configs.items()))
    print_text(
        f"Topic: {topic.name}  TopicId: {topic.topic_id}  "
        f"PartitionCount: {len(topic.partitions)}  "
        f"ReplicationFactor: {_replication_factor(topic)}  Configs: {configs}".rstrip()
    )
    rows = [
        [
            *_replica_cells(partition),
            *map(
                _known,
                (
                    partition.log_start_offset,
                    partition.log_end_offset,
                    partition.segments,
                    partition.size_bytes,
                ),
            ),
        ]
        for partition in topic.partitions
    ]
    print_table([*_REPLICA_COLUMNS, "Start", "End", "Segments", "Bytes"], rows)
    if topic.stripes:
        print_text("")
        print_table(
            ["Stripe", "Newest object", "Home", "Objects", "Bytes", "Behind"],
            [
                [
                    each.stripe,
                    _known(each.end_number - 1),
                    each.home_number,
                    each.objects,
                    each.behind_bytes,
                    f"{each.behind_ms / 1000:.1f} s",
                ]
                for each in topic.stripes
            ],
        )


def print_partitions(partitions: Sequence[tuple[TopicDescription, PartitionDescription]]) -> None:
    """Print a table of partitions of any topics, without offsets; nothing if it is empty."""
    if partitions:
        rows = [[topic.name, *_replica_cells(partition)] for topic, partition in partitions]
        print_table(["Topic", *_REPLICA_COLUMNS], rows)


def topic_document(topic: TopicDescription) -> dict[str, object]:
    """Return a topic and its partitions as a JSON document."""
    return {
        "topic": topic.name,
        "topic_id": topic.topic_id,
        "partition_count": len(topic.partitions),
        "replication_factor": _replication_factor(topic),
        "configs": dict(topic.configs),
        "partitions": [
            {
                **_replica_document(partition),
                "log_start_offset": _known(partition.log_start_offset),
                "log_end_offset": _known(partition.log_end_offset),
                "segments": _known(partition.segments),
                "size_bytes": _known(partition.size_bytes),
            }
            for partition in topic.partitions
        ],
        "stripes": [_stripe_document(each) for each in topic.stripes],
    }


def partition_document(
    topic: TopicDescription, partition: PartitionDescription
) -> dict[str, object]:
    """Return a partition, without offsets, as a JSON document."""
    return {"topic": topic.name, **_replica_document(partition)}


def _stripe_document(stripe: StripeDescription) -> dict[str, object]:
    return {
        "stripe": stripe.stripe,
        "path": stripe.path,
        "newest_object": _known(stripe.end_number - 1),
        "home_number": stripe.home_number,
        "objects": stripe.objects,
        "behind_bytes": stripe.behind_bytes,
        "behind_ms": stripe.behind_ms,
        "files": stripe.files,
        "size_bytes": stripe.size_bytes,
    }


def _replica_cells(partition: PartitionDescription) -> list[object]:
    brokers = (
        partition.replicas,
        partition.isr,
        partition.eligible_leader_replicas,
        partition.offline_replicas,
    )
    leader = "none" if partition.leader == -1 else partition.leader
    return [partition.partition, leader, *(",".join(map(str, ids)) for ids in brokers)]


def _replica_document(partition: PartitionDescription) -> dict[str, object]:
    return {
        "partition": partition.partition,
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
        "elr": list(partition.eligible_leader_replicas),
        "last_known_elr": list(partition.last_known_elr),
        "offline_replicas": list(partition.offline_replicas),
        "adding_replicas": list(partition.adding_replicas),
        "removing_replicas": list(partition.removing_replicas),
        "min_insync_replicas": partition.min_insync_replicas,
    }


def _replication_factor(topic: TopicDescription) -> int:
    return max(
        (len(each.replicas) - len(each.adding_replicas) for each in topic.partitions), default=0
    )


def _known(number: int) -> int | None:
    return None if number == -1 else number
