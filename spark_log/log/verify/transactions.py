"""Checks of a log's transactions by batch headers: late batches, and wrong snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from spark_log.log.producers import TransactionIndex
from spark_log.record import BatchHeader


class LateBatches:
    """Finds batches of transactions after the markers that ended these transactions.

    A marker has a newer epoch than the records of its transaction. No writer puts records of the
    older epoch after the marker: they would belong to a transaction that never ends.
    """

    def __init__(self) -> None:
        """Start before the first header."""
        self._position = 0
        self._markers: dict[int, tuple[int, int]] = {}

    def replay(self, base_offset: int, headers: Iterable[BatchHeader]) -> Iterator[str]:
        """Yield the problems of the next headers of the live log.

        Args:
            base_offset: the offset that the headers' deltas are relative to.
            headers: sound headers, in offset order.
        """
        for header in headers:
            start = base_offset + header.base_offset_delta
            if start < self._position or not header.is_transactional:
                continue
            self._position = start + 1
            epoch, at = self._markers.get(header.producer_id, (-1, -1))
            if header.is_control:
                if header.producer_epoch > epoch:
                    self._markers[header.producer_id] = header.producer_epoch, start
            elif header.producer_epoch < epoch:
                yield (
                    f"the batch at offset {start} is of producer {header.producer_id}, epoch "
                    f"{header.producer_epoch}, whose transaction the marker at offset {at} has "
                    f"ended: readers with read_committed may stop there. Put a marker of a newer "
                    f"epoch"
                )


def transactions_problem(
    said: TransactionIndex, true: TransactionIndex, log_start_offset: int, start: int
) -> str | None:
    """Return the problem of the transactions in a snapshot; None if all are right.

    Transactions whose records were deleted exist only in snapshots. This includes transactions that
    were open when the snapshot was written, were aborted later, and were removed by a compaction.

    Args:
        said: the transactions in the snapshot.
        true: the transactions by the headers of the log, up to the snapshot's offset.
        log_start_offset: the present log start offset. A snapshot may lack transactions before it.
        start: the offset from which on the log has every record.
    """
    for each in true.open:
        known = said.open_of(each.producer_id)
        if known is None or known.first_offset > each.first_offset:
            return f"the open transaction of producer {each.producer_id} is missing"
    for each in said.open:
        known = true.open_of(each.producer_id)
        if each.first_offset >= start and (known is None or known != each):
            return f"producer {each.producer_id} has no transaction open at {each.first_offset}"
    listed = {(each.producer_id, each.marker_offset) for each in said.aborted}
    for aborted in true.aborted:
        begin = max(aborted.first_offset, log_start_offset)  # the start may have cut it
        is_unlisted = any(
            first <= begin and aborted.marker_offset < end
            for first, end in said.unlisted_in(begin, aborted.marker_offset + 1)
        )
        if (aborted.producer_id, aborted.marker_offset) not in listed and not is_unlisted:
            return (
                f"the aborted transaction of producer {aborted.producer_id} before offset "
                f"{aborted.marker_offset} is missing"
            )
    return None
