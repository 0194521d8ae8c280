"""`Search`: reads partitions from one offset to another, and finds the records that match."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_log.console.budget import Budget
from spark_log.console.search.expression import Expression
from spark_log.log import FetchedRecords, IsolationLevel, PartitionLog
from spark_log.record import HEADERS_TYPE
from spark_log.util import Clock

_log = logging.getLogger(__name__)

_FIRST_ROWS: Final = 8_192
_MAX_ROWS: Final = 262_144
_MAX_BYTES: Final = 33_554_432
"""Maximum bytes of a chunk, which is evaluated at once. The first chunks are small, so that the
first hits appear early. The bytes are bounded to bound memory: the result of a function on a chunk
is about as large as the chunk."""

_PIECE_ROWS: Final = 65_536
"""Maximum number of rows of a batch that duckdb evaluates in one thread."""


@dataclass(frozen=True, slots=True)
class SearchProgress:
    """The progress of a search.

    Attributes:
        records: the number of records that were read.
        total: the number of offsets to read; a compacted log has fewer records.
        hits: the number of records that matched.
        elapsed_ms: the time since the search began.
        is_done: whether all records were read, or enough hits were found.
    """

    records: int
    total: int
    hits: int
    elapsed_ms: float
    is_done: bool = False


@dataclass(frozen=True, slots=True)
class Search:
    """The conditions and the partitions of a search.

    Attributes:
        logs: the log of each partition, used by this search only.
        ranges: partition → first offset, and the offset to stop before.
        key: the key's bytes; None for any.
        header: the name of a header, and the bytes of its value or None for any; None for no such
            condition.
        from_us: the minimum timestamp; None for any.
        to_us: the timestamp that all hits are before; None for any.
        expression: the SQL expression; None for no such condition.
        limit: the maximum number of hits; None for all.
        isolation: the isolation level of the read.
    """

    logs: Mapping[int, PartitionLog]
    ranges: Mapping[int, tuple[int, int]]
    key: bytes | None = None
    header: tuple[str, bytes | None] | None = None
    from_us: int | None = None
    to_us: int | None = None
    expression: Expression | None = None
    limit: int | None = 100
    isolation: IsolationLevel = "read_uncommitted"

    def run(
        self,
        budget: Budget,
        clock: Clock,
        on_hits: Callable[[FetchedRecords], None],
        on_progress: Callable[[SearchProgress], None],
    ) -> SearchProgress:
        """Read the records, and pass on hits as they are found, by partition in offset order.

        While one chunk is evaluated, the next is read.

        Args:
            budget: the budget of the request.
            clock: the clock that measures the duration.
            on_hits: called with hits, in this thread.
            on_progress: called after each chunk.

        Raises:
            KafkaTimeoutError: the time limit has passed.
            RequestCancelledError: the client has disconnected.
            InvalidConfigurationError: the expression fails for a record.
        """
        began_ms = clock.monotonic_ms()
        total = sum(end - start for start, end in self.ranges.values())
        progress = SearchProgress(0, total, 0, 0.0)
        _log.debug("searching %d offsets in %d partitions", total, len(self.ranges))
        with ThreadPoolExecutor(1, "spark-log-console-evaluate") as pool:
            waiting: list[tuple[Future[list[FetchedRecords]], int]] = []
            chunks = self._chunks(budget)
            while True:
                chunk = next(chunks, None)
                if chunk is not None:
                    future = pool.submit(self._matching, chunk, budget)
                    waiting.append((future, sum(map(len, chunk))))
                if len(waiting) > 1 or (chunk is None and waiting):
                    future, count = waiting.pop(0)
                    hits = progress.hits
                    for rows in self._limited(future.result(), hits):
                        on_hits(rows)
                        hits += len(rows)
                    progress = SearchProgress(
                        progress.records + count, total, hits, clock.monotonic_ms() - began_ms
                    )
                    if self.limit is not None and hits >= self.limit:
                        break
                    on_progress(progress)
                elif chunk is None:
                    break
        done = replace(progress, is_done=True, elapsed_ms=clock.monotonic_ms() - began_ms)
        _log.debug(
            "search ended: %d records read, %d hits, %.0f ms",
            done.records,
            done.hits,
            done.elapsed_ms,
        )
        return done

    def _limited(self, found: list[FetchedRecords], hits: int) -> Iterator[FetchedRecords]:
        for rows in found:
            left = len(rows) if self.limit is None else self.limit - hits
            if left <= 0:
                return
            yield rows.slice(0, left)
            hits += min(left, len(rows))

    def _chunks(self, budget: Budget) -> Iterator[list[FetchedRecords]]:
        """Yield the records of one partition after the other, several batches at a time."""
        most = _FIRST_ROWS
        for partition, (start, end) in sorted(self.ranges.items()):
            chunk: list[FetchedRecords] = []
            rows = size = 0
            batches = self.logs[partition].scan(start, end, isolation_level=self.isolation)
            for batch in batches:
                budget.check()
                for piece in _pieces(FetchedRecords.of_batch(partition, batch), most):
                    chunk.append(piece)
                    rows += len(piece)
                    size += piece.records.nbytes
                    if rows >= most or size >= _MAX_BYTES:
                        yield chunk
                        chunk, rows, size = [], 0, 0
                        most = min(most * 2, _MAX_ROWS)
            if chunk:
                yield chunk

    def _matching(self, chunk: list[FetchedRecords], budget: Budget) -> list[FetchedRecords]:
        budget.check()
        found = [self._by_columns(rows) for rows in chunk]
        found = [rows for rows in found if len(rows)]
        if self.expression is None or not found:
            return found
        matches = self.expression.matches(
            [rows.records for rows in found],
            [rows.offsets for rows in found],
            found[0].partition,
            budget,
        )
        hits: list[FetchedRecords] = []
        first = 0
        for rows in found:
            low, high = np.searchsorted(matches, [first, first + len(rows)])
            if low < high:
                hits.append(rows.take(matches[low:high] - first))
            first += len(rows)
        return hits

    def _by_columns(self, rows: FetchedRecords) -> FetchedRecords:
        """Return the rows that match key, header and time."""
        masks = []
        if self.key is not None:
            masks.append(pc.equal(rows.records.column("key"), pa.scalar(self.key, pa.binary())))
        if self.header is not None:
            masks.append(_has_header(rows.records.column("headers"), *self.header))
        if self.from_us is not None or self.to_us is not None:
            times_us = rows.timestamps_us
            inside = np.ones(len(times_us), bool)
            if self.from_us is not None:
                inside &= times_us >= self.from_us
            if self.to_us is not None:
                inside &= times_us < self.to_us
            masks.append(pa.array(inside))
        if not masks:
            return rows
        mask = np.ones(len(rows), bool)
        for each in masks:
            mask &= pc.fill_null(each, False).to_numpy(zero_copy_only=False)
        return rows if mask.all() else rows.take(np.flatnonzero(mask))


def _pieces(rows: FetchedRecords, most: int) -> Iterator[FetchedRecords]:
    """Yield the rows in pieces that are no larger than a chunk."""
    count = min(most, _PIECE_ROWS)
    average = rows.records.nbytes // max(1, len(rows)) + 1
    count = max(1, min(count, _MAX_BYTES // average))
    return rows.pieces(count)


def _has_header(column: pa.Array, name: str, value: bytes | None) -> pa.Array:
    """Return whether each row has a header of this name, with this value if it is not None."""
    if column.null_count == len(column):
        return pa.array(np.zeros(len(column), bool))
    assert column.type == HEADERS_TYPE
    entries = pc.list_flatten(column)
    matches = pc.equal(pc.struct_field(entries, "key"), name)
    if value is not None:
        matches = pc.and_(matches, pc.equal(pc.struct_field(entries, "value"), value))
    parents = pc.list_parent_indices(column).to_numpy()
    found = np.zeros(len(column), bool)
    found[parents[pc.fill_null(matches, False).to_numpy(zero_copy_only=False)]] = True
    return pa.array(found)
