"""How long to wait before looking again for more at the end of a log."""

from __future__ import annotations

from typing import Final

from spark_log.log.tail_reader import ProbeInterval

_HINTED_LEAST_MS: Final = 100.0
_HINTED_EACH_MS: Final = 15.0
"""A look costs some 0.08 ms: so looking takes half a percent of a core, whatever their number."""


def tail_probe_interval_ms(
    probes: ProbeInterval, *, waited_ms: float, looks: int, gives_hints: bool
) -> float:
    """Return the time between two looks at one partition.

    Args:
        probes: as the store is.
        waited_ms: for how long nothing has come from any partition.
        looks: how many partitions are looked at.
        gives_hints: a hint will come as soon as there is something: looking is for those that get
            lost.
    """
    if gives_hints:
        return max(_HINTED_LEAST_MS, looks * _HINTED_EACH_MS)
    return probes.pause_ms(waited_ms, looks)
