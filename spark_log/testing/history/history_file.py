"""Histories as JSON lines, which processes write line by line and may be killed at any moment."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import Any, Self

from spark_log.errors import SparkLogError
from spark_log.testing.history.garbage import paused_garbage_collection
from spark_log.testing.history.operation import (
    Assign,
    Operation,
    Outcome,
    Poll,
    Polled,
    Send,
)
from spark_log.types import TopicPartition

_topic_partition = attrgetter("topic_partition")

_log = logging.getLogger(__name__)


class HistoryFormatError(SparkLogError):
    """A line of a history file is no operation.

    Attributes:
        path: the file.
        line: number of the line, from 1.
    """

    def __init__(self, message: str, *, path: str = "", line: int = 0) -> None:
        super().__init__(message)
        self.path = path
        self.line = line


@dataclass(frozen=True, slots=True)
class History:
    """The operations of all clients; those of one client in the order in which it invoked them.

    Attributes:
        operations: the operations.
        torn: paths of files whose last line was incomplete and is left out.
    """

    operations: Sequence[Operation]
    torn: tuple[str, ...] = ()


class HistoryWriter:
    """Appends operations to a file of JSON lines, each with one unbuffered write.

    A written line survives SIGKILL of the process, though not a power cut. Note an operation before
    it is invoked, with its outcome unknown, and once more when the outcome is known: `read_history`
    uses the last line of each process and number.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def note(self, operation: Operation) -> None:
        """Append one operation.

        Raises:
            OSError: the line was not written, or only a part of it.
        """
        line = f"{_to_json(operation)}\n".encode()
        written = os.write(self._descriptor, line)
        if written != len(line):
            raise OSError(f"{written} of {len(line)} bytes of an operation were written")

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_history(*paths: str | os.PathLike[str]) -> History:
    """Read files that `HistoryWriter` wrote.

    An incomplete last line, which a killed process may leave, is left out, logged, and reported in
    `History.torn`.

    Raises:
        HistoryFormatError: another line is no operation.
        OSError: a file cannot be read.
    """
    operations: dict[tuple[str, int], Operation] = {}
    torn = []
    for each in paths:
        path = os.fspath(each)
        with open(path, "rb") as lines, paused_garbage_collection():
            for number, line in enumerate(lines, 1):
                operation = _parse_line(path, number, line)
                if operation is None:
                    _log.warning("%s: the last line is incomplete and is left out", path)
                    torn.append(path)
                    continue
                key = operation.process, operation.number
                first = operations.get(key)
                if first is not None and operation.invoked is None:
                    operation = replace(operation, invoked=first.invoked)
                operations[key] = operation
    return History(tuple(operations.values()), tuple(torn))


def _parse_line(path: str, number: int, line: bytes) -> Operation | None:
    """Return the operation in a line of a file; None if the line is incomplete."""
    try:
        return _from_json(json.loads(line))
    except (ValueError, KeyError, TypeError) as error:
        if not line.endswith(b"\n"):
            return None
        raise HistoryFormatError(
            f"{path}, line {number} is no operation of a history: {type(error).__name__}: {error}",
            path=path,
            line=number,
        ) from None


def _to_json(operation: Operation) -> str:
    fields: dict[str, Any] = {
        "process": operation.process,
        "number": operation.number,
        "outcome": operation.outcome,
        "transaction": operation.is_transaction or None,
        "invoked": operation.invoked,
        "end_invoked": operation.end_invoked,
        "completed": operation.completed,
        "actions": [_action_to_json(action) for action in operation.actions],
    }
    given = {name: value for name, value in fields.items() if value is not None}
    return json.dumps(given, separators=(",", ":"))


def _action_to_json(action: Send | Poll | Assign) -> list[Any]:
    match action:
        case Send((topic, partition), value, offset):
            return ["send", topic, partition, value, offset]
        case Poll(records, is_read_committed):
            kind = "poll" if is_read_committed else "poll_uncommitted"
            return [
                kind,
                *(
                    [*topic_partition, [[offset, value] for _, offset, value in those]]
                    for topic_partition, those in groupby(records, _topic_partition)
                ),
            ]
        case Assign(positions):
            return ["assign", [[*tp, offset] for tp, offset in positions]]


def _from_json(fields: dict[str, Any]) -> Operation:
    return Operation(
        process=fields["process"],
        number=fields["number"],
        actions=tuple(map(_action_from_json, fields["actions"])),
        outcome=Outcome(fields["outcome"]),
        is_transaction=fields.get("transaction", False),
        invoked=fields.get("invoked"),
        end_invoked=fields.get("end_invoked"),
        completed=fields.get("completed"),
    )


def _action_from_json(fields: list[Any]) -> Send | Poll | Assign:
    match fields:
        case ["send", str(topic), int(partition), str(value), int() | None as offset]:
            return Send(TopicPartition(topic, partition), value, offset)
        case ["poll" | "poll_uncommitted" as kind, *partitions]:
            return Poll(
                tuple(
                    Polled(topic_partition, offset, value)
                    for topic, partition, records in partitions
                    for topic_partition in (TopicPartition(topic, partition),)
                    for offset, value in records
                ),
                kind == "poll",
            )
        case ["assign", list(positions)]:
            return Assign(
                tuple((TopicPartition(topic, p), offset) for topic, p, offset in positions)
            )
    raise ValueError(f"{json.dumps(fields)[:100]} is no send, poll or assign")
