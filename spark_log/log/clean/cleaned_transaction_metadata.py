"""Which transactions of a log are decided, and how: what a compaction has to know of them.

Told by headers and markers alone: a transaction of a producer is all its transactional batches up
to the next marker of this producer (Kafka's ``ProducerStateManager``, ``TransactionIndex``). Memory
is that of the aborted ones of which something is left, and of those that are open.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

import pyarrow as pa

from spark_log.log.segment.reader import SegmentReader
from spark_log.record.batch_header import NO_PRODUCER_ID, BatchHeader
from spark_log.record.control_record import ControlRecordType


class CleanedTransactionMetadata:
    """Takes in the batches of a log in offset order; then tells which are aborted."""

    def __init__(self) -> None:
        self._open: dict[int, int] = {}
        self._aborted: dict[int, tuple[list[int], list[int]]] = {}

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the first transaction begins that has no marker yet; None without one."""
        return min(self._open.values(), default=None)

    def on_batch_read(
        self, header: BatchHeader, base_offset: int, marker: ControlRecordType | None
    ) -> None:
        """Take in the next batch; others than `is_transactional` need not come.

        Args:
            header: of the batch.
            base_offset: its first offset.
            marker: what it decides, if it is a control batch that does (`marker_of`).
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
        """Return whether nobody may see the records of a batch.

        Args:
            header: of the batch.
            base_offset: its first offset.
        """
        if header.is_control or not is_transactional(header):
            return False
        firsts, markers = self._aborted.get(header.producer_id, ((), ()))
        at = bisect_right(firsts, base_offset) - 1
        return at >= 0 and base_offset < markers[at]


class RetainedMarkers:
    """Tells of each marker whether any batch of its transaction is left before it.

    Kafka's ``CleanedTransactionMetadata``. All batches of the log go by, in offset order.
    """

    def __init__(self) -> None:
        self._with_batches: set[int] = set()

    def is_needed(self, header: BatchHeader, records: pa.RecordBatch) -> bool:
        """Take in the next batch, and return whether it has to stay for what came before it.

        Of control batches that are no markers always; of those that are emptied never; batches of
        records are not asked about.

        Args:
            header: of the batch.
            records: the rows of a control batch; of others they are not looked at.
        """
        if not header.is_control:
            if is_transactional(header):
                self._with_batches.add(header.producer_id)
            return False
        if not header.record_count:
            return False
        if marker_of(header, records) is None:
            return True
        is_needed = header.producer_id in self._with_batches
        self._with_batches.discard(header.producer_id)
        return is_needed


def read_transactions(
    segments: Iterable[tuple[int, SegmentReader]], behind: Iterable[tuple[int, SegmentReader]]
) -> tuple[CleanedTransactionMetadata, list[int]]:
    """Return the transactions of segments, by their headers and the few batches with markers.

    Args:
        segments: where to begin in each, and the segment.
        behind: those that follow; looked at as long as a transaction has no marker.

    Returns:
        The transactions; and, since all headers are read here, how many rows each segment has.

    Raises:
        CorruptRecordError: one of them is damaged.
    """
    transactions = CleanedTransactionMetadata()
    row_counts = [
        _read_segment(transactions, start_offset, reader) for start_offset, reader in segments
    ]
    if transactions.first_unstable_offset is not None:
        for start_offset, reader in behind:
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
        # Records are read only where one of them is a marker.
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
    """Return whether a batch is a transaction's, its marker's too."""
    return bool(header.attributes & header.TRANSACTIONAL_BIT) and (
        header.producer_id != NO_PRODUCER_ID
    )


def marker_of(header: BatchHeader, records: pa.RecordBatch) -> ControlRecordType | None:
    """Return what a control batch decides; None where it is no marker of a transaction."""
    if not (header.is_control and header.record_count and is_transactional(header)):
        return None
    return ControlRecordType.of_key(records.column("key")[0].as_py())
