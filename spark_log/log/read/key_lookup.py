"""The newest record of a key: looked up in the segments of a log, from the newest to the oldest."""

from __future__ import annotations

import logging
import math
import os
from collections import OrderedDict
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from spark_log.errors import NotFoundError
from spark_log.log.cache_budget import CacheBudget, LogCache
from spark_log.log.directory import PartitionDirectory
from spark_log.log.files import SegmentName
from spark_log.log.key_index import MIN_INDEXED_RECORDS, KeyIndex, KeyIndexWriter
from spark_log.log.producers import NOT_LISTED_US, ProducerState, TransactionIndex
from spark_log.log.read.committed_tail_view import compact_aborted
from spark_log.log.read.key_map import KeyMap
from spark_log.log.read.segment_batches import NewerLeaderEpochError, Selection, read_segment
from spark_log.log.read.tail_view import TailView
from spark_log.log.segment import LogBatch, SegmentReader
from spark_log.log.snapshot import Snapshots
from spark_log.record import murmur2_of_key

_log = logging.getLogger(__name__)

LIMIT_BYTES: Final = 134_217_728
"""Approximate memory that the keys of all logs of a process hold together."""

KEY_CACHES: Final = CacheBudget(LIMIT_BYTES)
"""The budget for the keys of all logs of this process. It is apart from that of the other caches,
which 10 M keys (80 MB) would all drop."""

os.register_at_fork(after_in_child=KEY_CACHES.renew_lock)

_SEGMENT_BYTES: Final = 9_216
"""Approximate memory that Arrow keeps for an open segment."""


@dataclass(frozen=True, slots=True)
class KeyQuery:
    """A key to look up, and the records that count.

    Attributes:
        key: the key's bytes.
        end_offset: records at and after it do not count.
        is_committed: whether only records of committed transactions count.
        check_crcs: whether to check the checksums of batches.
        max_leader_epoch: the newest leader epoch of a record that may be returned; None for any.
    """

    key: bytes
    end_offset: float
    is_committed: bool = False
    check_crcs: bool = True
    max_leader_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class SegmentKeys:
    """The keys of one segment, and its reader: an index of a Parquet segment, or else a map."""

    index: KeyIndex | None
    map: KeyMap | None
    reader: SegmentReader

    @property
    def memory_bytes(self) -> int:
        """Approximate memory of the parts."""
        keys = self.index or self.map
        return (
            _SEGMENT_BYTES + self.reader.memory_bytes + (0 if keys is None else keys.memory_bytes)
        )


class KeptKeys:
    """The keys of segments; those used longest ago are dropped if they need too much memory.

    Attributes:
        size_bytes: approximate memory of all.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[SegmentName, tuple[SegmentKeys, int]] = OrderedDict()
        self.size_bytes = 0

    def get(self, name: SegmentName) -> SegmentKeys | None:
        """Return the keys of a segment; None if they are not kept."""
        found = self._kept.get(name)
        if found is None:
            return None
        self._kept.move_to_end(name)
        return found[0]

    def keep(self, name: SegmentName, keys: SegmentKeys, fits: Callable[[int], bool]) -> None:
        """Keep the keys of a segment, in place of others.

        Args:
            name: the segment's name.
            keys: its keys.
            fits: returns whether a number of bytes may be kept.
        """
        self._drop(name)
        self._kept[name] = keys, keys.memory_bytes
        self.size_bytes += keys.memory_bytes
        while self._kept and not fits(self.size_bytes):
            self._drop(next(iter(self._kept)))

    def keep_only(self, names: Container[SegmentName]) -> None:
        """Drop the keys of segments that are not part of the log any more."""
        for name in [each for each in self._kept if each not in names]:
            self._drop(name)

    def _drop(self, name: SegmentName) -> None:
        _, size_bytes = self._kept.pop(name, (None, 0))
        self.size_bytes -= size_bytes


class KeyLookup(LogCache):
    """Looks up keys in one log. For one thread at a time.

    A Parquet segment has a key index, of which only the tables are kept. The keys of any other
    segment are read once, and kept (`KeyMap`): a segment never changes, so a later look-up reads
    only what was appended since. For a Parquet segment whose key index is missing or damaged, the
    index is built in memory; this is counted.

    The log's end is found as by a reader: one request for the next segment, and a new listing when
    the last one is not valid any more.
    """

    def __init__(self, directory: PartitionDirectory, snapshots: Snapshots) -> None:
        """Access no storage yet."""
        self._directory = directory
        self._snapshots = snapshots
        self._tail: TailView | None = None
        self._state: ProducerState | None = None
        self._kept = KeptKeys()
        self._share = KEY_CACHES.share(self)

    def drop(self) -> None:
        """Forget the keys. A look-up that is under way keeps what it uses."""
        self._kept = KeptKeys()

    def forget(self) -> None:
        """List the log again before the next look-up, and read everything again."""
        self._tail = self._state = None
        self.drop()

    def find(self, query: KeyQuery) -> LogBatch | None:
        """Return the newest record of a key, with all columns; None if the log has none.

        Returns:
            A batch of one row. A tombstone is a record without a value.

        Raises:
            NewerLeaderEpochError: the log has a record of a newer leader epoch.
            CorruptRecordError: a segment is damaged or missing.
            StorageError: the storage does not answer.
        """
        while True:
            try:
                return self._find(query)
            except NotFoundError:  # a segment was rewritten and deleted, or the log's start moved
                self._tail = None
                self.drop()

    def _find(self, query: KeyQuery) -> LogBatch | None:
        tail = self._follow(query)
        transactions = None
        if query.is_committed:
            transactions = self._transactions
            stable = transactions.last_stable_offset
            query = replace(query, end_offset=min(query.end_offset, stable))
        try:
            for name, start_offset in tail.newest_first():
                if start_offset < query.end_offset:
                    segment = _Segment(tail, name, start_offset, transactions)
                    found = self._find_in(segment, query)
                    if found is not None:
                        return found
        finally:
            self._share.hold(self._kept.size_bytes + tail.size_bytes)
        return None

    # --- one segment -----------------------------------------------------------------------------

    def _find_in(self, segment: _Segment, query: KeyQuery) -> LogBatch | None:
        """Return the newest record of a key in one segment."""
        key_hash = murmur2_of_key(query.key)
        keys = self._kept.get(segment.name) or self._open(segment, query)
        if keys.index is not None:
            try:
                return self._find_row(segment, keys.index, keys.reader, key_hash, query)
            except _LostIndexError as lost:
                index = self._build(segment, keys.reader, lost.error)
                return self._find_row(segment, index, keys.reader, key_hash, query)
        assert keys.map is not None
        for offset in keys.map.offsets(key_hash, segment.start_offset, query.end_offset):
            found = self._read(segment, keys.reader, offset, query)
            if found is not None:
                return found
        return None

    def _find_row(
        self,
        segment: _Segment,
        index: KeyIndex,
        reader: SegmentReader,
        key_hash: int,
        query: KeyQuery,
    ) -> LogBatch | None:
        """Return the newest record of a key in a Parquet segment.

        It has no records of aborted transactions.
        """
        for row in _rows(index, key_hash):
            try:
                offset, record = reader.read_row(row, index.tables.pages)
            finally:
                self._directory.check_unchanged(reader, segment.tail.observed_ms)
            if offset < segment.start_offset:
                break
            if offset < query.end_offset and record.column("key")[0].as_py() == query.key:
                _forget_ranges(reader)
                leader_epoch, timestamp_type = index.run_of(row)
                _check_epoch(leader_epoch, query.max_leader_epoch)
                return LogBatch(
                    offset,
                    record,
                    timestamp_type,
                    leader_epoch,
                    is_control=False,
                    segment_base_offset=segment.name.base_offset,
                    stored_bytes=int(record.nbytes),
                )
        _forget_ranges(reader)
        return None

    def _read(
        self, segment: _Segment, reader: SegmentReader, offset: int, query: KeyQuery
    ) -> LogBatch | None:
        """Return the record at an offset if it is one of the key that counts."""
        batches = read_segment(
            self._directory,
            reader,
            offset,
            offset + 1,
            segment.tail.observed_ms,
            Selection(None, query.check_crcs, segment.transactions),
            max_leader_epoch=query.max_leader_epoch,
        )
        found = None
        for batch, _ in batches:
            if batch is None or batch.is_control:
                continue
            if batch.records.column("key")[0].as_py() == query.key:
                found = batch
        _forget_ranges(reader)
        return found

    def _open(self, segment: _Segment, query: KeyQuery) -> SegmentKeys:
        """Read the tables of a segment's key index; without an index, read all keys."""
        name, directory = segment.name, self._directory
        reader = segment.open()
        if not name.is_parquet:
            return self._scan(segment, reader, query)
        try:
            index = KeyIndex.open(directory.store, directory.path, name, reader.append_id)
        except (NotFoundError, ValueError) as error:
            index = self._build(segment, reader, error)
        keys = SegmentKeys(index, None, reader)
        self._keep(segment, keys)
        return keys

    def _build(self, segment: _Segment, reader: SegmentReader, error: Exception) -> KeyIndex:
        """Read all keys of a Parquet segment, and keep an index of them in memory.

        Args:
            segment: the segment.
            reader: its reader.
            error: the reason why its key index cannot be used.
        """
        directory = self._directory
        with KeyIndexWriter(memory_bytes=math.inf) as writer:
            try:
                writer.add_segment(reader)
                data = writer.build(reader.append_id, reader.find_pages())
            finally:
                directory.check_unchanged(reader, segment.tail.observed_ms)
            if writer.row_count >= MIN_INDEXED_RECORDS:
                directory.suppressed.add("key index", directory.path, error)
            _log.debug("%s: read %d keys", reader.path, writer.record_count)
        _forget_ranges(reader)
        index = KeyIndex.of_buffer(data)
        self._keep(segment, SegmentKeys(index, None, reader))
        return index

    def _scan(self, segment: _Segment, reader: SegmentReader, query: KeyQuery) -> SegmentKeys:
        """Read all keys of an Arrow segment."""
        batches = read_segment(
            self._directory,
            reader,
            reader.base_offset,
            None,
            segment.tail.observed_ms,
            Selection(["key"], query.check_crcs),
            max_leader_epoch=query.max_leader_epoch,
        )
        keys = SegmentKeys(None, KeyMap.of_batches(segment.name.base_offset, batches), reader)
        assert keys.map is not None
        _log.debug("%s: read %d keys", reader.path, keys.map.record_count)
        _forget_ranges(reader)
        self._keep(segment, keys)
        return keys

    def _keep(self, segment: _Segment, keys: SegmentKeys) -> None:
        tail_bytes = segment.tail.size_bytes
        self._kept.keep(segment.name, keys, lambda size: self._share.fits(size + tail_bytes))

    # --- the log's end ---------------------------------------------------------------------------

    @property
    def _transactions(self) -> TransactionIndex:
        assert self._state is not None
        return self._state.transactions

    def _follow(self, query: KeyQuery) -> TailView:
        """Return the log as it is now."""
        while True:
            tail, self._tail = self._tail, None  # until all is replayed
            needs_state = query.is_committed and self._state is None
            is_new = tail is None or not tail.is_valid or tail.is_behind or needs_state
            if tail is None or is_new:
                tail = self._observe(with_state=query.is_committed or self._state is not None)
            while (reader := tail.open_at(tail.log_end_offset)) is not None:
                _check_epoch(reader.leader_epoch, query.max_leader_epoch)
                self._replay(reader, tail)
            if is_new or tail.is_valid:
                self._tail = tail
                return tail

    def _observe(self, *, with_state: bool) -> TailView:
        view, last = self._directory.observe_and_open()
        if with_state:
            observed = view
            self._state, view = self._snapshots.transactions(view, self._state)
            compact_aborted(self._transactions, view)
            last = last if view is observed else None
        self._snapshots.load_segment_ids(view)
        self._kept.keep_only({segment.name for segment in view.live.segments})
        return TailView(self._directory, view, last)

    def _replay(self, reader: SegmentReader, tail: TailView) -> None:
        """Replay the headers of a segment that was found behind the listing."""
        state = self._state
        if state is None or reader.end_offset <= state.offset:
            return
        self._state = None  # until all headers are replayed
        for _, headers in reader.all_headers():
            state.replay(reader.base_offset, headers, NOT_LISTED_US)
        self._directory.check_unchanged(reader, tail.observed_ms)
        state.offset = max(state.offset, reader.end_offset)
        self._state = state


class _Segment(NamedTuple):
    """A segment to look in, and the transactions that decide which of its records count."""

    tail: TailView
    name: SegmentName
    start_offset: int
    transactions: TransactionIndex | None

    def open(self) -> SegmentReader:
        """Open the segment.

        Raises:
            NotFoundError: it was rewritten and deleted, or the listing is not valid any more.
        """
        reader = self.tail.open_at(self.start_offset)
        if reader is None:
            raise NotFoundError(f"{self.name.file_name} is not part of the log any more")
        return reader


class _LostIndexError(Exception):
    """A key index cannot be read any more.

    Attributes:
        error: the reason.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def _rows(index: KeyIndex, key_hash: int) -> Iterator[int]:
    """Yield the rows that an index gives for a hash, the newest first."""
    try:
        yield from index.rows(key_hash)
    except (NotFoundError, ValueError) as error:
        raise _LostIndexError(error) from error


def _forget_ranges(reader: SegmentReader) -> None:
    """Release what was read of a large segment on an object store. The reader itself is kept."""
    if not reader.is_in_memory:
        reader.forget()


def _check_epoch(leader_epoch: int, max_leader_epoch: int | None) -> None:
    if max_leader_epoch is not None and leader_epoch > max_leader_epoch:
        raise NewerLeaderEpochError
