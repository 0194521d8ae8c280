"""Producer ids: allocated in blocks (Kafka's ``ProducerIdControlManager``), or random.

One record in the metadata log allocates a block, so that no id is allocated twice. Ids of a block
that its process does not use are lost, which is harmless. Transactional ids need allocated producer
ids: each has a file of its own. The id of any other idempotent producer is random. A random id
costs no request, and adds no record to the metadata log for each process that sends.
"""

from __future__ import annotations

import os
import threading
from typing import Final

from spark_log.metadata.image import MetadataImage
from spark_log.metadata.metadata_log import MetadataLog
from spark_log.metadata.records import MetadataRecord, ProducerIdsRecord

BLOCK_SIZE = 1000
"""Number of ids in a block (``ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE``)."""

FIRST_DERIVED_ID: Final = 2**62
"""The lowest id that is random or derived from a Spark write. `ProducerIds` allocates smaller
ids."""


def random_producer_id() -> int:
    """Return a random producer id, from `FIRST_DERIVED_ID` to 2**63 - 1.

    Two producers may get the same id: with a million producers that append to one partition
    within ``producer.id.expiration.ms``, the probability is 1 to 9 million (docs/adr/0008).
    """
    return FIRST_DERIVED_ID | int.from_bytes(os.urandom(8), "big") % FIRST_DERIVED_ID


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
