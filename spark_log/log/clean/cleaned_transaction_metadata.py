"""The transactions of a log that a compaction has to know: open, aborted, or with a marker.

They are found by batch headers alone: a producer's transaction is all its transactional
batches up to its next marker (Kafka's ``ProducerStateManager``, ``TransactionIndex``). Memory is
proportional to the number of open and aborted transactions.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from spark_log.log.segment import SegmentReader
from spark_log.record import BatchHeader, ControlRecordType


class CleanedTransactionMetadata:
    """The transactions of a log, built from its batches in offset order."""

    def __init__(self) -> None:
        """Start without a transaction."""
        self._open: dict[int, int] = {}
        self._aborted: dict[int, tuple[list[int], list[int]]] = {}

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of the first transaction without a marker; None if all have one."""
        return min(self._open.values(), default=None)

    def on_batch_read(self, header: BatchHeader, base_offset: int) -> None:
        """Add the next transactional batch.

        Args:
            header: the batch's header.
            base_offset: the batch's first offset.
        """
        producer_id = header.producer_id
        if not header.is_control:
            self._open.setdefault(producer_id, base_offset)
        else:
            first_offset = self._open.pop(producer_id, None)
            if header.marker is ControlRecordType.ABORT and first_offset is not None:
                firsts, markers = self._aborted.setdefault(producer_id, ([], []))
                firsts.append(first_offset)
                markers.append(base_offset)

    def is_aborted(self, header: BatchHeader, base_offset: int) -> bool:
        """Return whether a batch belongs to an aborted transaction.

        Args:
            header: the batch's header.
            base_offset: the batch's first offset.
        """
        if header.is_control or not header.is_transactional:
            return False
        firsts, markers = self._aborted.get(header.producer_id, ((), ()))
        at = bisect_right(firsts, base_offset) - 1
        return at >= 0 and base_offset < markers[at]


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

        A control batch that is not a marker is always retained, one without records never. For a
        batch of user records the result is False.
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
) -> tuple[CleanedTransactionMetadata, list[int]]:
    """Read the transactions of segments, from their batch headers.

    Args:
        segments: for each segment its first offset to read, and its reader.
        following: the segments that follow; read only while a transaction has no marker.

    Returns:
        The transactions; and the number of rows in each of ``segments``.

    Raises:
        CorruptRecordError: a segment is damaged.
    """
    transactions = CleanedTransactionMetadata()
    row_counts = [
        _read_segment(transactions, start_offset, reader) for start_offset, reader in segments
    ]
    if transactions.first_unstable_offset is not None:
        for start_offset, reader in following:
            _read_segment(transactions, start_offset, reader)
            if transactions.first_unstable_offset is None:
                break
    return transactions, row_counts


def _read_segment(
    transactions: CleanedTransactionMetadata, start_offset: int, reader: SegmentReader
) -> int:
    row_count = 0
    for _, headers in reader.all_headers():
        for header in headers:
            row_count += header.record_count
            last_offset = reader.base_offset + header.last_offset_delta
            if header.is_transactional and last_offset >= start_offset:
                transactions.on_batch_read(header, reader.base_offset + header.base_offset_delta)
    reader.forget()
    return row_count
