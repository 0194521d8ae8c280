"""Runs the group job of a program until its end or a signal, and prints its report."""

from __future__ import annotations

import time

import typer

from spark_log.jobs.group_job import BatchProcessor, GroupJob
from spark_log.jobs.job_member import JobMember
from spark_log.jobs.report import Report
from spark_log.util import Clock, StopSignals


def run_group_job(
    member: JobMember,
    processor: BatchProcessor,
    clock: Clock,
    report: Report,
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
        stats = GroupJob(
            member, processor, clock, stop=stop,
            max_poll_interval_ms=max_poll_interval_ms, interval_s=interval_s,
        ).run()  # fmt: skip
    stats.add_to(report, time.perf_counter() - started)
    report.print(as_json=as_json)
    if stop.exit_status:
        raise typer.Exit(stop.exit_status)
