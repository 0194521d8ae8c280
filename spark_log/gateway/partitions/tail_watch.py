"""Probes for the appends of other processes to the partitions that a fetch waits for."""

from __future__ import annotations

import asyncio
import heapq
import math
from collections.abc import Callable, Sequence
from itertools import count
from typing import Final

from spark_log.gateway.partitions.append_queue import RunBlocking
from spark_log.gateway.partitions.partition import GatewayPartition
from spark_log.gateway.partitions.stripe import GatewayStripe
from spark_log.log import ProbeInterval
from spark_log.util import SuppressedErrors

_LOCAL_PROBES: Final = ProbeInterval(1.0, 50.0)
"""A probe is a system call, and a wake-up of a thread for all partitions together."""

_MAX_LOCAL_PAUSE_MS: Final = 2_000.0
"""The longest pause on a local disk, however many partitions are watched."""

_MAX_UNCHECKED_MS: Final = 2_000.0
"""Least age from which a fetch at the end looks for the appends of others itself."""


_End = GatewayPartition | GatewayStripe
"""The end that a probe asks for: of a partition, or of all partitions of a stripe."""


class TailWatch:
    """Probes the partitions that fetches wait for; for one event loop.

    One probe of a stripe is for all of its partitions.

    The appends of this gateway wake those who wait without a probe. The longer nothing arrives, the
    longer is the pause between two probes of a partition (`ProbeInterval`). Pauses begin at the
    last probe, whichever fetch it was for: so the partitions of a client whose fetches wait shorter
    than a pause are probed like those of others.
    """

    def __init__(
        self,
        run_blocking: RunBlocking,
        clock_ms: Callable[[], float],
        suppressed: SuppressedErrors,
        probes: ProbeInterval,
        *,
        is_local: bool,
    ) -> None:
        """Watch nothing yet.

        Args:
            run_blocking: runs a call on a thread.
            clock_ms: returns monotonic time.
            suppressed: counts the errors of probes.
            probes: the pauses between two probes, if a probe is a request.
            is_local: whether the storage is a local file system.
        """
        self._run_blocking = run_blocking
        self._clock_ms = clock_ms
        self._suppressed = suppressed
        self._probes = _LOCAL_PROBES if is_local else probes
        self._is_local = is_local
        self._watched: set[_End] = set()
        # Times at which probes are due; the number keeps ends from being compared.
        self._due: list[tuple[float, int, _End]] = []
        self._numbers = count()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = math.inf
        self._probing: asyncio.Task[None] | None = None
        self._is_closed = False

    def watch(self, partitions: Sequence[GatewayPartition]) -> None:
        """Probe partitions while a fetch waits for them."""
        now_ms = self._clock_ms()
        for partition in partitions:
            end = partition.stripe or partition
            if end not in self._watched:
                self._watched.add(end)
                since_ms = min(now_ms, max(end.checked_ms, end.changed_ms))
                self._add(end, since_ms, now_ms)
        self._set_timer(now_ms)

    def close(self) -> None:
        """End the probes."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._probing is not None:
            self._probing.cancel()

    def is_neglected(self, partition: GatewayPartition, now_ms: float) -> bool:
        """Return whether a fetch at the end should look for the appends of others itself.

        That is the case for the first fetch in a long time: no fetch waited, so nobody looked.

        Args:
            partition: the partition.
            now_ms: monotonic time.
        """
        end = partition.stripe or partition
        unchecked_ms = now_ms - end.checked_ms
        return unchecked_ms > _MAX_UNCHECKED_MS and (
            unchecked_ms > _MAX_UNCHECKED_MS + 2 * self._pause_ms(end, now_ms)
        )

    # --- times -----------------------------------------------------------------------------------

    def _pause_ms(self, end: _End, now_ms: float) -> float:
        pause_ms = self._probes.pause_ms(now_ms - end.changed_ms, len(self._watched))
        return min(pause_ms, _MAX_LOCAL_PAUSE_MS) if self._is_local else pause_ms

    def _add(self, end: _End, since_ms: float, now_ms: float) -> None:
        pause_ms = self._pause_ms(end, now_ms)
        at_ms = since_ms + pause_ms
        if self._is_local:  # partitions with similar pauses share a call
            grid_ms = 2.0 ** math.floor(math.log2(pause_ms / 8))
            at_ms = math.ceil(at_ms / grid_ms) * grid_ms
        heapq.heappush(self._due, (at_ms, next(self._numbers), end))

    def _set_timer(self, now_ms: float) -> None:
        if not self._due or self._probing is not None or self._is_closed:
            return
        at_ms = self._due[0][0]
        if self._timer is not None:
            if self._timer_ms <= at_ms:
                return
            self._timer.cancel()
        self._timer_ms = at_ms
        delay_s = max(0.0, at_ms - now_ms) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now_ms = self._clock_ms()
        due = []
        while self._due and self._due[0][0] <= now_ms:
            _, _, end = heapq.heappop(self._due)
            if end.is_waited_for:
                due.append(end)
            else:
                self._watched.remove(end)
        if due:
            self._probing = asyncio.get_running_loop().create_task(self._probe(due))
        else:
            self._set_timer(now_ms)

    # --- probes ----------------------------------------------------------------------------------

    async def _probe(self, due: Sequence[_End]) -> None:
        """Probe ends: those of partitions on a local disk in one call, else at the same time."""
        stripes = [each for each in due if isinstance(each, GatewayStripe)]
        ends = [(each, each.end_offset) for each in due if isinstance(each, GatewayPartition)]
        groups = [ends] if self._is_local and ends else [[each] for each in ends]
        try:
            answers = await asyncio.gather(
                *(self._run_blocking(_probe, group) for group in groups),
                *(each.poll() for each in stripes),
                return_exceptions=True,
            )
            for answer in answers:
                if isinstance(answer, BaseException):
                    self._suppressed.add("probe", due[0].topic, answer)
                    continue
                for partition, end_offset, ends_there in answer or ():
                    if partition.end_offset != end_offset:
                        continue
                    if ends_there:
                        partition.on_checked()
                    else:
                        partition.on_grown()
        finally:
            self._probing = None
            now_ms = self._clock_ms()
            for each in due:
                self._add(each, now_ms, now_ms)
            self._set_timer(now_ms)


def _probe(
    ends: Sequence[tuple[GatewayPartition, int]],
) -> list[tuple[GatewayPartition, int, bool]]:
    """Return the partitions, with the offsets, and whether they still end there."""
    return [(each, end, each.logs.ends_at(end)) for each, end in ends]
