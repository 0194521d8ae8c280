"""`Admin` methods for producers: describes the idempotent producers that a partition remembers."""

from __future__ import annotations

from collections.abc import Iterable

from spark_log import transaction as txn
from spark_log.admin.cluster_access import ClusterAccess, limited
from spark_log.log import PartitionLog, ProducerEntry
from spark_log.record import sequence_after
from spark_log.storage import Store
from spark_log.types import ActiveProducer, PartitionProducerState, TopicPartition


class ProducerOperations(ClusterAccess):
    """Describes producers."""

    @limited
    def describe_producers(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, PartitionProducerState]:
        """Describe the idempotent producers of partitions (KIP-664).

        Args:
            partitions: the partitions.

        Returns:
            The producers that each partition remembers. A producer that has not appended for
            ``producer.id.expiration.ms`` may be among them until it is forgotten.

        Raises:
            UnknownTopicOrPartitionError: a topic or partition does not exist.
            CorruptRecordError: a segment is damaged or missing.
        """
        wanted = [TopicPartition(*each) for each in partitions]
        image = self._cluster().image()
        logs = {tp: self._log(image, tp) for tp in wanted}
        store = self._cluster().store
        states = self._map_partitions(lambda tp: _describe(logs[tp], store), wanted, image.topic)
        return dict(zip(wanted, states, strict=True))


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
