"""Operations of consumer groups: joins, commits, waiting members."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from benchmarks.request_operations.operation import (
    IDLE_S,
    Call,
    Operation,
    Root,
    close_all,
    poll_for,
    read,
)
from spark_log import Consumer, TopicPartition

PARTITIONS = 4
"""Number of partitions of the topic that an idle member reads."""

_POLL_MS = 50
_BEGUN_LOOKS_S = 0.3


def _member(root: Root, **settings: Any) -> Consumer:
    return root.consumer("t", group_id="g", enable_auto_commit=False, **settings)


@contextmanager
def join(root: Root) -> Iterator[Call]:
    """The only member of a group joins and reads its first record."""
    root.create_topic()
    root.send(1)
    opened: list[Consumer] = []

    def run() -> None:
        consumer = root.consumer("t", group_id="g")
        opened.append(consumer)
        read(consumer, 1)

    yield run
    close_all(opened)


@contextmanager
def second_join(root: Root) -> Iterator[Call]:
    """A second member joins, until both have one of two partitions.

    The first member has paused them: other operations count the requests of a waiting reader.
    """
    root.create_topic(2)
    root.send(2, partitions=2)
    with _member(root) as first:
        read(first, 2)
        first.pause(*first.assignment())
        opened: list[Consumer] = []

        def run() -> None:
            second = _member(root)
            opened.append(second)
            while not (len(first.assignment()) == len(second.assignment()) == 1):
                second.poll(_POLL_MS)
                first.poll(_POLL_MS)

        yield run
        close_all(opened)


@contextmanager
def commit(root: Root) -> Iterator[Call]:
    """A member of a group commits its position in a partition that is paused.

    Other operations count the requests of a waiting reader and of a waiting member.
    """
    root.create_topic()
    root.send(2)
    numbers = count()
    with _member(root, heartbeat_interval_ms=10_000) as consumer:
        read(consumer, 2)
        tp = TopicPartition("t", 0)
        consumer.pause(tp)

        def run() -> None:
            consumer.seek(tp, next(numbers) % 2)
            consumer.commit()

        run()
        yield run


@contextmanager
def committed(root: Root) -> Iterator[Call]:
    """A member reads the committed offset of a partition that it is not assigned."""
    tps = root.create_topic(2)
    root.send(2, partitions=2)
    with _member(root) as consumer:
        read(consumer, 2)
        consumer.commit()
    with root.consumer(group_id="g", enable_auto_commit=False) as other:
        other.committed(tps[0])
        yield lambda: other.committed(tps[1])


@contextmanager
def idle_member(root: Root) -> Iterator[Call]:
    """The only member of a group has read everything, and waits for records."""
    root.create_topic(PARTITIONS)
    root.send(PARTITIONS, partitions=PARTITIONS)
    with _member(root) as consumer:
        read(consumer, PARTITIONS)
        consumer.commit()
        poll_for(consumer, IDLE_S)
        yield lambda: poll_for(consumer, IDLE_S)


@contextmanager
def heartbeat(root: Root) -> Iterator[Call]:
    """A member whose partitions are paused waits: only the group sends requests."""
    root.create_topic(PARTITIONS)
    root.send(PARTITIONS, partitions=PARTITIONS)
    with _member(root) as consumer:
        read(consumer, PARTITIONS)
        consumer.commit()
        consumer.pause(*consumer.assignment())
        poll_for(consumer, IDLE_S)
        yield lambda: poll_for(consumer, IDLE_S)


@contextmanager
def leave(root: Root) -> Iterator[Call]:
    """The only member of a group, which has committed its position, leaves.

    The requests that its poll and its commit began have ended before.
    """
    root.create_topic()
    root.send(1)
    consumer = _member(root, heartbeat_interval_ms=10_000)
    read(consumer, 1)
    consumer.commit()
    consumer.pause(*consumer.assignment())
    poll_for(consumer, _BEGUN_LOOKS_S)
    yield consumer.close


OPERATIONS = (
    Operation(
        "a group's join to its first record",
        join,
        25,
        10,
        "The member opens the root, creates the group's log and joins the group. It reads the "
        "committed offsets, and then the first record as a consumer without a group does.",
    ),
    Operation(
        "a second member's join",
        second_join,
        35,
        24,
        "The member opens the root and reads the group's log. It writes its request to join. The"
        " first member reads the request, writes the new assignment, and releases partitions.",
        waits=True,
    ),
    Operation(
        "one commit",
        commit,
        4,
        3,
        "The member writes the offset into the group's log and into the offsets table.",
        repeats=10,
    ),
    Operation(
        "committed offset of one partition",
        committed,
        3,
        3,
        "The consumer reads the newest state of the offsets table.",
    ),
    Operation(
        f"an idle member of a group, {PARTITIONS} partitions, a second",
        idle_member,
        7,
        7,
        "The member sends the requests of an idle consumer and those of a member without "
        "partitions.",
        lasts_s=IDLE_S,
        waits=True,
    ),
    Operation(
        "a member whose partitions are paused, a second",
        heartbeat,
        2.5,
        2.5,
        "The member writes a heartbeat every `heartbeat.interval.ms`, and asks for the next "
        "record of the group's log.",
        lasts_s=IDLE_S,
        waits=True,
    ),
    Operation(
        "a member leaves",
        leave,
        5,
        5,
        "The member checks the group's log and the metadata, writes a record into the group's "
        "log, and deletes its heartbeat.",
    ),
)
