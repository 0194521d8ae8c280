"""Variants of stripes without one of their safety rules."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from spark_log.errors import (
    InvalidProducerEpochError,
    NotFoundError,
    OutOfOrderSequenceError,
    SparkLogError,
    StorageError,
)
from spark_log.log.directory import LogView
from spark_log.log.read import Batches
from spark_log.log.stripe import appender, freeing, home
from spark_log.log.stripe.appender import StripeAppender, _Append
from spark_log.log.stripe.directory import StripeDirectory, StripeListing
from spark_log.log.stripe.entry import StripeEntry
from spark_log.log.stripe.home import HomeTaker, PlacedBatches
from spark_log.log.stripe.home_marker import encode_home
from spark_log.log.stripe.reader import Place, StripeReader
from spark_log.log.stripe.state import UNKNOWN_OFFSET, StripeState
from spark_log.log.stripe.stripe_object import StripeObject
from spark_log.log.stripe.tail import StripeTail
from spark_log.record import EndTransactionMarker
from tests.simulation.patches import Patch, PatchVariant

_decide = StripeState.decide
_put_segments, _put_marker = HomeTaker.put_segments, HomeTaker.put_marker
_poll, _begin_at = StripeReader.poll, StripeTail.begin_at
_end_offset = StripeReader.end_offset


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


def _all_waiting(entries: Sequence[StripeEntry], waiting: Iterable[int]) -> list[int]:
    return sorted(waiting, key=lambda index: entries[index].partition)


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


def _list_home_first(self: StripeReader) -> None:
    """List what is at home, then the stripe."""
    stripe, views = self._directory.stripe, {}
    for partition in (stripe, stripe + 2):
        log = self._homes.setdefault(partition, self._open_home(partition))
        views[partition] = log.observe()
    _poll(self)
    self._views = views


def _read_listed_home(
    self: StripeReader,
    known: object,
    partition: int,
    offset: int,
    end_offset: int,
    check_crcs: bool,
    **_: object,
) -> Batches:
    view: LogView | None = self._views.get(partition)
    if view is not None and view.log_end_offset < end_offset:
        yield None, end_offset  # take what both showed for the log
        return
    yield from _read_home(self, known, partition, offset, end_offset, check_crcs, **_)


_read_home: Any = StripeReader.read_home


def _read_home_alone(
    self: StripeReader,
    known: Any,
    partition: int,
    offset: int,
    end_offset: int,
    check_crcs: bool,
    *,
    is_committed: bool,
) -> Batches:
    """Leave out aborted transactions only by the markers at home."""
    index = known.tail.state.transactions(partition)
    aborted = index.aborted
    index.forget_aborted()
    try:
        yield from _read_home(
            self, known, partition, offset, end_offset, check_crcs, is_committed=is_committed
        )
    finally:
        index.add_aborted(aborted)


def _log_end(self: StripeReader, partition: int, **_: object) -> int:
    return _end_offset(self, partition)


def _open_any(self: StripeReader, place: Place) -> StripeObject:
    """Open an object again, whatever the number has now."""
    found = self._directory.open(place.number)
    if found is None:
        raise NotFoundError(place.append_id, path=place.append_id)
    return found


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
    "a refusal counts after a listing": _without((appender, "OFTEN_SHORT_OF", ())),
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
        (StripeReader, "poll", _list_home_first), (StripeReader, "read_home", _read_listed_home)
    ),
    "an object is opened again by its append id": _without((StripeReader, "open_again", _open_any)),
    "a read of committed records ends at the last stable offset": _without(
        (StripeReader, "end_offset", _log_end)
    ),
    "a marker in the stripe aborts records at home": _without(
        (StripeReader, "read_home", _read_home_alone)
    ),
}
"""The name of each safety rule, and the variant without it."""
