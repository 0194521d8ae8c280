"""`Console`: one opened root and its caches, shared by all pages."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from spark_log.admin import Admin
from spark_log.cluster import Cluster, TopicTables
from spark_log.console.activity import Activity, MergedAppends
from spark_log.console.budget import Budget
from spark_log.console.checkup import Checkup
from spark_log.console.observations import ObservationCache
from spark_log.console.settings import ConsoleSettings
from spark_log.coordinator import PartitionKey
from spark_log.errors import SparkLogError, UnknownTopicOrPartitionError
from spark_log.log import LogView
from spark_log.metadata import TopicImage
from spark_log.storage import map_requests
from spark_log.types import TransactionDescription
from spark_log.util import Clock

if TYPE_CHECKING:
    from spark_log.log.stripe import Stripe

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_MAX_RATES: Final = 10_000
_RATE_MS: Final = 60_000
"""Maximum time over which a rate is measured, if its page is read often."""


class Rates:
    """Growth rates of numbers, measured between the reads of pages. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: OrderedDict[str, list[tuple[float, int]]] = OrderedDict()
        self._lock = threading.Lock()

    def per_second(self, name: str, value: int) -> float | None:
        """Return the growth per second since the number was read before; None the first time.

        A number is forgotten after `_MAX_RATES` other numbers were read.
        """
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            seen = self._seen.setdefault(name, [])
            self._seen.move_to_end(name)
            if len(self._seen) > _MAX_RATES:
                self._seen.popitem(last=False)
            while len(seen) > 1 and (seen[0][0] < now_ms - _RATE_MS or len(seen) > 60):
                del seen[0]
            if not seen or now_ms - seen[-1][0] >= 500:
                seen.append((now_ms, value))
            then_ms, before = seen[0]
        elapsed_ms = now_ms - then_ms
        return max(0, value - before) / elapsed_ms * 1000 if elapsed_ms >= 500 else None


@dataclass(frozen=True, slots=True)
class Console:
    """The root, and the caches of its pages.

    Attributes:
        cluster: the opened root.
        admin: the `Admin` of the same root.
        settings: the settings of the console.
        rates: the append rates of topics.
        activities: the activity of each partition; None for a partition that cannot be read.
        merged: the times of the appends in merged segments.
        transactions: the transactions by transactional id; None for an id that has expired or
            cannot be read.
        checkup: the checkup of the root.
        tables: the Delta tables of topics.
        stripes: topic id → its stripes, so that what was read of them is kept between pages.
    """

    cluster: Cluster
    admin: Admin
    settings: ConsoleSettings
    rates: Rates = field(init=False)
    activities: ObservationCache[PartitionKey, Activity | None] = field(init=False)
    merged: MergedAppends = field(init=False)
    transactions: ObservationCache[str, TransactionDescription | None] = field(init=False)
    checkup: Checkup = field(init=False)
    tables: TopicTables = field(init=False)
    stripes: dict[str, list[Stripe]] = field(init=False)

    def __post_init__(self) -> None:
        clock = self.cluster.clock
        object.__setattr__(self, "rates", Rates(clock))
        object.__setattr__(self, "activities", ObservationCache(clock))
        object.__setattr__(self, "merged", MergedAppends())
        object.__setattr__(self, "transactions", ObservationCache(clock))
        object.__setattr__(self, "checkup", Checkup(self.cluster))
        object.__setattr__(self, "tables", TopicTables(self.cluster))
        object.__setattr__(self, "stripes", {})

    def map(
        self, read: Callable[[_Item], _Result], items: Collection[_Item], budget: Budget
    ) -> list[_Result]:
        """Call ``read`` for each item, several at the same time if a read is a request."""

        def within_budget(item: _Item) -> _Result:
            budget.check()
            return read(item)

        return map_requests(self.cluster.store, within_budget, items)

    def observe(self, topic: TopicImage, partition: int) -> LogView | None:
        """Return the view of a partition's log from one listing; None if it cannot be read now.

        One damaged partition does not hide the others: its error is counted, and logged once.

        Raises:
            UnknownTopicOrPartitionError: the topic was deleted meanwhile.
        """
        if stripes := self.cluster.stripes(topic):
            self.stripes[topic.topic_id] = stripes
        try:
            with self.cluster.detecting_deletion(topic):
                return self.cluster.partition_log(topic, partition).observe()
        except UnknownTopicOrPartitionError:
            self.stripes.pop(topic.topic_id, None)
            raise
        except SparkLogError as error:
            path = topic.partition_directory(partition)
            self.cluster.suppressed.add("console listing", path, error)
            return None
