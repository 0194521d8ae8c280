"""``spark-log controller``: watches brokers and replicas."""

from __future__ import annotations

import threading
from typing import Annotated

import typer

from spark_log.cli.examples import with_examples
from spark_log.cli.format import Output, print_json_lines, print_note, print_text
from spark_log.cli.option_groups import with_option_groups
from spark_log.cli.root import Root
from spark_log.cli.sigterm import exit_on_sigterm
from spark_log.replication import Controller, Decision

_FAILED = 1
"""Exit status of a single run: a replica did not come back."""

_INTERVAL_MS = 2_000
_ONCE_INTERVAL_MS = 100

app = typer.Typer(rich_markup_mode=None)


@app.command("run")
@with_examples("spark-log controller run --once", "spark-log controller run --once --json")
@with_option_groups
def run_controller(
    root: Root,
    output: Output,
    once: Annotated[
        bool,
        typer.Option(
            "--once", help="Stop when nothing is left to do. Does not replace another controller."
        ),
    ] = False,
    interval_ms: Annotated[
        int | None,
        typer.Option(
            "--interval-ms",
            min=10,
            help="Time between two looks at the brokers. [default: 2000; with --once 100]",
        ),
    ] = None,
    threads: Annotated[
        int,
        typer.Option(
            "--num-replica-fetchers",
            min=1,
            help="How many partitions are copied at the same time; Kafka's num.replica.fetchers.",
        ),
    ] = 1,
) -> None:
    """Watch the brokers and the replicas of all partitions.

    The controller fences brokers whose roots have not answered for replica.lag.time.max.ms, and
    unfences them when they answer again; elects leaders; brings replicas back; moves leaderships to
    the preferred leaders; completes reassignments. Each decision is printed with its reason. It
    works until it is stopped, or until a newer controller starts; several at once are safe. Exit
    status of --once: 0 done, 1 a replica did not come back.
    """

    def show(decision: Decision) -> None:
        if output.is_json:
            print_json_lines([decision.document()])
        else:
            print_text(str(decision))

    controller = Controller(root.cluster(), threads=threads, on_decision=show)
    pause = threading.Event()
    pause_ms = interval_ms or (_ONCE_INTERVAL_MS if once else _INTERVAL_MS)

    def wait() -> bool:
        return pause.wait(pause_ms / 1000)

    with exit_on_sigterm():
        if not once:
            controller.run(wait)
            return
        failed = controller.run_once(wait)
    for replica in failed:
        print_note(f"error: {replica} did not come back")
    if failed:
        raise typer.Exit(_FAILED)
