"""The transactions of a log that a compaction has to know: open, aborted, or with a marker.

They are found by batch headers and markers alone: a producer's transaction is all its transactional
batches up to its next marker (Kafka's ``ProducerStateManager``, ``TransactionIndex``). Memory is
proportional to the number of open and aborted transactions.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

import pyarrow as pa

from spark_log.log.segment import SegmentReader
from spark_log.record import NO_PRODUCER_ID, BatchHeader, ControlRecordType


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

    def on_batch_read(
        self, header: BatchHeader, base_offset: int, marker: ControlRecordType | None
    ) -> None:
        """Add the next batch. Batches that are not transactional may be left out.

        Args:
            header: the batch's header.
            base_offset: the batch's first offset.
            marker: the type of the marker, if the batch is one (`marker_of`).
        """
        producer_id = header.producer_id
        if not header.is_control:
            self._open.setdefault(producer_id, base_offset)
        elif marker is not None:
            first_offset = self._open.pop(producer_id, None)
            if marker is ControlRecordType.ABORT and first_offset is not None:
                firsts, markers = self._aborted.setdefault(producer_id, ([], []))
                firsts.append(first_offset)
                markers.append(base_offset)

    def is_aborted(self, header: BatchHeader, base_offset: int) -> bool:
        """Return whether a batch belongs to an aborted transaction.

        Args:
            header: the batch's header.
            base_offset: the batch's first offset.
        """
        if header.is_control or not is_transactional(header):
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

    def must_retain(self, header: BatchHeader, records: pa.RecordBatch) -> bool:
        """Add the next batch; return whether it is a marker that must be retained.

        A control batch that is not a marker is always retained, one without records never. For a
        batch of user records the result is False.

        Args:
            header: the batch's header.
            records: the rows of a control batch; ignored for other batches.
        """
        if not header.is_control:
            if is_transactional(header):
                self._with_batches.add(header.producer_id)
            return False
        if not header.record_count:
            return False
        if marker_of(header, records) is None:
            return True
        must_retain = header.producer_id in self._with_batches
        self._with_batches.discard(header.producer_id)
        return must_retain


def read_transactions(
    segments: Iterable[tuple[int, SegmentReader]], following: Iterable[tuple[int, SegmentReader]]
) -> tuple[CleanedTransactionMetadata, list[int]]:
    """Read the transactions of segments: all headers, and the batches that have markers.

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
    for ordinal, (_, headers) in enumerate(reader.all_headers()):
        row_count += sum(header.record_count for header in headers)
        if not any(map(is_transactional, headers)):
            continue
        # Records are read only if the Arrow batch has a marker.
        has_markers = any(header.is_control for header in headers)
        records, row = reader.read_batch(ordinal)[1] if has_markers else None, 0
        for header in headers:
            rows = None if records is None else records.slice(row, header.record_count)
            row += header.record_count
            last_offset = reader.base_offset + header.last_offset_delta
            if is_transactional(header) and last_offset >= start_offset:
                base_offset = reader.base_offset + header.base_offset_delta
                marker = None if rows is None else marker_of(header, rows)
                transactions.on_batch_read(header, base_offset, marker)
    reader.forget()
    return row_count


def is_transactional(header: BatchHeader) -> bool:
    """Return whether a batch belongs to a transaction. A marker does too."""
    return bool(header.attributes & header.TRANSACTIONAL_BIT) and (
        header.producer_id != NO_PRODUCER_ID
    )


def marker_of(header: BatchHeader, records: pa.RecordBatch) -> ControlRecordType | None:
    """Return the type of a control batch's marker; None if the batch is not a marker."""
    if not (header.is_control and header.record_count and is_transactional(header)):
        return None
    return ControlRecordType.of_key(records.column("key")[0].as_py())
