"""Operations of consumers without a group: reads, positions, waiting."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pyarrow as pa

from benchmarks.request_operations.operation import (
    IDLE_S,
    Call,
    Operation,
    Root,
    close_all,
    poll_for,
    read,
)
from spark_log import Consumer, Producer
from spark_log.cluster import Cluster
from spark_log.log.clean.compactor import compact
from spark_log.storage import storage_time_us

SEGMENTS = 59
"""Number of small segments that are read."""

PARTITIONS = 4
"""Number of partitions whose positions are looked up."""

STRIPED, OBJECTS = 1_000, 5
"""Number of partitions of a stripe, and of objects in it."""

_KEYS = 20_000
"""Number of keys of a compacted topic."""


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


@contextmanager
def one_of_a_stripe(root: Root) -> Iterator[Call]:
    """A new consumer reads one partition of a stripe."""
    tps = root.create_topic(STRIPED, stripes=1)
    with Producer(root.url, storage_options=root.direct, linger_ms=60_000) as producer:
        for _ in range(OBJECTS):
            for tp in tps:
                producer.send("t", b"value", partition=tp.partition)
            producer.flush()
    opened: list[Consumer] = []

    def run() -> None:
        consumer = root.consumer()
        opened.append(consumer)
        consumer.assign([tps[7]])
        consumer.seek_to_beginning()
        read(consumer, OBJECTS)

    yield run
    close_all(opened)


def idle(
    partitions: int, replicas: int | None = None, stripes: int = 0
) -> Callable[[Root], AbstractContextManager[Call]]:
    """A consumer that has read everything waits for records."""

    @contextmanager
    def prepare(root: Root) -> Iterator[Call]:
        tps = root.create_topic(partitions, replicas=replicas, stripes=stripes)
        root.send(partitions, partitions=partitions)
        with root.consumer() as consumer:
            consumer.assign(tps)
            consumer.seek_to_beginning()
            read(consumer, partitions)
            poll_for(consumer, IDLE_S + 2)  # all partitions are at rest now
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
def get_key(root: Root) -> Iterator[Call]:
    """A consumer that has looked up a key looks up another one, in a compacted segment."""
    root.create_topic(cleanup_policy="compact", table_format="delta")
    keys = pa.array([b"%06d" % number for number in range(_KEYS)], pa.binary())
    with Producer(root.url, storage_options=root.direct) as producer:
        producer.send_table("t", pa.table({"key": keys, "value": keys})).result()
    cluster = Cluster(root.url, root.direct)
    log = cluster.partition_log(cluster.topic("t"), 0).replica
    compact(log, now_us=storage_time_us(log.files.store, log.files.path))
    root.send(3, key=b"a key of the tail")
    with root.consumer() as consumer:
        numbers = iter(range(_KEYS))

        def run() -> None:
            assert consumer.get("t", b"%06d" % next(numbers)) is not None

        run()
        yield run


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
_IDLE_STRIPES = "tests/consumer/fetch/test_striped_partitions.py"

OPERATIONS = (
    Operation(
        "first record of a consumer",
        first_record,
        8,
        7,
        "The consumer opens the root as a producer does, reads the topic's metadata, and asks at"
        " the same time whether the root exists. It lists the partition, reads its segment, and "
        "asks for the next one.",
    ),
    Operation(
        f"{SEGMENTS} small segments",
        small_segments,
        SEGMENTS + 2,
        24,
        "The consumer lists the partition and reads each segment, 16 at the same time. Then it "
        "asks for the segment after the last one.",
    ),
    Operation(
        "one record, end to end",
        end_to_end,
        3,
        3,
        "The producer puts the record. The consumer asks for it once too early, and then gets it.",
        repeats=40,
        waits=True,
    ),
    Operation(
        "an idle consumer of 4 partitions, a second",
        idle(4),
        4,
        5,
        "The consumer asks for the next segment of each partition.",
        lasts_s=IDLE_S,
        waits=True,
        counted_by=_IDLE,
    ),
    Operation(
        "an idle consumer of 40 partitions, a second",
        idle(40),
        10,
        11,
        "The consumer asks for the next segment of ten partitions, in turn. The five seconds of "
        "a count may begin and end with some of these requests.",
        lasts_s=IDLE_S,
        waits=True,
        counted_by=_IDLE,
    ),
    Operation(
        "an idle consumer of 40 partitions with 3 replicas, a second",
        idle(40, replicas=3),
        12.5,
        13,
        "The consumer sends the same requests as without replicas, and two checks of the "
        "metadata for all partitions together.",
        lasts_s=IDLE_S,
        waits=True,
        counted_by=_IDLE_REPLICAS,
    ),
    Operation(
        f"an idle consumer of {STRIPED} partitions of a stripe, a second",
        idle(STRIPED, stripes=1),
        2,
        2,
        "The consumer asks for the next object of the stripe, for all partitions.",
        lasts_s=IDLE_S,
        waits=True,
        counted_by=_IDLE_STRIPES,
    ),
    Operation(
        f"{OBJECTS} objects of a stripe of {STRIPED} partitions, for one of them",
        one_of_a_stripe,
        OBJECTS + 10,
        14,
        "To the requests for a first record, the consumer adds a listing of the stripe and a read "
        "of each object, whatever part of it is of its partition. Of an object over a MiB it reads "
        "the last MiB, which has the directory, and the blocks with its records.",
    ),
    Operation(
        f"seek_to_end and position, {PARTITIONS} partitions",
        end_position,
        9,
        3,
        "The consumer opens the root, and lists each partition and reads its last segment, all "
        "partitions at the same time.",
        repeats=5,
    ),
    Operation(
        f"end_offsets of {PARTITIONS} partitions",
        end_offsets,
        6,
        3,
        "The consumer checks the metadata, lists each partition, and reads its last segment. A "
        "segment that it knows is not read again.",
        repeats=5,
    ),
    Operation(
        f"offsets_for_times, {PARTITIONS} partitions",
        offsets_for_times,
        2 * PARTITIONS + 1,
        5,
        "The consumer checks the metadata and lists each partition. It reads the partition's "
        "last segment and, if that is another one, the segment of the time.",
        repeats=5,
    ),
    Operation(
        "get of a key that was compacted",
        get_key,
        3,
        3,
        "The consumer checks the metadata, at most once a second, and asks for the partition's "
        "next segment. It reads the block of the key index that has the key.",
        repeats=5,
    ),
    Operation(
        "closing a consumer",
        close,
        0,
        0,
        "Without a group no offset is committed, so nothing is sent.",
    ),
)
