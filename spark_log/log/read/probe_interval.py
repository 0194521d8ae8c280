"""Pauses between the probes for the next segment, for a reader that waits at a log's end."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from spark_log.storage import Store

REST_MS: Final = 5_000.0
"""A partition without a record for this long is at rest."""

_WAITED_SHARE: Final = 0.1
"""The pause before the next probe, as a share of the time waited so far. A record is read late by
about a tenth of the time since the record before it, and an idle log costs few probes."""

_PROBE_SHARE: Final = 0.2
"""Share of the longest pause that each further partition adds to it. It is about the cost of one
probe, divided by the cost of waking up and probing one partition."""

_PARTITIONS_AT_REST: Final = 10
"""Maximum number of partitions at rest that are each probed once in `ProbeInterval.rest_ms`. More
partitions share the requests of this number."""


@dataclass(frozen=True, slots=True)
class ProbeInterval:
    """The pauses between two probes for the next segment.

    A probe tries to open the file whose name is the log end offset.

    Attributes:
        min_ms: the shortest pause.
        max_ms: the longest pause, while the partition is not at rest.
        rest_ms: time between two probes of a partition at rest; infinite if partitions at rest are
            probed like others.
    """

    min_ms: float
    max_ms: float
    rest_ms: float = math.inf

    @staticmethod
    def of(store: Store, rest_ms: float | None = None) -> ProbeInterval:
        """Return `LOCAL_PROBES` for a store that maps files into memory, else `REMOTE_PROBES`.

        Args:
            store: the storage of the logs.
            rest_ms: time between two probes of a partition at rest if a probe is a request; None
                for the default.
        """
        if store.is_local:
            return LOCAL_PROBES
        if rest_ms is None:
            return REMOTE_PROBES
        return replace(REMOTE_PROBES, rest_ms=rest_ms, max_ms=min(REMOTE_PROBES.max_ms, rest_ms))

    def pause_ms(self, waited_ms: float, partitions: int = 1) -> float:
        """Return the pause before the next probe.

        Args:
            waited_ms: time since the last record arrived.
            partitions: number of partitions probed each time; more of them lengthen the longest
                pause.
        """
        if self.is_at_rest(waited_ms):
            return self.rest_ms * max(1.0, partitions / _PARTITIONS_AT_REST)
        max_ms = self.max_ms * (1 + _PROBE_SHARE * (partitions - 1))
        return min(max(self.min_ms, waited_ms * _WAITED_SHARE), max_ms)

    def is_at_rest(self, waited_ms: float) -> bool:
        """Whether a partition is probed as one at rest.

        Args:
            waited_ms: time since the partition's last record arrived.
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
