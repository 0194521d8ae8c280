"""The idempotent producers that a partition remembers."""

from __future__ import annotations

from collections.abc import Iterable

from spark_log import transaction as txn
from spark_log.admin.cluster_calls import map_partitions, open_log
from spark_log.cluster import Cluster
from spark_log.log import (
    PartitionLog,
    ProducerEntry,
)
from spark_log.record import sequence_after
from spark_log.storage import Store
from spark_log.types import ActiveProducer, PartitionProducerState, TopicPartition


def describe_producers(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, PartitionProducerState]:
    """Return the producers that each partition remembers."""
    wanted = [TopicPartition(*each) for each in partitions]
    image = cluster.image()
    logs = {tp: open_log(cluster, image, tp) for tp in wanted}
    return map_partitions(cluster, image, lambda tp: _describe(logs[tp], cluster.store), wanted)


def _describe(log: PartitionLog, store: Store) -> PartitionProducerState:
    entries = log.producers().entries()
    return PartitionProducerState(
        tuple(_producer(number, entry, store) for number, entry in entries)
    )


def _producer(producer_id: int, entry: ProducerEntry, store: Store) -> ActiveProducer:
    start = entry.first_transaction_offset
    return ActiveProducer(
        producer_id=producer_id,
        producer_epoch=entry.epoch,
        last_sequence=sequence_after(entry.next_sequence, -1) if entry.runs else -1,
        last_timestamp=entry.appended_ms,
        current_transaction_start_offset=-1 if start is None else start,
        transactional_id=None if start is None else txn.find_transactional_id(store, producer_id),
    )
