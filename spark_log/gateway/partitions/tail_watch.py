"""Probes for the appends of other processes to the partitions that a fetch waits for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from spark_log.gateway.partitions.partition import GatewayPartition, RunBlocking
from spark_log.log import ProbeInterval
from spark_log.util import SuppressedErrors

_log = logging.getLogger(__name__)

_LOCAL_PROBES: Final = ProbeInterval(1.0, 50.0)
"""A probe is a system call, and a wake-up of a thread for all partitions together."""


class TailWatch:
    """Probes the partitions that fetches wait for; for one event loop.

    The appends of this gateway wake those who wait without a probe. The longer nothing arrives, the
    longer is the pause between two probes of a partition (`ProbeInterval`).
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
        self._watched: dict[GatewayPartition, float] = {}
        self._task: asyncio.Task[None] | None = None

    def watch(self, partitions: Sequence[GatewayPartition]) -> None:
        """Probe partitions while a fetch waits for them."""
        now_ms = self._clock_ms()
        for partition in partitions:
            if partition not in self._watched:
                self._watched[partition] = now_ms + self._pause_ms(partition, now_ms)
        if self._task is None and self._watched:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def close(self) -> None:
        """End the probes."""
        if self._task is not None:
            self._task.cancel()

    def _pause_ms(self, partition: GatewayPartition, now_ms: float) -> float:
        return self._probes.pause_ms(now_ms - partition.changed_ms, len(self._watched) + 1)

    async def _run(self) -> None:
        try:
            while self._forget_others():
                now_ms = self._clock_ms()
                due = [each for each, at_ms in self._watched.items() if at_ms <= now_ms]
                if not due:
                    await asyncio.sleep((min(self._watched.values()) - now_ms) / 1000)
                    continue
                await self._probe(due)
                now_ms = self._clock_ms()
                for partition in due:
                    self._watched[partition] = now_ms + self._pause_ms(partition, now_ms)
        finally:
            self._task = None

    def _forget_others(self) -> bool:
        """Forget partitions that nobody waits for; return whether any is left."""
        for partition in [each for each in self._watched if not each.is_waited_for]:
            del self._watched[partition]
        return bool(self._watched)

    async def _probe(self, due: Sequence[GatewayPartition]) -> None:
        """Probe partitions: on a local disk in one call, else at the same time."""
        ends = [(each, each.end_offset) for each in due]
        groups = [ends] if self._is_local else [[each] for each in ends]
        answers = await asyncio.gather(
            *(self._run_blocking(_probe, group) for group in groups), return_exceptions=True
        )
        for answer in answers:
            if isinstance(answer, BaseException):
                self._suppressed.add("probe", due[0].topic, answer)
                continue
            for partition, end_offset, ends_there in answer:
                if partition.end_offset != end_offset:
                    continue
                if ends_there:
                    partition.on_checked()
                else:
                    partition.on_grown()


def _probe(
    ends: Sequence[tuple[GatewayPartition, int]],
) -> list[tuple[GatewayPartition, int, bool]]:
    """Return the partitions, with the offsets, and whether they still end there."""
    return [(each, end, each.logs.ends_at(end)) for each, end in ends]
