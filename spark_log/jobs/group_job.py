"""A job that works for a consumer group, batch after batch: read, write, commit.

What the processor is, Spark's part, is behind `BatchProcessor`; what is decided here needs no Spark.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from spark_log.clock import Clock
from spark_log.errors import KafkaTimeoutError
from spark_log.jobs.job_member import Batch, JobMember
from spark_log.types import TopicPartition

_POLL_S: Final = 0.2
"""How often it is looked whether a signal came."""

_PROGRESS_CHECK_S: Final = 1.0
"""How often it is looked whether a batch gets on."""

_CANCEL_TIMEOUT_S: Final = 30
"""For so long Spark may take to end a batch that was given up."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What came of a batch.

    Attributes:
        reached: the next offset, of each partition that was worked on.
        records: how many were read.
        written: how many of them were written, or shown on the console.
        skipped: offsets that had been written before.
    """

    reached: Mapping[TopicPartition, int]
    records: int
    written: int
    skipped: int = 0


class BatchProcessor(Protocol):
    """What a job does with records. `run` is called on one thread, the others on another."""

    def run(self, batch: Batch) -> BatchResult:
        """Write a batch's records."""

    def progress(self) -> object:
        """Return something that is different whenever the batch has got on."""

    def cancel(self) -> None:
        """Let `run` end soon, with an error; what it wrote may stay."""


class StopFlag(Protocol):
    """Says when a job is to end."""

    def is_set(self) -> bool:
        """Return whether it is time."""


@dataclass(slots=True)
class JobStats:
    """What a job has done.

    Attributes:
        batches: with records in them.
        records: read, of batches whose offsets were committed.
        written: of these records, or shown on the console.
        skipped: offsets that had been written before, as the sink knew.
        committed: positions that were committed last.
        lost: partitions that went to others before their batch was committed.
    """

    batches: int = 0
    records: int = 0
    written: int = 0
    skipped: int = 0
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    lost: set[TopicPartition] = field(default_factory=set)


class GroupJob:
    """Works on a member of a group until that is done, or until it is told to stop.

    Kafka's rule of ``max.poll.interval.ms`` is that of a batch here: as long as Spark gets on with
    it, the job shows life to the group. A batch that stands still for longer is given up: the job
    leaves, and its partitions go to the others.
    """

    def __init__(
        self,
        member: JobMember,
        processor: BatchProcessor,
        clock: Clock,
        *,
        stop: StopFlag,
        max_poll_interval_ms: float,
        interval_s: float = 0.0,
    ) -> None:
        """Get ready.

        Args:
            member: a member that has not joined.
            processor: what is done with records.
            clock: tells how long a batch stands still.
            stop: says when to end.
            max_poll_interval_ms: see above.
            interval_s: a batch begins no sooner after the one before.
        """
        self._member = member
        self._processor = processor
        self._clock = clock
        self._stop = stop
        self._max_poll_interval_ms = max_poll_interval_ms
        self._interval_ms = interval_s * 1000
        self._worker = _Worker()

    def run(self) -> JobStats:
        """Join, processor, leave.

        Returns:
            What was done; when it was told to stop, up to then: a batch that was at processor was given
            up, and its records belong to whoever comes next.

        Raises:
            KafkaTimeoutError: a batch stood still; see above.
            Whatever the batch raises: nothing of it was committed.
        """
        stats = JobStats()
        not_before_ms = float("-inf")
        with self._member as member:
            member.join()
            while not self._stop.is_set():
                batch, is_last = member.next_batch()
                if is_last and not batch.size:
                    stats.committed |= batch.ends
                    break
                now_ms = self._clock.monotonic_ms()
                if not batch.size or now_ms < not_before_ms:
                    member.wait(_POLL_S if batch.size else _PROGRESS_CHECK_S)
                    continue
                not_before_ms = now_ms + self._interval_ms
                done = self._run(batch)
                if done is None:
                    break
                if done.reached:
                    self._commit(batch, done, stats)
                else:
                    stats.lost |= batch.starts.keys()
        return stats

    def _run(self, batch: Batch) -> BatchResult | None:
        """Let Spark do a batch.

        Returns:
            None when it was given up because it is time to stop; with nothing reached when it was
            because the job is no member any more.
        """
        future = self._worker.submit(lambda: self._processor.run(batch))
        seen: object = None
        alive_ms = looked_ms = self._clock.monotonic_ms()
        while True:
            try:
                return future.result(_POLL_S)
            except FutureTimeoutError:
                if future.done():
                    raise
            if self._stop.is_set():
                self._cancel(future)
                return None
            now_ms = self._clock.monotonic_ms()
            if now_ms - looked_ms < _PROGRESS_CHECK_S * 1000:
                continue
            looked_ms = now_ms
            progress = self._processor.progress()
            if progress != seen:
                seen, alive_ms = progress, now_ms
                if not self._member.keep_alive():
                    self._cancel(future)
                    return BatchResult({}, 0, 0)
            elif now_ms - alive_ms > self._max_poll_interval_ms:
                self._cancel(future)
                raise KafkaTimeoutError(
                    f"a batch of {batch.size} offsets stood still for "
                    f"{(now_ms - alive_ms) / 1000:.0f} s, more than max.poll.interval.ms: it was "
                    f"given up, and its partitions go to the others of the group. Take less at a "
                    f"time by --batch-records, or raise the setting"
                )

    def _cancel(self, future: Future[BatchResult]) -> None:
        self._processor.cancel()
        try:
            future.result(_CANCEL_TIMEOUT_S)
        except FutureTimeoutError:
            _log.warning(
                "Spark did not end a batch that was given up within %d s", _CANCEL_TIMEOUT_S
            )
        except Exception as error:
            _log.debug("a batch was given up: %s", error)

    def _commit(self, batch: Batch, done: BatchResult, stats: JobStats) -> None:
        lost = self._member.commit(batch, done.reached)
        stats.batches += done.records > 0
        stats.records += done.records
        stats.written += done.written
        stats.skipped += done.skipped
        stats.lost |= lost
        stats.committed |= {tp: at for tp, at in done.reached.items() if tp not in lost}
        if lost:
            _log.warning(
                "%s went to other members while a batch was written: its offsets were not "
                "committed there, and who has them now goes on from what is",
                ", ".join(map(str, sorted(lost))),
            )


class _Worker:
    """One thread for all batches: it dies with the process, also when Spark never answers."""

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, task: Callable[[], BatchResult]) -> Future[BatchResult]:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="spark-log-batches", daemon=True)
            self._thread.start()
        future: Future[BatchResult] = Future()
        self._tasks.put((future, task))
        return future

    def _run(self) -> None:
        while True:
            future, task = self._tasks.get()
            try:
                future.set_result(task())
            except BaseException as error:
                future.set_exception(error)
