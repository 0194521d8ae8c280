"""The order in which the partitions of a stripe are read."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

from spark_log.consumer.fetch.fetch_cursor import FetchCursor
from spark_log.consumer.fetch.stripe_end import StripeEnd


class StripeTurns:
    """Queues partitions whose next records are known to be in a stripe.

    Of a stripe, the partition whose next record is in the oldest object is read first, and not
    beyond the objects that stay open. So the partitions follow the objects together, and each
    object is opened once for all of them, however far behind they are. Stripes take turns.
    """

    def __init__(self) -> None:
        """Begin without partitions."""
        self._queues: OrderedDict[str, list[tuple[int, int, FetchCursor]]] = OrderedDict()
        self._added = count()

    def any(self) -> bool:
        """Return whether a partition is queued."""
        return bool(self._queues)

    def has(self, end: StripeEnd, may_fetch: Callable[[FetchCursor], bool]) -> bool:
        """Return whether a partition of a stripe is queued that may be read; see `pop`."""
        queue = self._queues.get(end.path, [])
        while queue and not may_fetch(queue[0][2]):
            heappop(queue)[2].is_queued = False
        if not queue:
            self._queues.pop(end.path, None)
        return bool(queue)

    def add(self, end: StripeEnd, cursor: FetchCursor) -> bool:
        """Queue a partition; return False if its next record is not known to be in the stripe."""
        number = end.reader.number_at(cursor.partition.partition, cursor.offset)
        if number is None:
            return False
        queue = self._queues.setdefault(end.path, [])
        heappush(queue, (number, next(self._added), cursor))
        return True

    def pop(self, may_fetch: Callable[[FetchCursor], bool]) -> FetchCursor | None:
        """Return the next partition, with the object before which its turn ends; None without one.

        Args:
            may_fetch: whether a partition is read in its present state. If not, it is dropped; it
                is queued again by the change that makes it fetchable.
        """
        while self._queues:
            path, queue = self._queues.popitem(last=False)
            number, _, cursor = heappop(queue)
            if queue:
                self._queues[path] = queue
            cursor.is_queued = False
            if may_fetch(cursor) and cursor.stripe is not None:
                cursor.until_number = number + cursor.stripe.objects_in_turn
                return cursor
        return None
