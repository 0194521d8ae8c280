"""Variants of stripes without one safety rule."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress

from spark_log.errors import AlreadyExistsError, StorageError
from spark_log.storage import FileInfo, Store
from spark_log.util.clock import Clock
from tests.simulation.patches import Patch, PatchVariant
from tests.simulation.stripes import stripe as prototype
from tests.simulation.stripes.stripe import (
    HoleError,
    StripeReader,
    StripeTail,
    StripeWriter,
    number_of,
    put_home,
    read_home,
    stripe_directory,
)
from tests.simulation.stripes.stripe_state import Entry, Refusal, StripeState

_put, _list, _check = StripeWriter._put, StripeTail._list, StripeState.check


def _go_to_next_number(self: StripeWriter) -> None:
    """Lose a race, and try the next number with the same entries."""
    self.tail.state.next_number += 1


def _put_and_hope(self: StripeWriter, entries: Sequence[Entry]) -> bool:
    self.on_unknown_outcome = _raise  # type: ignore[method-assign]
    try:
        return _put(self, entries)
    except _UnknownError:
        return True


class _UnknownError(Exception):
    """The outcome of a put is unknown."""


def _raise() -> None:
    raise _UnknownError


def _always(*_: object) -> bool:
    return True


def _was_ever_observed(_: Clock, observed_ms: float) -> bool:
    return observed_ms > float("-inf")


def _forget_repeats(self: StripeState, entry: Entry) -> int | Refusal | None:
    known = self.producers.get((entry.partition, entry.producer_id))
    is_fenced = known is not None and entry.epoch < known.epoch
    return Refusal.FENCED if is_fenced else None


def _forget_epochs(self: StripeState, entry: Entry) -> int | Refusal | None:
    found = _check(self, entry)
    return None if found is Refusal.FENCED else found


def _begin_at_any_marker(self: StripeTail) -> None:
    """Begin at the oldest marker that is listed."""
    asked_ms = self._clock.monotonic_ms()
    files = self._store.list(stripe_directory(self._stripe))
    markers = [file for file in files if file.name.endswith(".home")]
    if markers and number_of(markers[0].name) > self.state.next_number:
        content = self._store.open_buffer(markers[0].path).to_pybytes()
        self.home = StripeState.decode(content)
        self.state = self.home.copy()
        self.batches.clear()
    self.observed_ms = asked_ms


def _keep_what_is_known(self: StripeTail) -> None:
    """Look at markers only if nothing is known."""
    if self.state.next_number == 0:
        _list(self)
    else:
        self.observed_ms = self._clock.monotonic_ms()


def _mark_first(store: Store, stripe: int, clock: Clock) -> None:
    """Put the marker, then the files at home."""
    tail = StripeTail(store, stripe, clock)
    tail.refresh()
    if tail.state.next_number > tail.home.next_number:
        with suppress(AlreadyExistsError):
            store.put_if_absent(tail.path(".home"), tail.state.encode())
        put_home(store, tail.batches)


def _put_home_over(
    store: Store, batches: Mapping[int, Sequence[tuple[int, tuple[str, ...]]]]
) -> None:
    """Put home all but the last batch of each partition, as if more could not come."""
    for partition, placed in sorted(batches.items()):
        values = [value for _, batch in placed[:-1] or placed for value in batch]
        name = f"{placed[0][0]:08}-{placed[0][0] + len(values) - 1:08}.log"
        with suppress(AlreadyExistsError):
            content = json.dumps(values).encode()
            store.put_if_absent(f"{prototype.partition_directory(partition)}/{name}", content)


def _is_marker(file: FileInfo, now_us: int) -> bool:
    return file.name.endswith(".home")


def _read_home_first(self: StripeReader, partition: int, offset: int) -> list[str]:
    """List the files at home, then the stripe, and take what both showed for the log."""
    try:
        return read_home(self._store, partition, offset)
    except (HoleError, StorageError):
        self._tail.refresh()
        return self.read_tail(partition, offset)


def _without(*patches: Patch) -> PatchVariant:
    return PatchVariant(patches)


STRIPES_RULES = {
    "state before put": _without((StripeWriter, "on_lost_race", _go_to_next_number)),
    "an unknown outcome is no success": _without((StripeWriter, "_put", _put_and_hope)),
    "a repeat is recognised": _without((StripeState, "check", _forget_repeats)),
    "an older epoch is fenced": _without((StripeState, "check", _forget_epochs)),
    "a success is final within half the delay": _without((StripeWriter, "is_final", _always)),
    "what was observed counts for half the delay": _without(
        (prototype, "is_valid", _was_ever_observed)
    ),
    "the newest marker counts": _without((StripeTail, "_list", _begin_at_any_marker)),
    "who was away begins again at the marker": _without((StripeTail, "_list", _keep_what_is_known)),
    "files are at home before the marker": _without((prototype, "take_home", _mark_first)),
    "all entries go home": _without((prototype, "put_home", _put_home_over)),
    "numbers are freed after the delay": _without((prototype, "is_old_marker", _is_marker)),
    "the stripe is read before the files at home": _without(
        (StripeReader, "read", _read_home_first)
    ),
}
"""The name of each safety rule, and the variant without it."""
