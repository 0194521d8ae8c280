"""The application: all commands under one name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer

from spark_log import __version__
from spark_log.cli.commands import configs, groups, offsets, submit, topics
from spark_log.cli.commands.clean import clean
from spark_log.cli.commands.console_consumer import console_consumer
from spark_log.cli.commands.console_producer import console_producer
from spark_log.cli.commands.consumer_perf import consumer_perf
from spark_log.cli.commands.delete_records import delete_records
from spark_log.cli.commands.dump_log import dump_log
from spark_log.cli.commands.init import init
from spark_log.cli.commands.log_dirs import log_dirs
from spark_log.cli.commands.producer_perf import producer_perf
from spark_log.cli.commands.verify import verify
from spark_log.cli.commands.version import version
from spark_log.cli.errors import run
from spark_log.cli.format.output import print_text

# Without Rich's panels, help and errors are plain text that can be piped and searched.
app = typer.Typer(add_completion=False, rich_markup_mode=None)


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run ``spark-log`` and exit.

    Args:
        argv: the arguments; None for the process's.
    """
    run(app, argv=argv, prog="spark-log")


@app.callback(invoke_without_command=True)
def _spark_log(
    context: typer.Context,
    show_version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    """Kafka's log on shared storage, with no server.

    Every command takes --root (or the environment variable SPARK_LOG_ROOT, or root=… in
    spark-log.properties) and --output text|json. Answers go to stdout, all else to stderr.
    Exit status: 0 done, 1 failure, 2 mistake in what was asked for.
    """
    if show_version:
        print_text(f"spark-log {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print_text(context.get_help())


@topics.app.callback(invoke_without_command=True)
def _topics(context: typer.Context) -> None:
    """Create, list, describe, alter and delete topics."""
    if context.invoked_subcommand is None:
        print_text(context.get_help())


@configs.app.callback(invoke_without_command=True)
def _configs(context: typer.Context) -> None:
    """Describe and alter settings of topics."""
    if context.invoked_subcommand is None:
        print_text(context.get_help())


@offsets.app.callback(invoke_without_command=True)
def _offsets(context: typer.Context) -> None:
    """Look up offsets of partitions."""
    if context.invoked_subcommand is None:
        print_text(context.get_help())


@groups.app.callback(invoke_without_command=True)
def _groups(context: typer.Context) -> None:
    """List, describe, delete and reset consumer groups."""
    if context.invoked_subcommand is None:
        print_text(context.get_help())


app.add_typer(topics.app, name="topics")
app.add_typer(configs.app, name="configs")
app.add_typer(offsets.app, name="offsets")
app.add_typer(groups.app, name="groups")
app.command("clean")(clean)
app.command("console-producer")(console_producer)
app.command("console-consumer")(console_consumer)
app.command("consumer-perf")(consumer_perf)
app.command("delete-records")(delete_records)
app.command("dump-log")(dump_log)
app.command("init")(init)
app.command("log-dirs")(log_dirs)
app.command("producer-perf")(producer_perf)
app.command("verify")(verify)
app.command("version")(version)
submit.add_commands(app)
