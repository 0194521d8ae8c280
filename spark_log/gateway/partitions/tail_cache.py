"""The newest batches of partitions in their clients' own bytes, for readers at the logs' ends."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from dataclasses import dataclass, replace
from operator import attrgetter

from spark_log.record import ProducerIdAndEpoch

_BASE_OFFSET = attrgetter("base_offset")


@dataclass(frozen=True, slots=True)
class CachedBatch:
    """A batch that this gateway has appended.

    Attributes:
        base_offset: its first offset.
        end_offset: the offset after its last record.
        data: the client's bytes, with the log's base offset and leader epoch.
        compression_type: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
        transaction: the producer of its transaction, while it is not known that it was committed;
            None afterwards, and if it belongs to none.
    """

    base_offset: int
    end_offset: int
    data: bytes | bytearray
    compression_type: int
    transaction: ProducerIdAndEpoch | None = None


class CacheBudget:
    """The memory of all tail caches of a gateway: the oldest batches are dropped."""

    def __init__(self, limit_bytes: int) -> None:
        """Return a budget of which nothing is used."""
        self._limit_bytes = limit_bytes
        self._held: OrderedDict[tuple[int, int], tuple[TailCache, int]] = OrderedDict()
        self.used_bytes = 0

    def hold(self, cache: TailCache, batch: CachedBatch) -> None:
        """Count a batch that was added to a cache, and drop the oldest ones of all caches."""
        size_bytes = len(batch.data)
        self._held[id(cache), batch.base_offset] = cache, size_bytes
        self.used_bytes += size_bytes
        while self.used_bytes > self._limit_bytes and self._held:
            (_, base_offset), (oldest, dropped_bytes) = self._held.popitem(last=False)
            self.used_bytes -= dropped_bytes
            oldest.drop_before(base_offset + 1)

    def release(self, cache: TailCache, batch: CachedBatch) -> None:
        """Stop counting a batch that its cache has dropped."""
        found = self._held.pop((id(cache), batch.base_offset), None)
        if found is not None:
            self.used_bytes -= found[1]


class TailCache:
    """The newest batches of one partition, in offset order; there may be gaps between them.

    A gap is a batch of another writer, or one that may not be cached. Readers find it in the log.

    Batches of transactions are readers' of both isolation levels: with ``read_committed`` once it
    is known that the transaction was committed (`commit`). The caller knows up to which offset
    transactions are decided. Those of aborted ones, and of those that other processes have ended,
    are found only without it.
    """

    def __init__(self, budget: CacheBudget) -> None:
        """Return an empty cache."""
        self._budget = budget
        self._batches: list[CachedBatch] = []
        # By producer id: its transaction, and the offset of the transaction's first batch.
        self._open: dict[int, tuple[ProducerIdAndEpoch, int]] = {}
        self._added_ms: list[float] = []  # of each batch

    def add(self, batch: CachedBatch, now_ms: float) -> None:
        """Add a batch behind all others; one before them is not cached.

        Args:
            batch: the batch.
            now_ms: monotonic time.
        """
        if self._batches and batch.base_offset < self._batches[-1].end_offset:
            return
        self._batches.append(batch)
        self._added_ms.append(now_ms)
        self._budget.hold(self, batch)
        if batch.transaction is not None:
            begun = self._open.get(batch.transaction.producer_id)
            if begun is None or begun[0] != batch.transaction:
                key = batch.transaction.producer_id
                self._open[key] = batch.transaction, batch.base_offset

    def commit(self, transaction: ProducerIdAndEpoch) -> None:
        """Let readers with ``read_committed`` find the batches of a committed transaction."""
        begun = self._open.get(transaction.producer_id)
        if begun is None or begun[0] != transaction:
            return
        del self._open[transaction.producer_id]
        first = bisect_left(self._batches, begun[1], key=_BASE_OFFSET)
        for index in range(first, len(self._batches)):
            if self._batches[index].transaction == transaction:
                self._batches[index] = replace(self._batches[index], transaction=None)

    def find(
        self,
        offset: int,
        end_offset: int,
        max_bytes: int,
        *,
        takes_zstd: bool = True,
        is_committed: bool = False,
    ) -> list[CachedBatch]:
        """Return consecutive batches; the first one has the record at an offset.

        Args:
            offset: the offset of the first record that is needed.
            end_offset: no batch that ends after it is returned.
            max_bytes: the most bytes of all batches; the first one may be larger.
            takes_zstd: whether the reader can decompress zstd (Fetch 10 and later).
            is_committed: whether no batch of a transaction is returned that is not known to be
                committed.
        """
        index = bisect_right(self._batches, offset, key=_BASE_OFFSET) - 1
        found: list[CachedBatch] = []
        size_bytes = 0
        while 0 <= index < len(self._batches):
            batch = self._batches[index]
            is_next = batch.base_offset <= offset < batch.end_offset <= end_offset
            size_bytes += len(batch.data)
            is_too_large = bool(found) and size_bytes > max_bytes
            is_readable = takes_zstd or batch.compression_type != 4
            if is_committed and batch.transaction is not None:
                is_readable = False
            if not is_next or is_too_large or not is_readable:
                break
            found.append(batch)
            offset, index = batch.end_offset, index + 1
        return found

    def drop_before(self, offset: int) -> None:
        """Drop the batches that begin before an offset."""
        count = bisect_right(self._batches, offset - 1, key=_BASE_OFFSET)
        for batch in self._batches[:count]:
            self._budget.release(self, batch)
        del self._batches[:count]
        del self._added_ms[:count]
        if not self._batches:
            self._open.clear()  # of transactions that others have ended

    def drop_added_before(self, time_ms: float) -> None:
        """Drop the batches that were added before a monotonic time."""
        count = bisect_left(self._added_ms, time_ms)
        if count:
            self.drop_before(self._batches[count - 1].end_offset)

    def clear(self) -> None:
        """Drop everything."""
        if self._batches:
            self.drop_before(self._batches[-1].end_offset)
