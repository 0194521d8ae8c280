"""Group commit: all batches that wait for a partition while its put is in flight are one append."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from spark_log.gateway.partitions.produced_batch import ProducedBatch, ProduceResult

_log = logging.getLogger(__name__)

RunBlocking = Callable[..., Awaitable[Any]]
"""Runs a call on a thread of the gateway."""

MAX_GROUP_BYTES = 33_554_432
"""Bytes of the batches of one append; a single batch may be larger."""

Append = Callable[[Sequence[ProducedBatch]], Awaitable[None]]
"""Appends batches, and sets the result of each."""

Settle = Callable[[], Awaitable[None]]
"""Does what is left to do after an append whose batches were answered. An error is a fault of the
program; it is logged, and the batches that wait are appended."""


class AppendQueue:
    """The batches that wait for one partition; for one event loop.

    Nothing waits for a timer: a batch that finds no append under way is appended at once, and those
    that arrive meanwhile are the next append. The order of batches is kept. A transactional batch
    waits until its partition belongs to its transaction, and the later ones of this transactional
    id wait behind it.
    """

    def __init__(self, append: Append, settle: Settle, *, name: str = "") -> None:
        """Return an empty queue.

        Args:
            append: appends batches.
            settle: called after each append, before the next one.
            name: the topic and the partition, for the log.
        """
        self._name = name
        self._append = append
        self._settle = settle
        self._waiting: deque[tuple[ProducedBatch, asyncio.Future[ProduceResult]]] = deque()
        self._task: asyncio.Task[None] | None = None

    def put(self, produced: ProducedBatch) -> asyncio.Future[ProduceResult]:
        """Add a batch at the end; return the future of its result."""
        future: asyncio.Future[ProduceResult] = asyncio.get_running_loop().create_future()
        self._waiting.append((produced, future))
        self.wake()
        return future

    def withdraw(self, future: asyncio.Future[ProduceResult]) -> bool:
        """Take a batch out of the queue; return false if its append has begun.

        Args:
            future: the future of its result, which is never set then.
        """
        before = len(self._waiting)
        self._waiting = deque(each for each in self._waiting if each[1] is not future)
        return len(self._waiting) < before

    def wake(self) -> None:
        """Append what is ready, unless an append is under way."""
        if self._task is None and any(produced.is_ready for produced, _ in self._waiting):
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            while group := self._take():
                if not await self._append_group(group):
                    continue
                try:
                    await self._settle()
                except Exception:  # the batches that wait are no part of it
                    _log.exception("%s: what an append left to do has failed", self._name)
        finally:
            self._task = None

    async def _append_group(
        self, group: Sequence[tuple[ProducedBatch, asyncio.Future[ProduceResult]]]
    ) -> bool:
        """Append batches, and answer each of them; return whether the append was made."""
        try:
            await self._append([produced for produced, _ in group])
            results = [_result_of(produced) for produced, _ in group]
        except BaseException as error:
            for _, future in group:
                if not future.done():
                    future.set_exception(error)
            if not isinstance(error, Exception):
                raise
            return False
        for result, (_, future) in zip(results, group, strict=True):
            if not future.done():  # its connection was closed meanwhile
                future.set_result(result)
        return True

    def _take(self) -> list[tuple[ProducedBatch, asyncio.Future[ProduceResult]]]:
        """Remove and return the batches of the next append."""
        group: list[tuple[ProducedBatch, asyncio.Future[ProduceResult]]] = []
        held_back: deque[tuple[ProducedBatch, asyncio.Future[ProduceResult]]] = deque()
        blocked: set[str | None] = set()
        size_bytes = 0
        while self._waiting:
            produced = self._waiting[0][0]
            is_blocked = produced.transactional_id in blocked
            if not produced.is_ready or is_blocked:
                blocked.add(produced.transactional_id)
                held_back.append(self._waiting.popleft())
                continue
            size_bytes += len(produced.data)
            if group and size_bytes > MAX_GROUP_BYTES:
                break
            group.append(self._waiting.popleft())
        self._waiting.extendleft(reversed(held_back))
        return group


def _result_of(produced: ProducedBatch) -> ProduceResult:
    assert produced.result is not None, "an append sets the result of each batch"
    return produced.result
