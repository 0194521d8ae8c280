"""The end of a stripe, which a fetch loop probes once for all of the stripe's partitions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from spark_log.consumer.fetch.fetch_cursor import FetchCursor
from spark_log.log import ProbeInterval

if TYPE_CHECKING:
    from spark_log.log.stripe import StripeReader

_REST_PER_STRIPE: Final = 0.6
"""Share of the pause at rest that each stripe adds: all stripes of a loop together cost fewer than
two requests a second, with the listings that they need from time to time."""


class StripeEnd:
    """The end of a stripe, as one fetch loop probes it. Its cursors that are at their ends wait.

    The methods are called while the fetcher's lock is held, but for `StripeReader.poll`.

    Attributes:
        reader: what the process has read of the stripe. The loop polls it.
        cursors: the cursors of partitions of the stripe; a dict as an ordered set.
        due_ms: the monotonic time of the next probe.
        records_ms: the monotonic time of the newest entries of these partitions.
        failures: the number of failed probes in a row.
        gives_hints: whether the operating system reports changes of the stripe's directory.
    """

    def __init__(self, reader: StripeReader, now_ms: float) -> None:
        """Wait for records from now on.

        Args:
            reader: what the process has read of the stripe.
            now_ms: monotonic time.
        """
        self.reader = reader
        self.cursors: dict[FetchCursor, None] = {}
        self.due_ms = 0.0
        self.records_ms = now_ms
        self.failures = 0
        self.gives_hints = False
        self._seen_number = -1

    @property
    def path(self) -> str:
        """The stripe's directory."""
        return self.reader.directory.path

    def is_probed(self, may_fetch: Callable[[FetchCursor], bool]) -> bool:
        """Return whether a partition waits for the next entries.

        Args:
            may_fetch: whether a partition is read in its present state.
        """
        return any(cursor.is_at_end and may_fetch(cursor) for cursor in self.cursors)

    def known_end(self, cursor: FetchCursor) -> int:
        """Return the log end offset of a partition as the last poll has shown it."""
        return self.reader.end_offset(cursor.partition.partition)

    def take_grown(self) -> list[FetchCursor]:
        """Return the waiting cursors that have more to read since they were read."""
        number = self.reader.next_number
        if number == self._seen_number:
            return []
        self._seen_number = number
        return [
            cursor
            for cursor in self.cursors
            if cursor.is_at_end and self.known_end(cursor) > cursor.seen_end
        ]

    def pause_ms(self, probes: ProbeInterval, now_ms: float, stripes: int) -> float:
        """Return the pause before the next probe: that of one partition, whatever their number.

        Args:
            probes: the probe interval of the store.
            now_ms: monotonic time.
            stripes: the number of stripes of the loop.
        """
        waited_ms = now_ms - self.records_ms
        if probes.is_at_rest(waited_ms):
            return probes.rest_ms * max(1.0, stripes * _REST_PER_STRIPE)
        return probes.pause_ms(waited_ms, stripes)


def next_due_ms(
    ends: Iterable[StripeEnd], may_fetch: Callable[[FetchCursor], bool]
) -> tuple[float, StripeEnd | None]:
    """Return when the next probe is due, and of which stripe; infinity and None without one."""
    probed = [end for end in ends if end.is_probed(may_fetch)]
    first = min(probed, key=lambda end: end.due_ms, default=None)
    return (math.inf, None) if first is None else (first.due_ms, first)
