"""The delete horizons of a compacted log: when tombstones and markers may go (KIP-534)."""

from __future__ import annotations

from dataclasses import dataclass

from spark_log.record import BatchHeader


@dataclass(frozen=True, slots=True)
class DeleteHorizons:
    """Decides which delete horizons of batches have passed, for one compaction.

    A horizon counts only before the first dirty offset, where compactions have removed the records
    that the tombstones deleted, and those of the marker's transaction.

    Attributes:
        first_dirty_offset: the offset before which each key already had only one record.
        now_us: the storage's time, or earlier, microseconds since the epoch. Tombstones whose
            delete horizon is before it are removed.
        new_us: the delete horizon of tombstones and markers that have none, or none that counts.
    """

    first_dirty_offset: int
    now_us: int
    new_us: int

    def is_clean(self, header: BatchHeader, base_offset: int) -> bool:
        """Return whether a batch lies before the first dirty offset.

        Args:
            header: the header of the batch.
            base_offset: the offset that the header's deltas are relative to.
        """
        return base_offset + header.last_offset_delta < self.first_dirty_offset

    def has_passed(self, header: BatchHeader, base_offset: int) -> bool:
        """Return whether the delete horizon of a batch's tombstones, or of a marker, has passed."""
        return (
            has_horizon(header)
            and header.base_timestamp_us <= self.now_us
            and self.is_clean(header, base_offset)
        )

    def next_us(self, header: BatchHeader, base_offset: int) -> int:
        """Return the delete horizon of a batch after this compaction: the same one if it counts."""
        is_known = has_horizon(header) and self.is_clean(header, base_offset)
        return header.base_timestamp_us if is_known else self.new_us


def has_horizon(header: BatchHeader) -> bool:
    """Return whether a batch has a delete horizon; it is then in ``base_timestamp_us``."""
    return bool(header.attributes & header.DELETE_HORIZON_BIT)
