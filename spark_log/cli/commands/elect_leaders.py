"""``spark-log elect-leaders``: elect leaders of partitions, as kafka-leader-election."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from spark_log.cli.format import Output, print_json, print_note, print_text
from spark_log.cli.options import (
    PARTITIONS_FORM,
    Root,
    complete_topics,
    read_partitions,
    with_option_groups,
)
from spark_log.cli.terminal import with_examples
from spark_log.cluster import Cluster
from spark_log.errors import ElectionNotNeededError, InvalidConfigurationError
from spark_log.types import ElectionType, TopicPartition

_FAILED = 1
"""Exit status: a partition got no leader."""


class ElectionTypeOption(StrEnum):
    """Values of ``--election-type``."""

    PREFERRED = "preferred"
    UNCLEAN = "unclean"


@with_examples(
    "spark-log elect-leaders --election-type preferred --all-topic-partitions",
    "spark-log elect-leaders --election-type unclean --all-topic-partitions",
)
@with_option_groups
def elect_leaders(
    root: Root,
    output: Output,
    election_type: Annotated[
        ElectionTypeOption,
        typer.Option(
            "--election-type",
            help="preferred: the first replica, if it is in sync. unclean: if no replica can lead "
            "without a loss, one that lacks records; the topic has to allow it by "
            "unclean.leader.election.enable.",
        ),
    ],
    all_topic_partitions: Annotated[
        bool,
        typer.Option("--all-topic-partitions", help="All partitions that need such an election."),
    ] = False,
    topic: Annotated[
        str | None,
        typer.Option(
            "--topic",
            metavar="TOPIC",
            help="Topic of the partition.",
            autocompletion=complete_topics,
        ),
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", metavar="N", help="Number of the partition.")
    ] = None,
    path_to_json_file: Annotated[
        Path | None,
        typer.Option(
            "--path-to-json-file",
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help=f"Partitions, instead of the other options: {PARTITIONS_FORM}",
        ),
    ] = None,
) -> None:
    """Elect leaders of partitions.

    The replicas before the new leader leave the in-sync replicas; spark-log replicate or a
    controller brings them back. Exit status: 0 done, 1 a partition did not get the leader.
    """
    wanted = _partitions(all_topic_partitions, topic, partition, path_to_json_file)
    kind = ElectionType[election_type.upper()]
    results = root.admin().elect_leaders(kind, wanted)
    elected = [tp for tp, error in results.items() if error is None]
    needless = [tp for tp, error in results.items() if isinstance(error, ElectionNotNeededError)]
    failed = {tp: error for tp, error in results.items() if error and tp not in needless}
    cluster = root.cluster()
    leaders = {
        tp: cluster.image().topic(tp.topic).partitions[tp.partition].leader for tp in elected
    }
    ends = _log_ends(cluster, elected) if kind is ElectionType.UNCLEAN else {}
    if output.is_json:
        print_json(
            {
                "election_type": election_type,
                "elected": [
                    _key(tp)
                    | {"leader": leaders[tp]}
                    | ({"log_end_offset": ends[tp]} if tp in ends else {})
                    for tp in elected
                ],
                "not_needed": [_key(tp) for tp in needless],
                "failed": [_key(tp) | {"error": str(error)} for tp, error in failed.items()],
            }
        )
    else:
        _print(election_type, elected, needless, leaders)
    for tp, end in ends.items():
        print_note(
            f"{tp}: the log of broker {leaders[tp]} ends at offset {end}; if this replica was not "
            f"in sync, acknowledged records from this offset on are lost"
        )
    for error in failed.values():
        print_note(f"error: {error}")
    if failed:
        raise typer.Exit(_FAILED)


def _partitions(
    is_all: bool, topic: str | None, partition: int | None, path: Path | None
) -> list[TopicPartition] | None:
    """Return the partitions that were named; None for all.

    Raises:
        InvalidConfigurationError: none or several of the ways to name them were used.
    """
    ways = [is_all, topic is not None or partition is not None, path is not None]
    if sum(ways) != 1 or (topic is None) != (partition is None):
        raise InvalidConfigurationError(
            "which partitions? Give either --all-topic-partitions, or --topic and --partition, or "
            "--path-to-json-file"
        )
    if path is not None:
        return read_partitions(path)
    if topic is None or partition is None:
        return None
    return [TopicPartition(topic, partition)]


def _log_ends(cluster: Cluster, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    """Return where the logs of new leaders end."""
    image = cluster.image()
    return {
        tp: cluster.partition_log(image.topic(tp.topic), tp.partition).observe().log_end_offset
        for tp in partitions
    }


def _print(
    election_type: ElectionTypeOption,
    elected: list[TopicPartition],
    needless: list[TopicPartition],
    leaders: dict[TopicPartition, int],
) -> None:
    """Print what kafka-leader-election prints, and the new leaders."""
    kind = election_type.upper()
    if elected:
        names = ", ".join(f"{tp} (broker {leaders[tp]})" for tp in elected)
        print_text(f"Successfully completed leader election ({kind}) for partitions {names}")
    if needless:
        names = ", ".join(map(str, needless))
        print_text(f"Valid replica already elected for partitions {names}")


def _key(tp: TopicPartition) -> dict[str, object]:
    return {"topic": tp.topic, "partition": tp.partition}
