"""The open and the aborted transactions of a partition (Kafka's ``.txnindex``).

The index is derived from batch headers alone, in offset order: a producer's transaction in a
partition is all its transactional batches up to its next marker. It tells readers with
``read_committed`` which records they may return, and compactions which records they may remove.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from spark_log.record import NO_PRODUCER_ID, BatchHeader, ControlRecordType

_KIND_BITS: Final = BatchHeader.TRANSACTIONAL_BIT | BatchHeader.CONTROL_BIT

_NO_OFFSET: Final = 2**63
"""Greater than any offset."""


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that has records in the log, and no marker yet.

    Attributes:
        producer_id: the producer's id.
        producer_epoch: the epoch of its records.
        first_offset: offset of its first record.
    """

    producer_id: int
    producer_epoch: int
    first_offset: int


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """A transaction whose marker says that it was aborted (Kafka's ``AbortedTxn``).

    Attributes:
        producer_id: the producer's id.
        first_offset: offset of its first record.
        marker_offset: offset of its marker.
    """

    producer_id: int
    first_offset: int
    marker_offset: int


class TransactionIndex:
    """The transactions of a log before `offset`.

    Aborted transactions that lie wholly in one segment need not be listed: a reader of this segment
    finds them in its headers. A snapshot therefore lists few of them, however long the log is, and
    has the ranges of offsets that contain unlisted ones.

    Attributes:
        offset: the offset after the last batch.
        log_start_offset: the log start offset. Nothing before it can be read, so it limits
            `last_stable_offset` from below.
        is_complete: whether all transactions before `offset` are known. They are not known from a
            snapshot that was written by a version without transactions.
    """

    def __init__(
        self,
        offset: int = 0,
        *,
        open_transactions: Iterable[OpenTransaction] = (),
        aborted: Iterable[AbortedTransaction] = (),
        unlisted: Iterable[tuple[int, int]] = (),
        is_complete: bool = True,
    ) -> None:
        """Start with the transactions of a snapshot.

        Args:
            offset: the snapshot's offset.
            open_transactions: the open transactions, in the order of their first offsets.
            aborted: the listed aborted transactions.
            unlisted: ranges of offsets with unlisted aborted transactions: first offset, and the
                offset after the last; in order.
            is_complete: False if nothing is known of the transactions before ``offset``.
        """
        self.offset = offset
        self.log_start_offset = 0
        self.is_complete = is_complete
        self._open = {each.producer_id: each for each in open_transactions}
        self._unlisted = list(unlisted)
        self._aborted: dict[int, list[tuple[int, int]]] = {}
        self.add_aborted(aborted)

    def __repr__(self) -> str:
        return (
            f"<TransactionIndex offset={self.offset} last_stable_offset={self.last_stable_offset} "
            f"open={len(self._open)}>"
        )

    def copy(self) -> TransactionIndex:
        """Return an index that does not change when this one does."""
        copied = TransactionIndex(
            self.offset,
            open_transactions=self.open,
            aborted=self.aborted,
            unlisted=self._unlisted,
            is_complete=self.is_complete,
        )
        copied.log_start_offset = self.log_start_offset
        return copied

    # --- what is known ---------------------------------------------------------------------------

    @property
    def open(self) -> tuple[OpenTransaction, ...]:
        """The open transactions, in the order of their first offsets."""
        return tuple(self._open.values())

    def open_of(self, producer_id: int) -> OpenTransaction | None:
        """Return the open transaction of a producer; None without one."""
        return self._open.get(producer_id)

    @property
    def first_open(self) -> OpenTransaction | None:
        """The open transaction with the least first offset; None if none is open."""
        return next(iter(self._open.values()), None)

    @property
    def last_stable_offset(self) -> int:
        """The offset before which every transaction has its marker (Kafka's LSO)."""
        first = self.first_open
        return self.offset if first is None else max(first.first_offset, self.log_start_offset)

    @property
    def aborted(self) -> tuple[AbortedTransaction, ...]:
        """The listed aborted transactions, in the order of their markers."""
        found = (
            AbortedTransaction(producer_id, first, marker)
            for producer_id, pairs in self._aborted.items()
            for first, marker in pairs
        )
        return tuple(sorted(found, key=lambda each: each.marker_offset))

    @property
    def unlisted(self) -> tuple[tuple[int, int], ...]:
        """Ranges of offsets that contain aborted transactions which are not listed."""
        return tuple(self._unlisted)

    def is_aborted(self, header: BatchHeader, base_offset: int) -> bool:
        """Return whether a batch belongs to a listed aborted transaction.

        Args:
            header: the batch's header.
            base_offset: the batch's first offset.
        """
        if header.attributes & _KIND_BITS != BatchHeader.TRANSACTIONAL_BIT:
            return False
        pairs = self._aborted.get(header.producer_id)
        if pairs is None:
            return False
        # By its last offset: the log's start may cut the batch, and the transaction with it.
        offset = base_offset + header.last_offset_delta - header.base_offset_delta
        at = bisect_right(pairs, (offset, _NO_OFFSET)) - 1
        return at >= 0 and offset < pairs[at][1]

    # --- changes ---------------------------------------------------------------------------------

    def replay(self, segment_base_offset: int, headers: Iterable[BatchHeader]) -> None:
        """Replay batch headers in offset order. Headers before `offset` are skipped.

        Args:
            segment_base_offset: base of the headers' offset deltas.
            headers: the segment's batch headers.
        """
        for header in headers:
            end_offset = segment_base_offset + header.last_offset_delta + 1
            if end_offset > self.offset:
                self.offset = end_offset
                if header.is_transactional:
                    self.on_batch(header, segment_base_offset + header.base_offset_delta)

    def on_batch(self, header: BatchHeader, base_offset: int) -> None:
        """Add the next transactional batch. The caller moves `offset`.

        Args:
            header: the batch's header.
            base_offset: the batch's first offset.
        """
        producer_id = header.producer_id
        if not header.is_control:
            if producer_id not in self._open:
                transaction = OpenTransaction(producer_id, header.producer_epoch, base_offset)
                self._open[producer_id] = transaction
            return
        ended = self._open.pop(producer_id, None)
        if ended is not None and header.marker is ControlRecordType.ABORT:
            pair = ended.first_offset, base_offset
            self._aborted.setdefault(producer_id, []).append(pair)

    def add_aborted(self, aborted: Iterable[AbortedTransaction]) -> None:
        """List aborted transactions. Those that are listed already are ignored."""
        for each in aborted:
            pairs = self._aborted.setdefault(each.producer_id, [])
            pair = each.first_offset, each.marker_offset
            if pair not in pairs[bisect_right(pairs, pair) - 1 :][:1]:
                insort(pairs, pair)

    def unlisted_in(self, start_offset: int, end_offset: int) -> list[tuple[int, int]]:
        """Return the ranges of `unlisted` that overlap a range of offsets.

        Before their records are read, the caller reads their headers, and calls `list_range`.
        """
        return [each for each in self._unlisted if each[0] < end_offset and each[1] > start_offset]

    def list_range(
        self, unlisted: tuple[int, int], headers: Iterable[tuple[int, np.ndarray]]
    ) -> None:
        """List the aborted transactions of a range of `unlisted`.

        Args:
            unlisted: the range.
            headers: base offset and `header_array` of each segment that has a part of this range
                now, in offset order.
        """
        self.add_aborted(aborted_transactions(headers, unlisted[0]))
        self._unlisted = [each for each in self._unlisted if each != unlisted]

    def forget_aborted(self) -> None:
        """Drop all aborted transactions, for a process that only appends."""
        self._aborted.clear()
        self._unlisted.clear()

    def compact(self, ends: Sequence[int]) -> None:
        """List only the aborted transactions that do not lie wholly in one segment.

        Transactions that lie before the log's start are dropped.

        Args:
            ends: the log start offset, and the end offset of each live segment, ascending.
        """
        listed: list[AbortedTransaction] = []
        ranges: set[tuple[int, int]] = set()
        for each in self.aborted:
            if each.marker_offset < ends[0]:
                continue
            segment = _segment_of(ends, each.first_offset, each.marker_offset + 1)
            if segment is None:
                listed.append(each)
            else:
                ranges.add(segment)
        for start, end in self._unlisted:
            if end > ends[0]:
                ranges.add(_segment_of(ends, start, end) or (start, end))
        self._aborted.clear()
        self._unlisted = sorted(ranges)
        self.add_aborted(listed)

    @property
    def aborted_count(self) -> int:
        """Number of listed aborted transactions."""
        return sum(map(len, self._aborted.values()))


def aborted_transactions(
    segments: Iterable[tuple[int, np.ndarray]], start_offset: int
) -> list[AbortedTransaction]:
    """Return the aborted transactions whose markers lie in some segments, by the markers alone.

    All batches of a producer between two of its markers are one transaction. The batches themselves
    are not searched for: a compaction may have removed them from these segments, but not from the
    older segments that a reader still has open.

    Args:
        segments: base offset and `header_array` of each segment, in offset order. They may overlap.
        start_offset: batches before this offset are left out.

    Returns:
        The transactions. Each begins at ``start_offset``, or after its producer's previous marker.
    """
    from_offset, producer_ids, offsets, attributes = start_offset, [], [], []
    for base_offset, headers in segments:
        picked = headers[
            (headers["attributes"] & _KIND_BITS == _KIND_BITS)
            & (headers["producer_id"] != NO_PRODUCER_ID)
            & (headers["last_offset_delta"] >= from_offset - base_offset)
        ]
        producer_ids.append(picked["producer_id"])
        offsets.append(picked["base_offset_delta"].astype(np.int64) + base_offset)
        attributes.append(picked["attributes"])
        # A rewrite may have cut a segment: the next one has the end of it again.
        from_offset = max(from_offset, base_offset + int(headers["last_offset_delta"][-1]) + 1)
    if not producer_ids:
        return []
    ids = np.concatenate(producer_ids)
    by_producer = np.argsort(ids, kind="stable")
    ids = ids[by_producer]
    offset = np.concatenate(offsets)[by_producer]
    first = np.full(len(ids), start_offset)
    first[1:] = np.where(ids[1:] == ids[:-1], offset[:-1] + 1, start_offset)
    is_abort = np.concatenate(attributes)[by_producer] & BatchHeader.ABORT_BIT != 0
    columns = (ids[is_abort], first[is_abort], offset[is_abort])
    return [
        AbortedTransaction(*each) for each in zip(*map(np.ndarray.tolist, columns), strict=True)
    ]


def _segment_of(ends: Sequence[int], start: int, end: int) -> tuple[int, int] | None:
    """Return the segment that contains a range of offsets; None if no single one does."""
    at = bisect_right(ends, max(start, ends[0]))
    if at == len(ends) or end > ends[at]:
        return None
    return ends[at - 1], ends[at]
