"""The transaction markers that a compaction retains, and the transactions of its segments."""

from __future__ import annotations

from collections.abc import Iterable

from spark_log.log.producers import TransactionIndex
from spark_log.log.segment import SegmentReader
from spark_log.record import BatchHeader


class RetainedMarkers:
    """Decides which transaction markers a compaction must retain.

    A marker is retained while the log has a batch of its transaction. Call `must_retain` for all
    batches of the log in offset order.
    """

    def __init__(self) -> None:
        """Start without an open transaction."""
        self._with_batches: set[int] = set()

    def must_retain(self, header: BatchHeader) -> bool:
        """Add the next batch; return whether it is a marker that must be retained.

        For a batch without records, or with user records, the result is False. For a control batch
        that is not a marker it is True.
        """
        if not header.is_control:
            if header.is_transactional:
                self._with_batches.add(header.producer_id)
            return False
        if not header.record_count:
            return False
        if header.marker is None:
            return True
        must_retain = header.producer_id in self._with_batches
        self._with_batches.discard(header.producer_id)
        return must_retain


def read_transactions(
    segments: Iterable[tuple[int, SegmentReader]], following: Iterable[tuple[int, SegmentReader]]
) -> tuple[TransactionIndex, list[int]]:
    """Read the transactions of segments, from their batch headers.

    Args:
        segments: the first offset to read in each segment, and the segment's reader.
        following: the segments after these; read only while a transaction has no marker.

    Returns:
        The transactions; and the number of rows in each of ``segments``.

    Raises:
        CorruptRecordError: a segment is damaged.
    """
    transactions = TransactionIndex()
    row_counts = [
        _read_segment(transactions, start_offset, reader) for start_offset, reader in segments
    ]
    if transactions.first_open is not None:
        for start_offset, reader in following:
            _read_segment(transactions, start_offset, reader)
            if transactions.first_open is None:
                break
    return transactions, row_counts


def _read_segment(transactions: TransactionIndex, start_offset: int, reader: SegmentReader) -> int:
    row_count = 0
    for _, headers in reader.all_headers():
        for header in headers:
            row_count += header.record_count
            last_offset = reader.base_offset + header.last_offset_delta
            if header.is_transactional and last_offset >= start_offset:
                transactions.on_batch(header, reader.base_offset + header.base_offset_delta)
    reader.forget()
    return row_count
