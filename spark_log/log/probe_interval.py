"""How often a reader that waits at a log's end probes for the next segment."""

from __future__ import annotations

from dataclasses import dataclass

from spark_log.storage import Store

_WAITED_SHARE = 0.1
"""The pause before the next probe, as a share of the time waited so far. So a record is read late
by a tenth of the time since the one before it, and an idle log costs few probes."""

_PROBE_SHARE = 0.2
"""What each further partition adds to the longest pause: about the cost of its probe as a share of
the cost of waking up and probing one."""


@dataclass(frozen=True, slots=True)
class ProbeInterval:
    """The shortest and the longest pause between two probes for the next segment.

    A probe tries to open the file whose name is the log end offset.
    """

    min_ms: float
    max_ms: float

    @staticmethod
    def of(store: Store) -> ProbeInterval:
        """Return `LOCAL_PROBES` for a store that maps files into memory, else `REMOTE_PROBES`."""
        return LOCAL_PROBES if store.is_mapped else REMOTE_PROBES

    def pause_ms(self, waited_ms: float, partitions: int = 1) -> float:
        """Return the pause before the next probe.

        Args:
            waited_ms: how long no record has arrived.
            partitions: how many are probed each time; more of them lengthen the longest pause.
        """
        max_ms = self.max_ms * (1 + _PROBE_SHARE * (partitions - 1))
        return min(max(self.min_ms, waited_ms * _WAITED_SHARE), max_ms)


LOCAL_PROBES = ProbeInterval(0.2, 2.5)
"""A probe is a system call that fails: 400 of them a second take 1 % of a core."""

REMOTE_PROBES = ProbeInterval(10.0, 100.0)
"""A probe is a request that costs money."""
