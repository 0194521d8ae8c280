"""By what the log knows an idempotent producer's appends (KIP-98, KIP-360)."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Final

from spark_log.log import ProducerAppend
from spark_log.metadata import Cluster
from spark_log.producer.topic_route import PartitionQueue

_MAX_EPOCH: Final = 2**15 - 1


@dataclass(frozen=True, slots=True)
class ProducerIdAndEpoch:
    """A producer id and an epoch that somebody else handed out, instead of a new id."""

    producer_id: int
    producer_epoch: int


class ProducerIdentity:
    """One producer's id, and its epoch and next sequence number in each partition.

    Ids are never handed out twice, so nobody else can have this one's, unless it was given. The
    epoch is each partition's own: what the log of one partition knows of a producer does not
    concern the others, and a producer whose appends in one partition have an unknown outcome goes
    on in the others as it is.
    """

    def __init__(
        self, cluster: Cluster, *, is_idempotent: bool, given: ProducerIdAndEpoch | None
    ) -> None:
        """Touches nothing; the id is taken with the first append."""
        self.is_idempotent = is_idempotent
        self.first_epoch = 0 if given is None else given.producer_epoch
        self._cluster = cluster
        self._lock = threading.Lock()
        self._producer_id = None if given is None else given.producer_id
        self._replaced: dict[tuple[str, int], int] = {}

    @property
    def producer_id(self) -> int | None:
        """The id, None before the first append."""
        return self._producer_id

    def next_append(self, queue: PartitionQueue) -> ProducerAppend:
        """Return the identity of a busy queue's next append.

        Raises:
            StorageError, UnknownOutcomeError: no id could be taken; nothing was appended.
        """
        if queue.epoch > _MAX_EPOCH:  # as `bumpIdempotentProducerEpoch`: another id, from 0
            place = (queue.route.topic.topic_id, queue.partition)
            self._replaced[place] = self._cluster.producer_ids.next_id()
            queue.epoch = queue.sequence = 0
        return ProducerAppend(self._id_in(queue), queue.epoch, queue.sequence)

    def bump_epoch(self, queue: PartitionQueue) -> None:
        """Fence what this producer may still have under way in a partition."""
        queue.epoch += 1
        queue.sequence = 0

    def _id_in(self, queue: PartitionQueue) -> int:
        replaced = self._replaced.get((queue.route.topic.topic_id, queue.partition))
        if replaced is not None:
            return replaced
        if self._producer_id is None:
            with self._lock:
                if self._producer_id is None:
                    self._producer_id = self._cluster.producer_ids.next_id()
        return self._producer_id
