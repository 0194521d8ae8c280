"""Operations of hand-made histories, in few words."""

from itertools import count
from typing import Any

from spark_log.testing.history import Assign, Operation, Outcome, Poll, Polled, Send
from spark_log.types import TopicPartition

K = TopicPartition("flights", 0)
L = TopicPartition("flights", 1)

COMMITTED, ABORTED, UNKNOWN = Outcome


def send(value, offset=None, *, to=K):
    return Send(to, value, offset)


def poll(*records, of=K, committed=True):
    """A poll that returned these pairs of an offset and a value."""
    return Poll(tuple(Polled(of, offset, value) for offset, value in records), committed)


def assign(offset=None, *, of=K):
    return Assign(((of, offset),))


def history(*steps):
    """Return operations of steps, each of which begins with the name of its process."""
    numbers: dict[str, Any] = {}
    found = []
    for process, *actions in steps:
        number = next(numbers.setdefault(process, count()))
        details: dict[str, Any] = {"outcome": COMMITTED}
        if isinstance(actions[-1], dict):
            details |= actions.pop()
        found.append(Operation(process, number, tuple(actions), **details))
    return found


def transaction(outcome=COMMITTED, **times):
    return {"outcome": outcome, "is_transaction": True, **times}
