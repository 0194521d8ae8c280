"""Producer ids: unique in a cluster, allocated in blocks (Kafka's ``ProducerIdControlManager``).

One record in the metadata log allocates a block, so that no id is allocated twice. Ids of a block
that its process does not use are lost, which is harmless.
"""

from __future__ import annotations

import threading

from spark_log.metadata.image import MetadataImage
from spark_log.metadata.metadata_log import MetadataLog
from spark_log.metadata.records import MetadataRecord, ProducerIdsRecord

BLOCK_SIZE = 1000
"""Number of ids in a block (``ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE``)."""


class ProducerIds:
    """Allocates producer ids for one process. Safe to use from several threads."""

    def __init__(self, metadata: MetadataLog) -> None:
        """Return an allocator.

        Args:
            metadata: the log that blocks are allocated in.
        """
        self._metadata = metadata
        self._lock = threading.Lock()
        self._block = iter(range(0))

    def next_id(self) -> int:
        """Return an id that no other producer has; allocates a block when the last one is used up.

        Raises:
            UnknownOutcomeError: it is not known whether a block was allocated; try again.
            StorageError: the metadata log cannot be read or written.
        """
        with self._lock:
            producer_id = next(self._block, None)
            if producer_id is None:
                self._block = iter(self._take_block())
                producer_id = next(self._block)
            return producer_id

    def _take_block(self) -> range:
        block = range(0)

        def decide(image: MetadataImage) -> list[MetadataRecord]:
            nonlocal block
            block = range(image.next_producer_id, image.next_producer_id + BLOCK_SIZE)
            return [ProducerIdsRecord(next_producer_id=block.stop)]

        self._metadata.commit(decide)
        return block
