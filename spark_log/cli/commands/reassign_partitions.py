"""``spark-log reassign-partitions``: move partitions between brokers, as Kafka's tool."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final, TypeVar

import typer

from spark_log.cli.cluster import (
    THROTTLE,
    cancel_plan,
    execute_plan,
    generate_plan,
    list_reassigning,
    verify_plan,
)
from spark_log.cli.format import Output
from spark_log.cli.options import Root, with_option_groups
from spark_log.cli.terminal import with_examples
from spark_log.errors import InvalidConfigurationError, InvalidReplicaAssignmentError
from spark_log.metadata import parse_reassignment, parse_topics_to_move

_Parsed = TypeVar("_Parsed")

_NOT_DONE: Final = 1
"""Exit status of ``--verify``: a partition does not have the replicas of the plan."""


@with_examples(
    "spark-log reassign-partitions --list",
)
@with_option_groups
def reassign_partitions(
    root: Root,
    output: Output,
    generate: Annotated[
        bool, typer.Option("--generate", help="Propose a plan, and change nothing.")
    ] = False,
    execute: Annotated[
        bool, typer.Option("--execute", help="Start the reassignments of a plan.")
    ] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Show the progress of a plan.")] = False,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Give the partitions of a plan back their replicas.")
    ] = False,
    list_: Annotated[
        bool, typer.Option("--list", help="List the reassignments in progress.")
    ] = False,
    topics_to_move_json_file: Annotated[
        Path | None,
        typer.Option(
            "--topics-to-move-json-file",
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help='For --generate: {"topics": [{"topic": "foo"}], "version": 1}',
        ),
    ] = None,
    broker_list: Annotated[
        str | None,
        typer.Option("--broker-list", metavar="IDS", help="For --generate: brokers, as in 0,1,2."),
    ] = None,
    disable_rack_aware: Annotated[
        bool, typer.Option("--disable-rack-aware", help="For --generate: ignore racks.")
    ] = False,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor",
            min=1,
            help="For --generate: number of replicas. [default: as many as now]",
        ),
    ] = None,
    reassignment_json_file: Annotated[
        Path | None,
        typer.Option(
            "--reassignment-json-file",
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help='The plan: {"partitions": [{"topic": "foo", "partition": 1, "replicas": [1, 2]}], '
            '"version": 1}',
        ),
    ] = None,
    throttle: Annotated[
        int | None,
        typer.Option(
            "--throttle",
            metavar="N",
            min=1,
            help=f"For --execute: bytes per second; sets the cluster's {THROTTLE}.",
        ),
    ] = None,
    preserve_throttles: Annotated[
        bool,
        typer.Option(
            "--preserve-throttles",
            help=f"For --verify and --cancel: keep {THROTTLE}, which is otherwise removed when no "
            f"partition is being reassigned.",
        ),
    ] = False,
    additional: Annotated[
        bool,
        typer.Option(
            "--additional",
            help="For --execute: start the plan even if other partitions are being reassigned.",
        ),
    ] = False,
    disallow_replication_factor_change: Annotated[
        bool,
        typer.Option(
            "--disallow-replication-factor-change",
            help="For --execute: refuse a plan that changes the number of replicas.",
        ),
    ] = False,
) -> None:
    """Move partitions to other brokers, or change replicas.

    A controller, spark-log replicate or jobs/replicate.py copies the new replicas. When all of them
    are in sync, the old ones are removed. A plan may be cancelled until then. Exit status of
    --verify: 0 the plan is complete, 1 it is not.
    """
    if sum((generate, execute, verify, cancel, list_)) != 1:
        raise InvalidConfigurationError(
            "what to do? Give one of --generate, --execute, --verify, --cancel, --list"
        )
    if generate:
        generate_plan(
            root,
            output,
            _parsed(parse_topics_to_move, topics_to_move_json_file, "--topics-to-move-json-file"),
            _broker_ids(broker_list),
            is_rack_aware=not disable_rack_aware,
            replication_factor=replication_factor,
        )
        return
    admin = root.admin()
    if list_:
        list_reassigning(output, admin.list_partition_reassignments())
        return
    plan = _parsed(parse_reassignment, reassignment_json_file, "--reassignment-json-file")
    if execute:
        execute_plan(
            root,
            output,
            plan,
            additional=additional,
            throttle=throttle,
            allow_factor_change=not disallow_replication_factor_change,
        )
    elif verify:
        if not verify_plan(root, output, plan, clear_throttles=not preserve_throttles):
            raise typer.Exit(_NOT_DONE)
    else:
        cancel_plan(admin, output, plan, clear_throttles=not preserve_throttles)


def _parsed(parse: Callable[[str], _Parsed], path: Path | None, option: str) -> _Parsed:
    if path is None:
        raise InvalidConfigurationError(f"which file? Give {option}")
    try:
        return parse(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise InvalidConfigurationError(f"{path} is not a text file in UTF-8") from None
    except InvalidReplicaAssignmentError as error:
        raise InvalidReplicaAssignmentError(f"{path}: {error}", partition=error.partition) from None


def _broker_ids(text: str | None) -> list[int]:
    try:
        return [int(each) for each in (text or "").split(",")]
    except ValueError:
        raise InvalidConfigurationError(
            "which brokers? Give --broker-list, as in 0,1,2" + (f", not {text!r}" if text else "")
        ) from None
