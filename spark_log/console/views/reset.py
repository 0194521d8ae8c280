"""Resets the committed offsets of a group: shows a plan first, then commits it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from spark_log.admin import OffsetResetPlanner, ResetPlan
from spark_log.config import parse_time_ms, parse_time_us
from spark_log.console.budget import Budget
from spark_log.console.console import Console
from spark_log.console.view import GroupId, Parameters, PartitionNumber
from spark_log.errors import GroupNotEmptyError, InvalidConfigurationError
from spark_log.types import OffsetAndMetadata, OffsetSpec, TopicPartition

_log = logging.getLogger(__name__)


class ResetParameters(Parameters):
    """The partitions of a group, their new offsets, and whether these are committed."""

    group: GroupId
    topic: Annotated[
        str,
        Field(max_length=1000, description="Topic; empty for all topics with a committed offset."),
    ] = ""
    partition: PartitionNumber = None
    to: Annotated[
        Literal["earliest", "latest", "time", "offset", "shift", "committed-at"],
        Field(description="The new offsets, as in spark-log groups reset-offsets."),
    ] = "earliest"
    value: Annotated[
        str,
        Field(max_length=64, description="A time, an offset, or a number of records to shift by."),
    ] = ""
    execute: Annotated[
        bool, Field(description="Commit the offsets. Without it they are only returned.")
    ] = False
    planned: Annotated[
        str,
        Field(
            max_length=1_000_000,
            description="Offsets of a dry run, as topic,partition,offset lines: exactly these are "
            "committed.",
        ),
    ] = ""


@dataclass(frozen=True, slots=True)
class NewOffset:
    """The new offset of a partition.

    Attributes:
        topic: the name of the topic.
        partition: the number of the partition.
        current_offset: the committed offset; None without one.
        new_offset: the new committed offset.
    """

    topic: str
    partition: int
    current_offset: int | None
    new_offset: int


@dataclass(frozen=True, slots=True)
class Reset:
    """A reset that was planned or executed.

    Attributes:
        group_id: the group's id.
        executed: whether the offsets were committed.
        offsets: the new offsets, sorted by topic and partition.
        notes: one sentence for each partition whose new offset differs from the requested one.
    """

    group_id: str
    executed: bool
    offsets: tuple[NewOffset, ...]
    notes: tuple[str, ...]


def execute_reset(console: Console, parameters: ResetParameters, budget: Budget) -> Reset:
    """Plan new offsets; if ``execute`` is true, commit all of them or none.

    Raises:
        GroupNotEmptyError: the group has members; nothing was changed.
        InvalidConfigurationError: the value does not fit the scenario.
        UnknownTopicOrPartitionError: the topic or partition does not exist.
        UnknownOutcomeError: the offsets may have been changed; it is safe to repeat the call.
    """
    group_id = parameters.group
    members = console.admin.group_members(group_id)
    if members:
        raise GroupNotEmptyError(
            f"offsets of group {group_id!r} can only be reset while it has no members: stop "
            f"{', '.join(members[:3])} first",
            group_id=group_id,
            members=members,
        )
    planner = OffsetResetPlanner(console.cluster, console.admin, group_id)
    committed = planner.committed()
    plan = _plan(console, planner, parameters, committed)
    budget.check()
    if parameters.execute and plan.offsets:
        console.admin.alter_group_offsets(
            group_id, {tp: OffsetAndMetadata(offset) for tp, offset in plan.offsets.items()}
        )
        _log.info("group %s: reset the offsets of %d partitions", group_id, len(plan.offsets))
    return Reset(
        group_id,
        parameters.execute,
        tuple(
            NewOffset(tp.topic, tp.partition, committed.get(tp), offset)
            for tp, offset in sorted(plan.offsets.items())
        ),
        plan.notes,
    )


def _plan(
    console: Console,
    planner: OffsetResetPlanner,
    parameters: ResetParameters,
    committed: dict[TopicPartition, int],
) -> ResetPlan:
    if parameters.planned:
        return planner.to_offsets(_parsed(parameters.planned))
    if not parameters.topic:
        if parameters.partition is not None:
            raise InvalidConfigurationError("a partition was given without its topic; give both")
        console.admin.describe_groups([parameters.group])  # an error if it does not exist
        some = sorted(committed)
    else:
        numbers = sorted(console.cluster.topic(parameters.topic).partitions)
        if parameters.partition is not None:
            numbers = [parameters.partition]
        some = [TopicPartition(parameters.topic, number) for number in numbers]
    value = parameters.value.strip()
    ways: dict[str, Callable[[], ResetPlan]] = {
        "earliest": lambda: planner.to_spec(some, OffsetSpec.EARLIEST),
        "latest": lambda: planner.to_spec(some, OffsetSpec.LATEST),
        "time": lambda: planner.to_spec(some, max(0, parse_time_ms("value", value))),
        "offset": lambda: planner.to_offsets(dict.fromkeys(some, _number(value))),
        "shift": lambda: planner.shifted(some, _number(value)),
        "committed-at": lambda: planner.to_committed_at(
            some if parameters.topic else None, parse_time_us("value", value)
        ),
    }
    return ways[parameters.to]()


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidConfigurationError(f"value is {text!r}, expected a whole number") from None


def _parsed(lines: str) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    # Not splitlines(): a topic's name may contain characters that it treats as line ends. A browser
    # sends a line break of a field as two characters.
    for line in lines.replace("\r\n", "\n").split("\n"):
        try:
            topic, partition, offset = line.rsplit(",", 2)
            found[TopicPartition(topic, int(partition))] = int(offset)
        except ValueError:
            raise InvalidConfigurationError(
                f"planned: expected topic,partition,offset, got {line!r}"
            ) from None
    return found
