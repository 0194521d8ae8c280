"""Serve a root to Kafka's clients: gateways in Spark's executors.

Each gateway is a task of its own, which leads its share of the partitions. A gateway whose executor
is lost starts again in another one. The job serves until it is stopped; then each gateway answers
what it has received.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Annotated

import typer

from spark_log.cli import GatewayOptions, Output, Root, print_note, run, with_option_groups
from spark_log.jobs.program import job_session
from spark_log.jobs.serving import GatewayTasks, ServingGateway
from spark_log.jobs.task import GatewayTask
from spark_log.util import StopSignals, printable

_LOOK_INTERVAL_S = 0.2


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
            help="Number of gateways, each of which takes a core of an executor. [default: "
            "spark.default.parallelism]",
        ),
    ] = None,
) -> None:
    """Serve the root to Kafka's clients by gateways in Spark's executors, until it is stopped.

    Gateways of one executor's machine listen on --listen's port and on those after it. With
    --listen 0.0.0.0 clients are told the names of the executors.
    """
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

    count = gateways or context.defaultParallelism
    with (
        StopSignals() as stop,
        GatewayTasks(spark, task, count, on_serving=show, on_failed=warn),
    ):
        pause = threading.Event()
        while not stop.is_set():
            pause.wait(_LOOK_INTERVAL_S)


def _reason(error: Exception) -> str:
    """Return the last line of the error of a task's Python, in one line."""
    lines = [line.strip() for line in str(error).splitlines()]
    found = [line for line in lines if "Error: " in line or "Exception: " in line]
    return printable(found[0] if found else lines[0] if lines else type(error).__name__)


if __name__ == "__main__":
    run(main)
