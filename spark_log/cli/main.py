"""The application ``spark-log`` with all its commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer

from spark_log import __version__
from spark_log.cli.commands import (
    brokers,
    canary,
    clean,
    configs,
    console,
    console_consumer,
    console_producer,
    consumer_perf,
    controller,
    delete_records,
    doctor,
    dump_log,
    elect_leaders,
    exporter,
    groups,
    init,
    log_dirs,
    mirror,
    offsets,
    producer_perf,
    quorum,
    reassign_partitions,
    replicate,
    submit,
    top,
    topics,
    transactions,
    verify,
    version,
)
from spark_log.cli.errors import HELP_NAMES, run
from spark_log.cli.format import print_text

# Without Rich's panels, help and errors are plain text that can be piped and searched.
app = typer.Typer(rich_markup_mode=None, context_settings=HELP_NAMES)


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run ``spark-log`` and exit.

    Args:
        argv: arguments; None: those of the process.
    """
    run(app, argv=argv, prog="spark-log")


@app.callback(invoke_without_command=True)
def _spark_log(
    context: typer.Context,
    show_version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    """A log like Kafka's on shared storage, without a server.

    The root of the cluster is given by --root, by the environment variable SPARK_LOG_ROOT, or by
    root=… in spark-log.properties. With --output json a command answers in JSON. Answers go to
    stdout, everything else to stderr. Exit status: 0 done, 1 failure, 2 mistake of the user.
    """
    if show_version:
        print_text(f"spark-log {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print_text(context.get_help())


@brokers.app.callback(invoke_without_command=True)
def _brokers(context: typer.Context) -> None:
    """Register, describe and fence brokers."""
    if context.invoked_subcommand is None:
        print_text(context.get_help())


@topics.app.callback(invoke_without_command=True)
def _topics(context: typer.Context) -> None:
    """Create, list, describe, alter and delete topics."""
    if context.invoked_subcommand is None:
        print_text(context.get_help())


@configs.app.callback(invoke_without_command=True)
def _configs(context: typer.Context) -> None:
    """Describe and alter settings."""
    if context.invoked_subcommand is None:
        print_text(context.get_help())


@offsets.app.callback(invoke_without_command=True)
def _offsets(context: typer.Context) -> None:
    """Look up offsets of partitions."""
    if context.invoked_subcommand is None:
        print_text(context.get_help())


@groups.app.callback(invoke_without_command=True)
def _groups(context: typer.Context) -> None:
    """List, describe, delete, reset and repair groups."""
    if context.invoked_subcommand is None:
        print_text(context.get_help())


@quorum.app.callback(invoke_without_command=True)
def _quorum(context: typer.Context) -> None:
    """Describe, add and remove roots of the cluster root."""
    if context.invoked_subcommand is None:
        print_text(context.get_help())


@transactions.app.callback(invoke_without_command=True)
def _transactions(context: typer.Context) -> None:
    """List, describe and abort transactions."""
    if context.invoked_subcommand is None:
        print_text(context.get_help())


@mirror.app.callback(invoke_without_command=True)
def _mirror(context: typer.Context) -> None:
    """Mirror topics from Kafka and to Kafka."""
    if context.invoked_subcommand is None:
        print_text(context.get_help())


@controller.app.callback(invoke_without_command=True)
def _controller(context: typer.Context) -> None:
    """Watch brokers and replicas."""
    if context.invoked_subcommand is None:
        print_text(context.get_help())


app.add_typer(brokers.app, name="brokers")
app.add_typer(controller.app, name="controller")
app.add_typer(topics.app, name="topics")
app.add_typer(configs.app, name="configs")
app.add_typer(mirror.app, name="mirror")
app.add_typer(offsets.app, name="offsets")
app.add_typer(groups.app, name="groups")
app.add_typer(quorum.app, name="quorum")
app.add_typer(transactions.app, name="transactions")
app.command("canary")(canary)
app.command("clean")(clean)
app.command("console")(console)
app.command("console-producer")(console_producer)
app.command("console-consumer")(console_consumer)
app.command("consumer-perf")(consumer_perf)
app.command("delete-records")(delete_records)
app.command("doctor")(doctor)
app.command("dump-log")(dump_log)
app.command("elect-leaders")(elect_leaders)
app.command("exporter")(exporter)
app.command("init")(init)
app.command("log-dirs")(log_dirs)
app.command("producer-perf")(producer_perf)
app.command("reassign-partitions")(reassign_partitions)
app.command("replicate")(replicate)
app.command("top")(top)
app.command("verify")(verify)
app.command("version")(version)
submit.add_commands(app)
