"""``spark-log canary``: sends a record through the log every second."""

from __future__ import annotations

import threading
from typing import Annotated

import typer

from spark_log.cli.format import Output, print_json_lines, print_note, print_text
from spark_log.cli.options import MetricsPort, Root, metrics_served, with_option_groups
from spark_log.cli.terminal import exit_on_sigterm, with_examples
from spark_log.exporter import CANARY_TOPIC, Canary, CanaryRecord
from spark_log.util import SYSTEM_CLOCK

_FAILED = 1
"""Exit status: a record failed."""


@with_examples("spark-log canary --once", "spark-log canary --count 2 --interval 0.1 --json")
@with_option_groups
def canary(
    root: Root,
    output: Output,
    once: Annotated[
        bool, typer.Option("--once", help="Send one record; the same as --count 1.")
    ] = False,
    count: Annotated[
        int | None,
        typer.Option("--count", min=1, help="Number of records. [default: until it is stopped]"),
    ] = None,
    interval_s: Annotated[
        float, typer.Option("--interval", min=0.01, help="Seconds between two records.")
    ] = 1.0,
    timeout_s: Annotated[
        float, typer.Option("--timeout", min=0.1, help="Maximum seconds of each step.")
    ] = 10.0,
    topic: Annotated[
        str, typer.Option("--topic", help="Topic to use. It is created if it does not exist.")
    ] = CANARY_TOPIC,
    metrics_port: MetricsPort = None,
) -> None:
    """Send records through the log, and time them.

    A record is produced, read by a consumer, and its offset is committed in the group
    spark-log-canary. For each record a line shows the time from sending it until it was
    acknowledged, the time from sending it until a consumer had it, and the time of the commit; or
    the step that failed. The topic has one partition. The canary itself deletes records that are
    older than ten minutes.

    Exit status of --once and --count: 0 all records came back, 1 a record failed. Without these
    options the command works until it is stopped.
    """
    left = 1 if once else count
    bird = Canary(
        root.url,
        root.client_arguments,
        root.cluster_now,
        topic=topic,
        timeout_ms=round(timeout_s * 1000),
    )
    pause = threading.Event()
    failed = 0
    with exit_on_sigterm(), metrics_served(bird.families, metrics_port):
        try:
            while left is None or left > 0:
                began_ms = SYSTEM_CLOCK.monotonic_ms()
                record = bird.send()
                _print(output, record)
                failed += record.error is not None
                left = None if left is None else left - 1
                if left != 0:
                    took_s = (SYSTEM_CLOCK.monotonic_ms() - began_ms) / 1000
                    pause.wait(max(0.0, interval_s - took_s))
        finally:
            bird.close()
    if failed:
        raise typer.Exit(_FAILED)


def _print(output: Output, record: CanaryRecord) -> None:
    if output.is_json:
        print_json_lines([record.document()])
    elif record.error is not None:
        print_note(f"error: {record.failed_step}: {record.error}")
    else:
        times = ", ".join(f"{step} {ms:.1f} ms" for step, ms in record.durations_ms.items())
        print_text(f"offset {record.offset}: {times}")
