"""Producer ids: unique in a cluster, handed out in blocks (Kafka's ``ProducerIdControlManager``).

A block is taken by one record in the metadata log, so that no id is ever handed out twice, whoever
takes blocks at once. What a process does not use of its block is lost, and nobody misses it.
"""

from __future__ import annotations

import threading

from spark_log.metadata.image import MetadataImage
from spark_log.metadata.metadata_log import MetadataLog
from spark_log.metadata.records import MetadataRecord, ProducerIdsRecord

BLOCK_SIZE = 1000
"""Ids of one block (``ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE``)."""


class ProducerIds:
    """Hands out producer ids to one process. Safe to use from several threads."""

    def __init__(self, metadata: MetadataLog) -> None:
        """Args: metadata: the log that blocks are taken from."""
        self._metadata = metadata
        self._lock = threading.Lock()
        self._block = iter(range(0))

    def next_id(self) -> int:
        """Return an id that nobody else has or gets; takes a block now and then.

        Raises:
            UnknownOutcomeError: whether a block was taken could not be found out; try again.
            StorageError: the metadata log does not answer.
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
