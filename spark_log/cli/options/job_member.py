"""Options of the jobs that are members of a consumer group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

import typer

from spark_log.cli.options.properties import parse_pairs
from spark_log.config import ConsumerConfig
from spark_log.errors import InvalidConfigurationError, nearest

_MEMBER_PROPS: Final = (
    "auto.offset.reset",
    "client.id",
    "client.rack",
    "group.instance.id",
    "heartbeat.interval.ms",
    "max.poll.interval.ms",
    "partition.assignment.strategy",
    "retry.backoff.ms",
    "session.timeout.ms",
)
"""Consumer configs that apply to a job; the others configure fetches of a `Consumer`."""


@dataclass(frozen=True, slots=True)
class JobMemberOptions:
    """The membership of a job in its group, from command line options.

    Attributes:
        group: the id of the consumer group.
        config: the configuration of the member.
        follow: whether to keep reading new records.
        interval_s: the minimum number of seconds between the starts of batches.
        members: the number of tasks that share the job's partitions; None for as many as can run.
        batch_records: the approximate maximum number of records in a batch; None for all.
    """

    group: str
    config: ConsumerConfig
    follow: bool
    interval_s: float
    members: int | None
    batch_records: int | None

    @classmethod
    def from_options(
        cls,
        group: Annotated[str, typer.Option(help="Consumer group.")],
        latest: Annotated[
            bool,
            typer.Option(
                help="Start at the end of a partition, instead of its start, if the group has no "
                "offset or the offset is no longer retained."
            ),
        ] = False,
        follow: Annotated[
            bool, typer.Option("--follow", help="Keep reading new records until Ctrl-C or SIGTERM.")
        ] = False,
        interval: Annotated[
            float,
            typer.Option(
                min=0,
                help="With --follow: minimum number of seconds between the starts of batches.",
            ),
        ] = 10.0,
        members: Annotated[
            int | None,
            typer.Option(
                min=1,
                help="Number of tasks that share the job's partitions. [default: as many as can "
                "run at once]",
            ),
        ] = None,
        assignment_strategy: Annotated[
            str | None,
            typer.Option(
                help="range, roundrobin, sticky or cooperative-sticky; several in order of "
                "preference, separated by commas. [default: range,cooperative-sticky]"
            ),
        ] = None,
        batch_records: Annotated[
            int | None,
            typer.Option(
                min=1, help="Approximate maximum number of records in a batch. [default: all]"
            ),
        ] = None,
        consumer_props: Annotated[
            list[str] | None,
            typer.Option(
                metavar="KEY=VALUE",
                help="Consumer config, such as session.timeout.ms=10000. Repeatable.",
            ),
        ] = None,
    ) -> JobMemberOptions:
        """Check the options.

        Raises:
            InvalidConfigurationError: a property is unknown, does not apply to a job, or has an
                invalid value.
        """
        config = _config(consumer_props or [], assignment_strategy, latest=latest)
        return cls(group, config, follow, interval if follow else 0, members, batch_records)


def _config(props: list[str], strategy: str | None, *, latest: bool) -> ConsumerConfig:
    given: dict[str, object] = {"auto.offset.reset": "latest" if latest else "earliest"}
    given |= parse_pairs("--consumer-props", props)
    if strategy is not None:
        given["partition.assignment.strategy"] = strategy
    config = ConsumerConfig.parse(given)
    for key in given:
        if key not in _MEMBER_PROPS:
            close = nearest(key, _MEMBER_PROPS)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise InvalidConfigurationError(
                f"--consumer-props {key} does not apply to this job; {hint}the job takes "
                f"{', '.join(_MEMBER_PROPS)}",
                key=key,
            )
    return config
