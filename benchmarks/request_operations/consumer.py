"""Operations of consumers without a group: reads, positions, waiting."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from benchmarks.request_operations.operation import (
    IDLE_S,
    Call,
    Operation,
    Root,
    close_all,
    poll_for,
    read,
)
from spark_log import Consumer

SEGMENTS = 59
"""Number of small segments that are read."""

PARTITIONS = 4
"""Number of partitions whose positions are looked up."""


@contextmanager
def first_record(root: Root) -> Iterator[Call]:
    """A new consumer without a group reads its first record."""
    (tp,) = root.create_topic()
    root.send(1)
    opened: list[Consumer] = []

    def run() -> None:
        consumer = root.consumer()
        opened.append(consumer)
        consumer.assign([tp])
        consumer.seek_to_beginning()
        read(consumer, 1)

    yield run
    close_all(opened)


@contextmanager
def small_segments(root: Root) -> Iterator[Call]:
    """A consumer that knows the root reads small segments from their beginning."""
    (tp,) = root.create_topic()
    root.send(SEGMENTS)
    with root.consumer() as consumer:
        consumer.assign([tp])
        consumer.seek_to_beginning()
        read(consumer, SEGMENTS)
        consumer.seek(tp, 0)
        yield lambda: read(consumer, SEGMENTS)


@contextmanager
def end_to_end(root: Root) -> Iterator[Call]:
    """A record is sent, and a waiting consumer gets it."""
    (tp,) = root.create_topic()
    with root.producer() as producer, root.consumer() as consumer:
        consumer.assign([tp])
        consumer.seek_to_beginning()

        def run() -> None:
            producer.send("t", b"value")
            read(consumer, 1)

        for _ in range(3):
            run()
        yield run


def idle(
    partitions: int, replicas: int | None = None
) -> Callable[[Root], AbstractContextManager[Call]]:
    """A consumer that has read everything waits for records."""

    @contextmanager
    def prepare(root: Root) -> Iterator[Call]:
        tps = root.create_topic(partitions, replicas=replicas)
        root.send(partitions, partitions=partitions)
        with root.consumer() as consumer:
            consumer.assign(tps)
            consumer.seek_to_beginning()
            read(consumer, partitions)
            poll_for(consumer, IDLE_S)
            yield lambda: poll_for(consumer, IDLE_S)

    return prepare


@contextmanager
def _paused(root: Root) -> Iterator[Consumer]:
    """Yield a consumer of four partitions with a record each, which has opened the root."""
    tps = root.create_topic(PARTITIONS)
    root.send(PARTITIONS, partitions=PARTITIONS)
    with root.consumer() as consumer:
        consumer.assign(tps)
        consumer.pause(*tps)
        consumer.topics()
        yield consumer


@contextmanager
def end_position(root: Root) -> Iterator[Call]:
    """A consumer moves to the end of four partitions, and asks for its positions."""
    with _paused(root) as consumer:

        def run() -> None:
            consumer.seek_to_end()
            for tp in sorted(consumer.assignment()):
                consumer.position(tp)

        yield run


@contextmanager
def end_offsets(root: Root) -> Iterator[Call]:
    """A consumer asks for the end offsets of four partitions."""
    with _paused(root) as consumer:
        yield lambda: consumer.end_offsets(consumer.assignment())


@contextmanager
def offsets_for_times(root: Root) -> Iterator[Call]:
    """A consumer looks up the first records after a time in four partitions."""
    with _paused(root) as consumer:
        times = dict.fromkeys(consumer.assignment(), 1)
        yield lambda: consumer.offsets_for_times(times)


@contextmanager
def close(root: Root) -> Iterator[Call]:
    """A consumer that has read is closed."""
    (tp,) = root.create_topic()
    root.send(1)
    consumer = root.consumer()
    consumer.assign([tp])
    consumer.seek_to_beginning()
    read(consumer, 1)
    consumer.pause(tp)
    yield consumer.close


_IDLE = "tests/consumer/fetch/test_idle_consumer.py"
_IDLE_REPLICAS = "tests/log/test_partition_log.py"

OPERATIONS = (
    Operation(
        "first record of a consumer",
        first_record,
        8,
        7,
        "opening the root, as a first send; the topic's metadata; in parallel whether the root "
        "exists; the partition's listing, its segment, its end",
    ),
    Operation(
        f"{SEGMENTS} small segments",
        small_segments,
        SEGMENTS + 2,
        24,
        "a listing, a GET for each segment, 16 at once; a check for one after the last",
    ),
    Operation(
        "one record, end to end",
        end_to_end,
        3,
        3,
        "the put, the GET that finds it, and one that came too early",
        repeats=40,
        waits=True,
    ),
    Operation(
        "an idle consumer of 4 partitions, a second",
        idle(4),
        4,
        5,
        "a GET of the next segment's name for each partition",
        lasts_s=IDLE_S,
        waits=True,
        counted_by=_IDLE,
    ),
    Operation(
        "an idle consumer of 40 partitions, a second",
        idle(40),
        10,
        11,
        "a GET of the next segment's name for ten of the partitions in turn; the five seconds of a "
        "count may begin and end with some",
        lasts_s=IDLE_S,
        waits=True,
        counted_by=_IDLE,
    ),
    Operation(
        "an idle consumer of 40 partitions with 3 replicas, a second",
        idle(40, replicas=3),
        12.5,
        13,
        "as without replicas; two checks of the metadata, for all partitions together",
        lasts_s=IDLE_S,
        waits=True,
        counted_by=_IDLE_REPLICAS,
    ),
    Operation(
        f"seek_to_end and position, {PARTITIONS} partitions",
        end_position,
        9,
        3,
        "the root, a listing and the last segment of each partition, all at once",
        repeats=5,
    ),
    Operation(
        f"end_offsets of {PARTITIONS} partitions",
        end_offsets,
        6,
        3,
        "a check of the metadata; a listing and the last segment of each partition; a segment that "
        "is known is not read again",
        repeats=5,
    ),
    Operation(
        f"offsets_for_times, {PARTITIONS} partitions",
        offsets_for_times,
        2 * PARTITIONS + 1,
        5,
        "a check of the metadata; a listing of each partition, its last segment, the segment of "
        "the time if that is another one",
        repeats=5,
    ),
    Operation("closing a consumer", close, 0, 0, "nothing is committed without a group"),
)
