"""Reads of a partition: one replica, up to the high watermark; the next one if that one fails."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

from spark_log.errors import NotFoundError
from spark_log.log.chain.partition_state import PartitionState
from spark_log.log.chain.replica_failure import ReplicaFailedError, blaming
from spark_log.log.chain.replica_selection import MAX_REWRITES, ReplicaSelection
from spark_log.log.directory import DirectoryListing, LogView
from spark_log.log.local_log import LocalLog
from spark_log.log.read import Batches, NewerLeaderEpochError
from spark_log.log.segment import LogBatch

_Answer = TypeVar("_Answer")


class ReplicatedReader:
    """Calls functions that read one replica; if it fails, continues with another one.

    A replica that fails is taken out of the in-sync replicas, which changes the metadata. If the
    log shows a newer leader epoch than the known state, the metadata are read, and the replica is
    chosen again.
    """

    def __init__(self, selection: ReplicaSelection, check_root: Callable[[int], None]) -> None:
        """Access no storage yet.

        Args:
            selection: chooses the replica.
            check_root: raises a `StorageError` if the root of a broker id does not exist any more.
        """
        self._selection = selection
        self._check_root = check_root

    @property
    def reached_offset(self) -> int:
        """The highest offset up to which it is known that the log can be read."""
        reached_offset = self._selection.replica.files.reached_offset
        return int(min(reached_offset, self._selection.high_watermark_cap))

    # --- listings --------------------------------------------------------------------------------

    def observe(self, *, keeps_for_next_read: bool = False) -> LogView:
        """Return the log as it is now, up to the high watermark.

        Args:
            keeps_for_next_read: whether the listing is kept, so that the next read begins with it.
        """
        listing = self._list(
            lambda log: DirectoryListing(log.observe(keeps_for_next_read=keeps_for_next_read))
        )
        return self._up_to_high_watermark(listing.view)

    def observe_files(self) -> tuple[LogView, PartitionState | None, DirectoryListing]:
        """Return the log as `observe` does, the state that it was read under, and the listing."""
        listing = self._list(lambda log: log.files.observe_files())
        return self._up_to_high_watermark(listing.view), self._selection.state, listing

    def _list(self, list_replica: Callable[[LocalLog], DirectoryListing]) -> DirectoryListing:
        """List the replica to be read, at a leader epoch that the metadata have."""
        self._selection.refresh(max_age_ms=0)
        failover, rewrites = self._selection.failover(), 0
        while True:
            state = self._selection.known_state
            try:
                with blaming(state.chain[-1]):
                    listing = list_replica(self._selection.replica)
                    if not listing.view.log_end_offset:
                        self._check_root_exists()
                    if not self._selection.is_newer(listing.view):
                        return listing
            except ReplicaFailedError as failed:
                rewrites += 1
                if isinstance(failed.error, NotFoundError) and rewrites <= MAX_REWRITES:
                    continue  # rewritten since it was listed
                failover.leave_out(state, failed)
                self._selection.refresh(max_age_ms=0)
            else:
                self._selection.refresh_epoch()

    def _check_root_exists(self) -> None:
        """Check that the root of the replica that is read, which has no records, exists."""
        state = self._selection.state
        if state is not None and state.is_replicated:
            self._check_root(state.chain[-1])

    def _up_to_high_watermark(self, view: LogView) -> LogView:
        """Return the part of a view that readers see."""
        end_offset = self._selection.high_watermark_cap
        if view.log_end_offset <= end_offset:
            return view
        segments = (each for each in view.live.segments if each.start_offset < end_offset)
        return replace(
            view,
            live=replace(view.live, segments=tuple(segments)),
            log_end_offset=max(int(end_offset), view.log_start_offset),
            leader_epoch=None,
        )

    # --- lookups and records ---------------------------------------------------------------------

    def call(self, view: LogView | None, read: Callable[[LocalLog, LogView], _Answer]) -> _Answer:
        """Return what a function reads from the chosen replica, or from the next one if it fails.

        Args:
            view: a view of the log. The log is listed if this is None, or a view of another
                replica.
            read: reads from the replica, given the replica and a view of it.
        """
        failover = self._selection.failover()
        while True:
            here = self.observe() if view is None else self._view_of_replica(view)
            state = self._selection.known_state
            try:
                with blaming(state.chain[-1]):
                    return read(self._selection.replica, here)
            except NewerLeaderEpochError:
                self._selection.refresh_epoch()
            except ReplicaFailedError as failed:
                failover.leave_out(state, failed)
                self._selection.refresh()

    def _view_of_replica(self, view: LogView) -> LogView:
        """Return the view if it is of the replica that is read now; else list this replica."""
        url = self._selection.replica.files.url
        return view if view.origin in ("", url) else self.observe()

    def tail_ends_at(self, offset: int) -> bool:
        """Return whether the log still ends at the offset that a ``read_uncommitted`` read reached.

        Any thread may call it.

        Returns:
            False also if only a new listing, or a read of the metadata, could tell.
        """
        if self._selection.is_refresh_due():
            return False
        if offset >= self._selection.high_watermark_cap:
            return True
        try:
            with blaming(self._selection.known_state.chain[-1]):
                return self._selection.replica.tail_ends_at(offset)
        except ReplicaFailedError:
            return False  # the next read leaves the replica out

    def stream(self, offset: int, stream_replica: Callable[[LocalLog, int], Batches]) -> Batches:
        """Yield batches from an offset to the high watermark, each with the offset after it.

        Args:
            offset: the first record's offset.
            stream_replica: yields the batches of a replica from an offset on.
        """
        failover = self._selection.failover()
        while True:
            self._selection.refresh_if_due()
            state = self._selection.known_state
            if offset >= self._selection.high_watermark_cap:
                return
            try:
                with blaming(state.chain[-1]):
                    for batch, next_offset in self._stream(offset, stream_replica):
                        yield batch, next_offset
                        offset = next_offset
                    return
            except NewerLeaderEpochError:
                self._selection.refresh_epoch()
            except ReplicaFailedError as failed:
                failover.leave_out(state, failed)

    def _stream(self, offset: int, stream_replica: Callable[[LocalLog, int], Batches]) -> Batches:
        """Yield batches of the replica in the reader's rack, or else of the last one."""
        near, begin = self._selection.near, offset
        if near is not None:
            if self._is_at_end(offset):
                return
            with self._selection.leaving_near():
                for batch, next_offset in stream_replica(near, offset):
                    if next_offset > self.reached_offset:
                        break
                    yield batch, next_offset
                    offset = next_offset
            if offset > begin:
                return
        for batch, next_offset in stream_replica(self._selection.replica, offset):
            if next_offset > self._selection.high_watermark_cap:
                return
            yield batch, next_offset
            offset = next_offset

    def _is_at_end(self, offset: int) -> bool:
        """Return whether the last replica ends at an offset; if not, list it to learn its end."""
        replica = self._selection.replica
        if offset < replica.files.reached_offset:
            return False
        if replica.tail_ends_at(offset):
            return True
        replica.observe()
        return False

    def scan(
        self,
        start_offset: int,
        end_offset: int | None,
        scan_replica: Callable[[LocalLog, int, int | None], Iterator[LogBatch]],
    ) -> Iterator[LogBatch]:
        """Yield batches between two offsets, up to the high watermark, without control batches.

        Args:
            start_offset: the first record's offset.
            end_offset: the offset after the last record; None reads to the log's end.
            scan_replica: yields the batches of a replica between two offsets.
        """
        failover = self._selection.failover()
        while True:
            self._selection.refresh_if_due()
            end, state = self._selection.high_watermark_cap, self._selection.known_state
            if end_offset is not None:
                end = min(end_offset, end)
            try:
                with blaming(state.chain[-1]):
                    for batch in scan_replica(
                        self._selection.replica, start_offset, None if end == math.inf else int(end)
                    ):
                        yield batch
                        start_offset = batch.end_offset
                    return
            except NewerLeaderEpochError:
                self._selection.refresh_epoch()
            except ReplicaFailedError as failed:
                failover.leave_out(state, failed)
