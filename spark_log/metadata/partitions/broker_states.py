"""Changes of partitions that follow when brokers are fenced or unfenced, or configs change.

The functions are for `MetadataLog.commit`. It appends their records together with the records of
the cause: those of `fence_broker_records`, or the records of configs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from spark_log.log.chain import NO_LEADER
from spark_log.metadata.image import MetadataImage
from spark_log.metadata.partitions.partition_change_builder import (
    PartitionChangeBuilder,
    unfenced_brokers,
)
from spark_log.metadata.records import ConfigRecord, MetadataRecord

_DECIDING = frozenset(("min.insync.replicas", "unclean.leader.election.enable"))
"""Configs that elections depend on."""


def on_broker_fenced(image: MetadataImage, broker_id: int) -> list[MetadataRecord]:
    """Return the changes of the partitions that a broker leads, is in sync with or joins.

    The broker leaves each of them, and another replica leads: an in-sync or eligible one, else any
    that may lead if ``unclean.leader.election.enable`` is true.

    Args:
        image: the metadata before the broker is fenced.
        broker_id: the broker.
    """
    records: list[MetadataRecord] = []
    for builder in _builders(image, unfenced_brokers(image) - {broker_id}):
        before = builder.partition
        if broker_id in (*before.isr, *before.joining):
            changes = {
                "isr": tuple(broker for broker in before.isr if broker != broker_id),
                "joining": tuple(broker for broker in before.joining if broker != broker_id),
            }
            records += builder.build(before.model_copy(update=changes), builder.election)
    return records


def on_broker_unfenced(image: MetadataImage, broker_id: int) -> list[MetadataRecord]:
    """Return the changes of the partitions without a leader that get one now.

    Args:
        image: the metadata before the broker is unfenced.
        broker_id: the broker.
    """
    records: list[MetadataRecord] = []
    for builder in _builders(image, unfenced_brokers(image) | {broker_id}):
        if builder.partition.leader == NO_LEADER:
            records += builder.build(builder.partition, builder.election)
    return records


def on_configs_altered(
    image: MetadataImage, records: Sequence[ConfigRecord]
) -> list[MetadataRecord]:
    """Return the changes of partitions that follow from a change of configs.

    - A lower ``min.insync.replicas`` may be reached. Then new records are acknowledged that
      eligible replicas do not have, so these are not eligible any more.
    - With ``unclean.leader.election.enable`` a partition without a leader may get one.

    Args:
        image: the metadata before the configs change.
        records: the changes of configs.
    """
    if _DECIDING.isdisjoint(record.name for record in records):
        return []
    altered = image.after(records)
    changes: list[MetadataRecord] = []
    for builder in _builders(altered, unfenced_brokers(image)):
        if builder.partition.eligible_leader_replicas or builder.partition.leader == NO_LEADER:
            changes += builder.build(builder.partition, builder.election)
    return changes


def _builders(image: MetadataImage, can_lead: Iterable[int]) -> Iterator[PartitionChangeBuilder]:
    brokers = frozenset(can_lead)
    for topic in image.topics():
        config = topic.config()
        for partition in topic.partitions.values():
            yield PartitionChangeBuilder(topic.name, config, partition, brokers)
