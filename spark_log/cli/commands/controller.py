"""``spark-log controller``: watches brokers and replicas."""

from __future__ import annotations

import threading
from typing import Annotated

import typer

from spark_log.cli.format import Output, print_json_lines, print_text
from spark_log.cli.options import ControllerOptions, Root, with_option_groups
from spark_log.cli.terminal import exit_on_sigterm, with_examples
from spark_log.replication import Controller, ControllerDecision

app = typer.Typer(rich_markup_mode=None)


@app.command("run")
@with_examples("spark-log controller run --once", "spark-log controller run --once --json")
@with_option_groups
def run_controller(
    root: Root,
    output: Output,
    options: ControllerOptions,
    threads: Annotated[
        int,
        typer.Option(
            "--num-replica-fetchers",
            min=1,
            help="Number of partitions to copy at the same time; Kafka's num.replica.fetchers.",
        ),
    ] = 1,
) -> None:
    """Watch the brokers and the replicas of all partitions.

    The controller fences brokers whose roots have not answered for replica.lag.time.max.ms, and
    unfences them when they answer again; elects leaders; brings replicas back; moves leaderships to
    the preferred leaders; completes reassignments. Each decision is printed with its reason. It
    works until it is stopped, or until a newer controller starts; several at once are safe. Exit
    status of --once: 0 done, 1 a replica is still not in sync.
    """

    def show(decision: ControllerDecision) -> None:
        if output.is_json:
            print_json_lines([decision.document()])
        else:
            print_text(str(decision))

    controller = Controller(root.cluster(), threads=threads, on_decision=show)
    with exit_on_sigterm():
        options.run(controller, threading.Event().wait)
