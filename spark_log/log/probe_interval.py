"""How often a reader that waits at a log's end probes for the next segment."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from spark_log.storage import Store

REST_MS: Final = 5_000.0
"""A partition without a record for this long is at rest."""

_WAITED_SHARE: Final = 0.1
"""The pause before the next probe, as a share of the time waited so far. So a record is read late
by a tenth of the time since the one before it, and an idle log costs few probes."""

_PROBE_SHARE: Final = 0.2
"""What each further partition adds to the longest pause: about the cost of its probe as a share of
the cost of waking up and probing one."""

_PARTITIONS_AT_REST: Final = 10
"""Partitions at rest that are each probed once in `ProbeInterval.rest_ms`. More of them share the
requests of this many."""


@dataclass(frozen=True, slots=True)
class ProbeInterval:
    """The pauses between two probes for the next segment.

    A probe tries to open the file whose name is the log end offset.

    Attributes:
        min_ms: the shortest pause.
        max_ms: the longest pause, while the partition is not at rest.
        rest_ms: time between two probes of a partition at rest; infinite if it is probed no less
            often then.
    """

    min_ms: float
    max_ms: float
    rest_ms: float = math.inf

    @staticmethod
    def of(store: Store, rest_ms: float | None = None) -> ProbeInterval:
        """Return `LOCAL_PROBES` for a store that maps files into memory, else `REMOTE_PROBES`.

        Args:
            store: the storage of the logs.
            rest_ms: of the interval, if a probe is a request; None for the default.
        """
        if store.is_mapped:
            return LOCAL_PROBES
        if rest_ms is None:
            return REMOTE_PROBES
        return replace(REMOTE_PROBES, rest_ms=rest_ms, max_ms=min(REMOTE_PROBES.max_ms, rest_ms))

    def pause_ms(self, waited_ms: float, partitions: int = 1) -> float:
        """Return the pause before the next probe.

        Args:
            waited_ms: how long no record has arrived.
            partitions: how many are probed each time; more of them lengthen the longest pause.
        """
        if self.is_at_rest(waited_ms):
            return self.rest_ms * max(1.0, partitions / _PARTITIONS_AT_REST)
        max_ms = self.max_ms * (1 + _PROBE_SHARE * (partitions - 1))
        return min(max(self.min_ms, waited_ms * _WAITED_SHARE), max_ms)

    def is_at_rest(self, waited_ms: float) -> bool:
        """Whether a partition is probed as one at rest.

        Args:
            waited_ms: how long no record of it has arrived.
        """
        return waited_ms >= REST_MS and self.rest_ms < math.inf

    @property
    def between_rests_ms(self) -> float:
        """Time between two probes at rest, of any partitions of one reader."""
        return self.rest_ms / _PARTITIONS_AT_REST


LOCAL_PROBES = ProbeInterval(0.2, 2.5)
"""A probe is a system call that fails: 400 of them a second take 1 % of a core."""

REMOTE_PROBES = ProbeInterval(10.0, 100.0, rest_ms=1_000.0)
"""A probe is a request that costs money."""
