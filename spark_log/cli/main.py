"""The application ``spark-log`` with all its commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, NoReturn

import typer
from typer.core import TyperGroup

from spark_log import __version__
from spark_log.cli.commands.submit import add_commands
from spark_log.cli.format import print_text
from spark_log.cli.lazy_command import LazyCommand
from spark_log.cli.terminal import HELP_NAMES, run

COMMANDS: Final = {
    "brokers": "Register, describe and fence brokers.",
    "canary": "Send records through the log, and time them.",
    "clean": "Apply retention, merge segments and compact topics.",
    "configs": "Describe and alter settings.",
    "console": "Serve a website that shows the root, until Ctrl-C.",
    "console-consumer": "Print the records of a topic.",
    "console-producer": "Append lines from stdin to a topic.",
    "consumer-perf": "Measure how fast records are read.",
    "controller": "Watch brokers and replicas.",
    "delete-records": "Delete the records before an offset.",
    "doctor": "Tell what is wrong with a root and what to do.",
    "dump-log": "Dump a segment, index or stripe file and check it.",
    "elect-leaders": "Elect leaders of partitions.",
    "exporter": "Serve the root's metrics to Prometheus.",
    "features": "Describe and upgrade features of the bytes at rest.",
    "gateway": "Serve the root to Kafka's clients, until Ctrl-C.",
    "gateway-users": "List, add and delete users of gateways.",
    "get": "Print the newest record of a key.",
    "groups": "List, describe, delete, reset and repair groups.",
    "init": "Write the configuration files into a folder.",
    "log-dirs": "Show directories and sizes of replicas, by broker.",
    "mirror": "Mirror topics from Kafka and to Kafka.",
    "offsets": "Look up offsets of partitions.",
    "producer-perf": "Measure how fast records are sent and acknowledged.",
    "quorum": "Describe, add and remove members of the quorum.",
    "reassign-partitions": "Move partitions to other brokers, or change replicas.",
    "replicate": "Bring replicas that are not in sync back.",
    "table": "Convert, verify and rebuild a topic's table.",
    "top": "Show topics and groups live: rates, sizes and lag.",
    "topics": "Create, list, describe, alter and delete topics.",
    "transactions": "List, describe and abort transactions.",
    "verify": "Check logs, and repair derived files.",
    "version": "Show versions: program, format, Python and Arrow.",
}
"""Name of each command and the first line of its help; the jobs for Spark are added to them.

The function of a command is in ``cli/commands/<name>.py``, ``-`` in the name replaced by ``_``: a
function of this name, or an ``app`` with several (`lazy_command`)."""


class _Commands(TyperGroup):
    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, summary in COMMANDS.items():
            self.add_command(LazyCommand(name, summary))


# Without Rich's panels, help and errors are plain text that can be piped and searched.
app = typer.Typer(cls=_Commands, rich_markup_mode=None, context_settings=HELP_NAMES)
add_commands(app)


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run ``spark-log`` and exit.

    Args:
        argv: the arguments; None for those of the process.
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
