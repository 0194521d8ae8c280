"""Operations of producers: sends, appends to replicas and to stripes, transactions."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

from benchmarks.request_operations.operation import Call, Operation, Root, close_all
from spark_log import OffsetAndMetadata, Producer, TopicPartition

PARTITIONS = 10
"""Number of partitions that a producer sends to at the same time."""

_WARM_UP_S = 4
_STRIPED_S = 10
"""Seconds for which producers send to a stripe, each second, before the count and in it."""


@contextmanager
def first_send(root: Root) -> Iterator[Call]:
    """A new producer sends its first record."""
    root.create_topic()
    root.send(1)
    opened: list[Producer] = []

    def send() -> None:
        producer = root.producer()
        opened.append(producer)
        producer.send("t", b"value").result()

    yield send
    close_all(opened)


@contextmanager
def append(root: Root) -> Iterator[Call]:
    """A producer that has sent before sends a record, and waits until it is in the log."""
    root.create_topic()
    with root.producer() as producer:
        producer.send("t", b"value").result()
        yield lambda: producer.send("t", b"value").result()


@contextmanager
def append_to_many(root: Root) -> Iterator[Call]:
    """A producer sends a record to each of ten partitions, and flushes."""
    root.create_topic(PARTITIONS)
    with root.producer() as producer:

        def send() -> None:
            for number in range(PARTITIONS):
                producer.send("t", b"value", partition=number)
            producer.flush()

        send()
        yield send


@contextmanager
def append_to_replicas(root: Root) -> Iterator[Call]:
    """A producer sends a record to a partition with three replicas, and waits for all of them."""
    root.create_topic(replicas=3)
    with root.producer(acks="all") as producer:
        producer.send("t", b"value").result()
        producer.send("t", b"value").result()
        yield lambda: producer.send("t", b"value").result()


def append_to_stripe(
    partitions: int, producers: int
) -> Callable[[Root], AbstractContextManager[Call]]:
    """Producers send a record to each partition of a stripe, each second."""

    @contextmanager
    def prepare(root: Root) -> Iterator[Call]:
        root.create_topic(partitions, stripes=1)
        with ExitStack() as stack:
            opened = [stack.enter_context(root.producer(linger_ms=1_000)) for _ in range(producers)]

            def send(seconds: int) -> None:
                due_s = time.monotonic()
                for _ in range(seconds):
                    for number, producer in enumerate(opened, 1):
                        for partition in range(partitions):
                            producer.send("t", b"value", partition=partition)
                        sleep_s = due_s + number / producers - time.monotonic()
                        time.sleep(max(0.0, sleep_s))  # they do not send at the same moment
                    due_s += 1

            send(_WARM_UP_S)
            yield lambda: send(_STRIPED_S)

    return prepare


@contextmanager
def close(root: Root) -> Iterator[Call]:
    """A producer without waiting records is closed."""
    root.create_topic()
    producer = root.producer()
    producer.send("t", b"value").result()
    yield producer.close


# --- transactions --------------------------------------------------------------------------------


@contextmanager
def init_transactions(root: Root) -> Iterator[Call]:
    """A new process begins with a transactional id whose last transaction was committed."""
    root.create_topic()
    with root.producer(transactional_id="id") as before:
        before.init_transactions()
        with before.transaction():
            before.send("t", b"value")
    opened: list[Producer] = []

    def init() -> None:
        opened.append(root.producer(transactional_id="id"))
        opened[0].init_transactions()

    yield init
    close_all(opened)


@contextmanager
def transaction(root: Root) -> Iterator[Call]:
    """A transaction of one record in one partition is committed."""
    root.create_topic()
    with root.producer(transactional_id="id") as producer:
        producer.init_transactions()

        def run() -> None:
            with producer.transaction():
                producer.send("t", b"value")

        run()
        yield run


@contextmanager
def abort(root: Root) -> Iterator[Call]:
    """A transaction of one record is aborted after the record is in the log."""
    root.create_topic()
    with root.producer(transactional_id="id") as producer:
        producer.init_transactions()

        def run() -> None:
            producer.begin_transaction()
            producer.send("t", b"value").result()
            producer.abort_transaction()

        run()
        yield run


@contextmanager
def transaction_with_offsets(root: Root) -> Iterator[Call]:
    """A transaction of one record and one consumer offset is committed."""
    root.create_topic()
    root.create_topic(name="source")
    root.send(2, "source")
    with (
        root.producer(transactional_id="id") as producer,
        root.consumer("source", group_id="g", enable_auto_commit=False) as consumer,
    ):
        producer.init_transactions()
        while not consumer.poll(100):
            pass
        member = consumer.group_metadata()
        consumer.pause(*consumer.assignment())
        offset = 0

        def run() -> None:
            nonlocal offset
            offset = 1 - offset
            with producer.transaction():
                producer.send("t", b"value")
                producer.send_offsets_to_transaction(
                    {TopicPartition("source", 0): OffsetAndMetadata(offset)}, member
                )

        run()
        yield run


_STRIPES = "tests/producer/test_striped_requests.py"

OPERATIONS = (
    Operation(
        "first send of a process",
        first_send,
        6,
        5,
        "The producer reads the quorum's members and the checkpoint at the same time, then the "
        "end of the metadata log. It lists the partition, reads its last segment, and puts the "
        "record.",
    ),
    Operation(
        "one acknowledged append",
        append,
        1.1,
        1,
        "The producer puts the record. Every 5 s it checks the metadata.",
        repeats=40,
    ),
    Operation(
        f"one record to each of {PARTITIONS} partitions",
        append_to_many,
        PARTITIONS + 0.5,
        3,
        "The producer puts one segment for each partition.",
        repeats=10,
        wish="One round would be better. The puts of a producer that has many partitions go out in "
        "turns.",
    ),
    Operation(
        "one append to 3 replicas",
        append_to_replicas,
        3.2,
        3,
        "The producer puts the record once for each replica. Every 5 s it checks the metadata.",
        repeats=20,
        wish="Two rounds would be better. The replicas of a chain get a batch one after the other "
        "([ADR 24](../adr/0024-every-partition-of-a-topic-is-a-chain-of-replicas.md)).",
    ),
    Operation(
        "a record to each of 1000 partitions of a stripe, a second",
        append_to_stripe(1_000, 1),
        2,
        2,
        "The producer puts one object for the records of all partitions, with those of two seconds "
        "if they are sent before its linger is over. Every 5 s it checks the metadata.",
        lasts_s=_STRIPED_S,
        waits=True,
        counted_by=_STRIPES,
    ),
    Operation(
        "a record to each of 100 partitions of a stripe by 8 producers, a second",
        append_to_stripe(100, 8),
        60,
        60,
        "Each producer reads the objects of the others before its put, and asks for the next. At "
        "most 12 of the requests are puts: those that lose a race are put again.",
        lasts_s=_STRIPED_S,
        waits=True,
        counted_by=_STRIPES,
    ),
    Operation("closing a producer", close, 0, 0, "No record waits, so nothing is sent."),
    Operation(
        "init_transactions of a new process",
        init_transactions,
        7,
        6,
        "The producer opens the root. It lists the state log of the transactional id, reads its "
        "last record, and lists it again before the put that makes the next epoch.",
    ),
    Operation(
        "a transaction of one record",
        transaction,
        4.2,
        4,
        "The producer puts the transaction with its partition, the record, the decision and the "
        "marker. Every 5 s it checks the metadata.",
        repeats=10,
    ),
    Operation(
        "an aborted transaction of one record",
        abort,
        4.2,
        4,
        "The producer sends the same requests as for a transaction that is committed.",
        repeats=10,
    ),
    Operation(
        "a transaction of one record and one offset",
        transaction_with_offsets,
        22,
        13,
        "To the requests of a transaction of one record, the producer adds those that put the "
        "group into the transaction, the offset into the group's log and, when the transaction "
        "is decided, into the offsets table.",
        repeats=5,
        wish="Half of it would be better. The end of the group's log is read again before each "
        "step.",
    ),
)
