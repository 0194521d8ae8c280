"""A job of a consumer group: reads, writes and commits batch after batch.

`BatchProcessor` is the interface to Spark. The code in this module does not need Spark.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import typer

from spark_log.datasource import format_offsets
from spark_log.errors import KafkaTimeoutError
from spark_log.jobs.group.job_member import Batch, BatchAbortedError, JobMember
from spark_log.jobs.program import Counts, JobReport
from spark_log.types import TopicPartition
from spark_log.util import Clock, StopSignals

_POLL_S: Final = 0.2
"""Interval at which the job checks for a stop signal."""

_PROGRESS_CHECK_S: Final = 1.0
"""Interval at which the job checks whether a batch makes progress."""

_CANCEL_TIMEOUT_S: Final = 30
"""Maximum time that Spark may take to end a cancelled batch."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BatchResult:
    """Result of a batch.

    Attributes:
        reached: the next offset of each partition in the batch.
        records: the number of records read.
        written: the number of records written, or shown on the console.
        skipped: the number of offsets that had been written before.
    """

    reached: Mapping[TopicPartition, int]
    records: int
    written: int
    skipped: int = 0


class BatchProcessor(Protocol):
    """Processes batches. One thread calls `run`, and another one the other methods."""

    def run(self, batch: Batch) -> BatchResult:
        """Write a batch's records."""

    def progress(self) -> object:
        """Return a value that changes whenever the batch makes progress."""

    def cancel(self) -> None:
        """Make `run` end soon with an error; written records may stay."""


class StopFlag(Protocol):
    """Tells a job when to stop."""

    def is_set(self) -> bool:
        """Return whether the job has to stop."""


@dataclass(slots=True)
class JobStats:
    """Totals of a job.

    Attributes:
        batches: the number of batches with records.
        records: the number of records read, in batches whose offsets were committed.
        written: the number of records written, or shown on the console.
        skipped: the number of offsets that the sink had before.
        committed: the last committed offset of each partition.
        lost: the partitions that other members got before their batch was committed.
    """

    batches: int = 0
    records: int = 0
    written: int = 0
    skipped: int = 0
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    lost: set[TopicPartition] = field(default_factory=set)

    def add_to(self, report: JobReport, seconds: float) -> None:
        """Add the totals to a job's report."""
        report.add_counts(Counts(self.records, self.written), seconds)
        if self.skipped:
            report.add(in_the_table_before=self.skipped)
        if self.lost:
            report.add(went_to_other_members=", ".join(map(str, sorted(self.lost))))
        report.add(committed=format_offsets(self.committed))


class GroupJob:
    """Processes a member's partitions until the end, or until it is stopped.

    ``max.poll.interval.ms`` limits a batch as in Kafka: as long as Spark makes progress, the job
    keeps its membership alive. A batch without progress for longer is cancelled: the job leaves the
    group, and its partitions go to the other members.
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
        """Create the job; `run` starts it.

        Args:
            member: a member that has not joined.
            processor: the processor of batches.
            clock: the clock that measures the time without progress.
            stop: the flag that is set when the job has to stop.
            max_poll_interval_ms: the maximum time without progress.
            interval_s: the minimum time between the starts of two batches.
        """
        self._member = member
        self._processor = processor
        self._clock = clock
        self._stop = stop
        self._max_poll_interval_ms = max_poll_interval_ms
        self._interval_ms = interval_s * 1000
        self._worker = _Worker()

    def run(self) -> JobStats:
        """Join the group, process batches, and leave.

        Returns:
            The totals. If the job was stopped during a batch, that batch is cancelled and not
            counted; the next member with its partitions reads its records again.

        Raises:
            KafkaTimeoutError: a batch made no progress for longer than ``max_poll_interval_ms``.
            Exception: the error of a batch; no offset of this batch was committed.
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
                _log.debug("batch of %d offsets in %d partitions", batch.size, len(batch.starts))
                done = self._run(batch)
                if done is None:
                    _log.info("stopped during a batch of %d offsets: it is cancelled", batch.size)
                    break
                if done.reached:
                    self._commit(batch, done, stats)
                else:
                    stats.lost |= batch.starts.keys()
        return stats

    def _run(self, batch: Batch) -> BatchResult | None:
        """Let the processor run a batch.

        Returns:
            None if the batch was cancelled because the job has to stop. If it was cancelled because
            the job is no longer a member of the group, the result has no offsets.
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
                    f"a batch of {batch.size} offsets made no progress for "
                    f"{(now_ms - alive_ms) / 1000:.0f} s, more than max.poll.interval.ms: it was "
                    f"cancelled, and its partitions go to the other members of the group. Reduce "
                    f"--batch-records, or increase max.poll.interval.ms"
                )

    def _cancel(self, future: Future[BatchResult]) -> None:
        self._processor.cancel()
        try:
            future.result(_CANCEL_TIMEOUT_S)
        except FutureTimeoutError:
            _log.warning("Spark did not end a cancelled batch within %d s", _CANCEL_TIMEOUT_S)
        except Exception as error:
            _log.debug("a batch was cancelled: %s", error)

    def _commit(self, batch: Batch, done: BatchResult, stats: JobStats) -> None:
        try:
            lost = self._member.commit(batch, done.reached)
        except BatchAbortedError as aborted:
            stats.lost |= aborted.lost
            _log.warning(
                "%s went to other members while a batch was written: the batch was aborted, and "
                "its other partitions are read again",
                ", ".join(map(str, sorted(aborted.lost))),
            )
            return
        _log.debug(
            "committed a batch: %d read, %d written, %d offsets skipped, %d partitions lost",
            done.records,
            done.written,
            done.skipped,
            len(lost),
        )
        stats.batches += done.records > 0
        stats.records += done.records
        stats.written += done.written
        stats.skipped += done.skipped
        stats.lost |= lost
        stats.committed |= {tp: at for tp, at in done.reached.items() if tp not in lost}
        if lost:
            _log.warning(
                "%s went to other members while a batch was written: the offsets of these "
                "partitions were not committed, and their new owners continue at the last "
                "committed offsets",
                ", ".join(map(str, sorted(lost))),
            )


def run_group_job(
    member: JobMember,
    processor: BatchProcessor,
    clock: Clock,
    report: JobReport,
    *,
    as_json: bool,
    max_poll_interval_ms: float,
    interval_s: float,
) -> None:
    """Run a `GroupJob` until its end, or until SIGINT or SIGTERM, and print its report.

    For the main thread only.

    Args:
        member: a member that has not joined.
        processor: the processor of batches.
        clock: the clock that measures the time without progress.
        report: the report, to which the job's totals and its duration are added.
        as_json: whether the report is printed as JSON.
        max_poll_interval_ms: the maximum time without progress.
        interval_s: the minimum time between the starts of two batches.

    Raises:
        typer.Exit: a signal ended the job; the status is that of `StopSignals`.
        Exception: an error of `GroupJob.run`; nothing is printed.
    """
    started = time.perf_counter()
    with StopSignals() as stop:
        job = GroupJob(
            member,
            processor,
            clock,
            stop=stop,
            max_poll_interval_ms=max_poll_interval_ms,
            interval_s=interval_s,
        )
        stats = job.run()
    stats.add_to(report, time.perf_counter() - started)
    report.print(as_json=as_json)
    if stop.exit_status:
        raise typer.Exit(stop.exit_status)


class _Worker:
    """One thread for all batches. It is a daemon: it ends with the process even if Spark hangs."""

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
