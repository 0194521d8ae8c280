"""The identity of a write: records that are written again are detected by it (ADR 8)."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from spark_log.metadata import FIRST_DERIVED_ID

_EPOCHS: Final = 2**15
"""Number of epochs of one producer id. Each micro-batch has an epoch, which fences earlier ones."""


@dataclass(frozen=True, slots=True)
class WriteIdentity:
    """The identity of one task of a batch write or of a micro-batch.

    Every attempt of the task has the same identity, also if another process runs the micro-batch
    again: nothing in it is random or allocated.

    Attributes:
        write: the streaming query's id, which is in its checkpoint, or the id of a batch write.
        batch_id: number of the micro-batch, from 0; 0 or ``txnVersion`` for a batch write.
        task: number of the sink partition that the task writes.
        is_stream: keeps identities of queries and batch writes apart.
    """

    write: str
    batch_id: int
    task: int
    is_stream: bool

    def transactional_id(self, topic: str | None) -> str:
        """Return the ``transactional.id`` of a transactional write.

        Args:
            topic: the option ``topic``; None if a column contains the topics.
        """
        return f"spark-{self.write}-{topic or '*'}"

    def producer_id(self, topic_id: str, partition: int) -> int:
        """Return the producer id for a partition: from 2**62 to 2**63 - 1.

        It is a hash, so two writes may have the same id: with a million producers on one partition
        the probability is 1 to 9 million.
        """
        kind = "stream" if self.is_stream else "batch"
        lap = self.batch_id // _EPOCHS
        text = "\0".join(map(str, (kind, self.write, lap, self.task, topic_id, partition)))
        digest = blake2b(text.encode(), digest_size=8, person=b"spark-log write").digest()
        return FIRST_DERIVED_ID | int.from_bytes(digest, "big") % FIRST_DERIVED_ID

    @property
    def producer_epoch(self) -> int:
        """The producer epoch, which increases from micro-batch to micro-batch."""
        return self.batch_id % _EPOCHS
