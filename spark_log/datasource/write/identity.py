"""Who writes: by this a write's records are known when they come again (ADR 8)."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

FIRST_DERIVED_ID: Final = 2**62
"""Derived producer ids begin here; those that `metadata.producer_ids` hands out stay below."""

_EPOCHS: Final = 2**15
"""Epochs of one producer id: as many batches share it, each newer one fencing the older."""


@dataclass(frozen=True, slots=True)
class WriteIdentity:
    """A task's share of a batch write or of a micro-batch.

    The same for every attempt at it and for a micro-batch that is run again by another process:
    nothing in it is drawn by who runs it, and nobody is asked.

    Attributes:
        write: the streaming query's id, which its checkpoint keeps, or a batch write's own.
        batch_id: of the micro-batch, from 0; 0 for a batch write.
        task: the sink partition: which part of the DataFrame the task writes.
        is_stream: so that a query and a batch write never share an identity.
    """

    write: str
    batch_id: int
    task: int
    is_stream: bool

    def producer_id(self, topic_id: str, partition: int) -> int:
        """Return the id under which it writes to a partition: from 2**62 up, below 2**63.

        A hash, so two may share an id: a million producers on one partition with a probability of
        1 to 9 million.
        """
        kind = "stream" if self.is_stream else "batch"
        lap = self.batch_id // _EPOCHS
        text = "\0".join(map(str, (kind, self.write, lap, self.task, topic_id, partition)))
        digest = blake2b(text.encode(), digest_size=8, person=b"spark-log write").digest()
        return FIRST_DERIVED_ID | int.from_bytes(digest, "big") % FIRST_DERIVED_ID

    @property
    def producer_epoch(self) -> int:
        """The epoch in which it writes: it rises from micro-batch to micro-batch."""
        return self.batch_id % _EPOCHS
