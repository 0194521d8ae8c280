"""Variants of stripes without one of their safety rules."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from spark_log.errors import (
    InvalidProducerEpochError,
    OutOfOrderSequenceError,
    SparkLogError,
    StorageError,
)
from spark_log.log.directory import LogView
from spark_log.log.files import SegmentName
from spark_log.log.producers import ProducerState, TransactionIndex
from spark_log.log.segment import SegmentReader
from spark_log.log.snapshot import Snapshot
from spark_log.log.stripe import appender, freeing, home
from spark_log.log.stripe.appender import StripeAppender, _Append
from spark_log.log.stripe.directory import StripeDirectory, StripeListing
from spark_log.log.stripe.entry import StripeEntry, entries_of_one_object
from spark_log.log.stripe.home import HomeTaker, PlacedBatches
from spark_log.log.stripe.home_marker import encode_home
from spark_log.log.stripe.reader import StripeReader
from spark_log.log.stripe.state import UNKNOWN_OFFSET, StripeState
from spark_log.log.stripe.stripe_object import StripeObject
from spark_log.log.stripe.striped_directory import StripedDirectory
from spark_log.log.stripe.striped_log import StripedSnapshots
from spark_log.log.stripe.tail import StripeTail
from spark_log.record import EndTransactionMarker
from spark_log.storage import FileInfo
from tests.simulation.patches import Patch, PatchVariant

_decide = StripeState.decide
_put_segments, _put_marker = HomeTaker.put_segments, HomeTaker.put_marker
_begin_at, _poll = StripeTail.begin_at, StripeReader.poll
_open_again, _on_object = StripeReader.open_again, StripeReader.on_object
_open, _newest = StripedDirectory.open, StripedSnapshots.newest


def _without(*patches: Patch) -> PatchVariant:
    return PatchVariant(patches)


# --- appending -----------------------------------------------------------------------------------


def _take_next_number(self: StripeAppender, append: _Append) -> None:
    """Lose a race, and try the next number with the same entries."""
    append.puts.clear()
    self._tail.state.next_number += 1


def _hope(self: StripeAppender, append: _Append) -> None:
    """Take a put whose answer was lost for a success."""
    staged = append._staged
    assert staged is not None
    append.puts.clear()
    offsets = self._tail.on_own_object(staged[2], self._clock.monotonic_ms())
    append.succeed(staged[1], staged[2].headers, offsets)


def _give_up(self: StripeAppender, append: _Append) -> None:
    """Take a put whose answer was lost for a failure."""
    append.puts.clear()
    path = self._directory.path
    raise StorageError(f"{path}: nothing was appended", path=path)


def _recognise_nothing(self: StripeAppender, found: StripeObject, offsets: object) -> None:
    pass


def _forget_what_was_unseen(self: _Append, *, was_seen: bool) -> None:
    self.puts.clear()


def _always(*_: object, **__: object) -> bool:
    return True


def _never(*_: object) -> bool:
    return False


def _all_waiting(entries: Sequence[StripeEntry], waiting: Iterable[int]) -> list[int]:
    return sorted(waiting, key=lambda index: entries[index].partition)


def _put_conditional_behind_others(
    entries: Sequence[StripeEntry], waiting: Iterable[int]
) -> list[int]:
    return entries_of_one_object(
        [replace(each, expected_end_offset=None) for each in entries], waiting
    )


def _expire_by_own_clock(self: StripeAppender, entry: StripeEntry) -> int | SparkLogError | None:
    return self._tail.state.decide(
        entry,
        now_us=self._clock.time_us(),
        expiration_ms=self._directory.config.producer_id_expiration_ms,
        where=self._directory.path,
    )


def _put_marker_by_own_clock(self: HomeTaker) -> None:
    self._tail.storage_us = self._directory.clock.time_us()
    _put_marker(self)


def _forget_repeats(
    self: StripeState, entry: StripeEntry, **how: Any
) -> int | SparkLogError | None:
    found = _decide(self, entry, **how)
    is_marker = isinstance(entry.content, EndTransactionMarker)
    is_forgotten = isinstance(found, int | OutOfOrderSequenceError)
    return None if is_forgotten and not is_marker else found


def _forget_epochs(self: StripeState, entry: StripeEntry, **how: Any) -> int | SparkLogError | None:
    found = _decide(self, entry, **how)
    return None if isinstance(found, InvalidProducerEpochError) else found


def _forget_markers(
    self: StripeState, entry: StripeEntry, **how: Any
) -> int | SparkLogError | None:
    found = _decide(self, entry, **how)
    return None if found == UNKNOWN_OFFSET else found


# --- the known end -------------------------------------------------------------------------------


def _was_ever_observed(self: StripeDirectory, observed_ms: float) -> bool:
    return observed_ms == -math.inf


def _oldest_marker(self: StripeListing) -> int:
    return min((name.number for name, _ in self.files if name.is_home), default=0)


def _stay(self: StripeTail, number: int) -> None:
    """Begin at a home marker only if nothing is known."""
    if self.state.next_number == 0:
        _begin_at(self, number)


# --- home ----------------------------------------------------------------------------------------


def _put_no_segments(self: HomeTaker, records: Mapping[int, list[PlacedBatches]]) -> None:
    pass


def _put_marker_first(self: HomeTaker) -> None:
    _put_marker(self)
    _put_segments(self, self._records)


def _put_segments_without_the_last(
    self: HomeTaker, records: Mapping[int, list[PlacedBatches]]
) -> None:
    """Put home all but the last batches of each partition, as if more could not come."""
    _put_segments(self, {partition: each[:-1] or each for partition, each in records.items()})


def _home_without(what: str) -> Any:
    def encode(state: StripeState, **how: Any) -> pa.Buffer:
        kept = {}
        for partition, producers in state.partitions():
            index = producers.transactions
            entries = () if what == "producers" else tuple(producers.entries())
            opened = () if what == "transactions" else index.open
            kept[partition] = type(producers)(
                producers.offset,
                entries,
                type(index)(producers.offset, open_transactions=opened),
            )
        return encode_home(StripeState(state.next_number, kept), **how)

    return encode


def _any_marker(listing: StripeListing, old_us: int) -> int:
    return listing.home_number


# --- reading -------------------------------------------------------------------------------------


def _list_home_first(self: StripedDirectory) -> list[FileInfo]:
    """List what is at home, then the stripe, and take what both show for the log."""
    files = [*self.at_home.list_files()]
    self.stripe.poll()
    return [*files, *map(self._entries, self.stripe.places(self.partition)[0])]


def _join_any_poll(self: StripeReader) -> None:
    """Take a poll for this one that another thread had begun before."""
    if self._turn.locked():
        with self._turn:
            return
    _poll(self)


def _open_any(self: StripeReader, number: int, append_id: str) -> StripeObject:
    """Open an object again, whatever the number has now."""
    found = self.directory.open(number)
    if found is None:
        return _open_again(self, number, append_id)
    self._keep(found)
    return found


def _forget_some(self: StripeReader, found: StripeObject, offsets: np.ndarray) -> None:
    """Keep the places of the last objects alone."""
    _on_object(self, found, offsets)
    self._forget_before(found.number - 1)


def _open_silently(
    self: StripedDirectory, name: SegmentName, size_bytes: int | None = None
) -> SegmentReader:
    """Open entries; where they are at home, tell nobody that the log is longer."""
    if name.last_offset is None:
        return self.stripe.open(self.partition, name.base_offset)
    return _open(self, name, size_bytes)


def _newest_with(**changes: Any) -> Any:
    def newest(self: StripedSnapshots, view: LogView) -> Snapshot | None:
        found = _newest(self, view)
        if found is None:
            return None
        index = found.producers.transactions
        how = {"open_transactions": index.open, "unlisted": index.unlisted} | changes
        known = TransactionIndex(found.offset, aborted=index.aborted, **how)
        producers = ProducerState(found.offset, found.producers.entries(), known)
        return Snapshot(found.offset, found.segments, producers)

    return newest


STRIPES_RULES: dict[str, PatchVariant] = {
    "state before put": _without((StripeAppender, "on_lost_race", _take_next_number)),
    "an unknown outcome is no success": _without((StripeAppender, "on_unknown_outcome", _hope)),
    "an unknown outcome is no failure": _without((StripeAppender, "on_unknown_outcome", _give_up)),
    "an object is recognised by its append id": _without(
        (StripeAppender, "on_object", _recognise_nothing)
    ),
    "an object that went home unseen may have been put": _without(
        (_Append, "settle", _forget_what_was_unseen)
    ),
    "a repeat is recognised": _without((StripeState, "decide", _forget_repeats)),
    "an older epoch is fenced": _without((StripeState, "decide", _forget_epochs)),
    "a marker is put once": _without((StripeState, "decide", _forget_markers)),
    "of one producer an object has consecutive entries": _without(
        (appender, "entries_of_one_object", _all_waiting)
    ),
    "a conditional entry is the first of its partition in an object": _without(
        (appender, "entries_of_one_object", _put_conditional_behind_others)
    ),
    "producers expire by the storage's time": _without(
        (StripeAppender, "decision", _expire_by_own_clock),
        (HomeTaker, "put_marker", _put_marker_by_own_clock),
    ),
    "a refusal counts after a listing": _without((appender, "may_be_short", _never)),
    "a success is final within half the delay": _without((StripeAppender, "is_final", _always)),
    "what was observed counts for half the delay": _without(
        (StripeDirectory, "is_outdated", _was_ever_observed)
    ),
    "the newest home marker counts": _without(
        (StripeListing, "home_number", property(_oldest_marker))
    ),
    "a process that was away begins again at the marker": _without((StripeTail, "begin_at", _stay)),
    "files are at home before the marker": _without(
        (HomeTaker, "put_segments", _put_no_segments),
        (HomeTaker, "put_marker", _put_marker_first),
    ),
    "all entries go home": _without((HomeTaker, "put_segments", _put_segments_without_the_last)),
    "a home marker has the producers": _without((home, "encode_home", _home_without("producers"))),
    "a home marker has the open transactions": _without(
        (home, "encode_home", _home_without("transactions"))
    ),
    "numbers are freed after the delay": _without((freeing, "freed_below", _any_marker)),
    "the stripe is read before the files at home": _without(
        (StripedDirectory, "list_files", _list_home_first)
    ),
    "an object is opened again by its append id": _without((StripeReader, "open_again", _open_any)),
    "places are forgotten below a home marker alone": _without(
        (StripeReader, "on_object", _forget_some)
    ),
    "a poll that another thread began earlier does not count": _without(
        (StripeReader, "poll", _join_any_poll)
    ),
    "a view is short where the next records are at home": _without(
        (StripedDirectory, "open", _open_silently)
    ),
    "the snapshot of a home marker has the open transactions": _without(
        (StripedSnapshots, "newest", _newest_with(open_transactions=()))
    ),
    "the snapshot of a home marker leaves aborted transactions to the headers": _without(
        (StripedSnapshots, "newest", _newest_with(unlisted=()))
    ),
}
"""The name of each safety rule, and the variant without it."""
