"""Serve a root to Kafka's clients: gateways in Spark's executors.

Each gateway is a task of its own, which leads its share of the partitions. A gateway whose executor
is lost starts again in another one. With ``--max-gateways`` there are as many as their load needs.
The job serves until it is stopped; then each gateway answers what it has received.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Annotated

import typer

from spark_log.cli import (
    GatewayOptions,
    MetricsPort,
    Output,
    Root,
    metrics_served,
    print_note,
    run,
    with_option_groups,
)
from spark_log.jobs.program import job_session
from spark_log.jobs.serving import Autoscaler, GatewayTasks, ScalingPolicy, ServingGateway
from spark_log.jobs.task import GatewayTask
from spark_log.util import StopSignals, printable

_LOOK_INTERVAL_S = 0.2
_SCALING_INTERVAL = 5
"""Number of looks between two looks at the loads."""


@with_option_groups
def main(
    root: Root,
    output: Output,
    options: GatewayOptions,
    gateways: Annotated[
        int | None,
        typer.Option(
            "--gateways",
            min=1,
            help="Number of gateways, each of which takes a core of an executor; the smallest "
            "number with --max-gateways. [default: spark.default.parallelism; 1 with "
            "--max-gateways]",
        ),
    ] = None,
    max_gateways: Annotated[
        int | None,
        typer.Option(
            "--max-gateways",
            min=1,
            help="Largest number of gateways: one is started while all are busy, and the newest "
            "ends when the others can do its work. [default: that of --gateways]",
        ),
    ] = None,
    busy_load: Annotated[
        float,
        typer.Option(
            "--busy-load",
            min=0.05,
            max=1.0,
            help="Mean load of the gateways, in cores, from which on one more is started. One ends "
            "if the others stay below half of it.",
        ),
    ] = 0.7,
    busy_timeout: Annotated[
        float,
        typer.Option(
            "--busy-timeout",
            min=1.0,
            metavar="SECONDS",
            help="Time for which the load has to be that high.",
        ),
    ] = 20.0,
    idle_timeout: Annotated[
        float,
        typer.Option(
            "--idle-timeout",
            min=1.0,
            metavar="SECONDS",
            help="Time for which a gateway has to be superfluous before it ends.",
        ),
    ] = 60.0,
    metrics_port: MetricsPort = None,
) -> None:
    """Serve the root to Kafka's clients by gateways in Spark's executors, until it is stopped.

    Gateways of one executor's machine listen on --listen's port and on those after it. With
    --listen 0.0.0.0 clients are told the names of the executors.
    """
    policy = None
    if max_gateways is not None:
        policy = ScalingPolicy(
            gateways or 1, max_gateways, busy_load, busy_timeout * 1000, idle_timeout * 1000
        )
    root.cluster().release()  # says what is wrong with the root before Spark starts
    spark = job_session("serve")
    context = spark.sparkContext
    retries = int(context.getConf().get("spark.port.maxRetries", "16") or "16")

    def task(driver: tuple[str, int], secret: str) -> GatewayTask:
        return GatewayTask(
            root.url,
            root.storage_options,
            root.broker_options,
            options.config,
            options.host,
            options.port,
            retries,
            driver,
            secret,
        )

    def show(found: ServingGateway) -> None:
        if output.is_json:
            line = json.dumps(
                {
                    "number": found.number,
                    "id": found.gateway_id,
                    "host": found.host,
                    "port": found.port,
                }
            )
        else:
            line = (
                f"Gateway {found.gateway_id} serves; clients connect to {found.host}:{found.port}"
            )
        print(printable(line))
        sys.stdout.flush()

    def warn(number: int, error: Exception) -> None:
        print_note(f"warning: gateway {number} failed, and starts again: {_reason(error)}")

    count = policy.min_gateways if policy else gateways or context.defaultParallelism
    with (
        StopSignals() as stop,
        GatewayTasks(spark, task, count, on_serving=show, on_failed=warn) as tasks,
        metrics_served(tasks.families, metrics_port),
    ):
        scaler = Autoscaler(policy) if policy else None
        pause = threading.Event()
        looks = 0
        while not stop.is_set():
            pause.wait(_LOOK_INTERVAL_S)
            looks += 1
            if scaler is not None and looks % _SCALING_INTERVAL == 0:
                _scale(tasks, scaler)


def _scale(tasks: GatewayTasks, scaler: Autoscaler) -> None:
    """Have as many gateways as the loads need."""
    before, loads = scaler.count, tasks.loads()
    count = scaler.observe(loads)
    if count != before:
        policy = scaler.policy
        mark, for_ms = (
            (f"{policy.busy_load:g} or more", policy.busy_timeout_ms)
            if count > before
            else (f"below {policy.idle_load:g} with one fewer", policy.idle_timeout_ms)
        )
        print_note(
            f"{count} gateways instead of {before}: for {for_ms / 1000:g} s their mean load was "
            f"{mark}; now {len(loads.loads)} serve and use {loads.total:.2f} cores"
        )
        tasks.resize(count)


def _reason(error: Exception) -> str:
    """Return the last line of the error of a task's Python, in one line."""
    lines = [line.strip() for line in str(error).splitlines()]
    found = [line for line in lines if "Error: " in line or "Exception: " in line]
    return printable(found[0] if found else lines[0] if lines else type(error).__name__)


if __name__ == "__main__":
    run(main)
