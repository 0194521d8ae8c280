"""Counts the requests of a topic of many partitions, and how late its records are, on an S3 server.

    python -m benchmarks.striped_topics --partitions 1000 --stripes 4 --seconds 20
    python -m benchmarks.striped_topics --stripes 1 --writers 1 --gateway kafka-python

Each writer is a process with one `Producer`, which sends a record of 100 bytes to each partition
once a second (``linger.ms`` 1000). With ``--together`` the writers take turns, so that each
partition gets one record a second of all of them. One `Consumer` reads all partitions. Each has a
proxy of its own that delays its requests and counts them. At the end the writers stop, and the
consumer's requests are counted while it is idle. The age of a record is the time from `send`. With
``--stripes 0`` each partition has a log of its own. With ``--roots 3`` the root is a quorum of
three buckets, so that each object has copies.

With ``--gateway`` the writers and the consumer are Kafka's clients (``linger.ms`` 1000), and all
use one gateway. Its requests are counted: while records come and go, and with an idle consumer. The
writers are those of kafka-python, which sends the batches of many partitions by one request, as
Java's producer does; or of confluent-kafka, which sends a request for each partition, and has 5
without an answer at most if it is idempotent.
"""

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.gateway import cpu_s_of, running_gateway
from benchmarks.kafka_broker import confluent_kafka_required
from benchmarks.latency_proxy import LatencyProxy
from benchmarks.log_report import Figure, Report, parser, percentile, run
from benchmarks.timing import age_ms, running, stamp_now
from spark_log import Admin, Consumer, NewTopic, Producer, TopicPartition
from spark_log.testing.servers.s3_server import run_s3_server

_TOPIC = "flights"
_WARM_UP_S = 10.0
_REST_S = 60.0
"""Time after the last record, in which the consumer comes to probe less often."""
_POLL_MS = 500
_PUT_DOLLARS, _GET_DOLLARS = 0.005 / 1_000, 0.0004 / 1_000
_DAY_S = 86_400

Root = tuple[str, dict[str, Any]]
"""The URL of a root, and its storage options."""


def main() -> None:
    """Run the benchmark as the command line says."""
    options = parser("striped_topics", __doc__)
    options.add_argument("--latency-ms", type=float, default=20.0, help="of a request (20)")
    options.add_argument("--seconds", type=float, default=20.0, help="of each situation (20)")
    options.add_argument("--partitions", type=int, default=1_000, help="of the topic (1000)")
    options.add_argument("--stripes", type=int, default=4, help="of the topic (4)")
    options.add_argument("--writers", type=int, nargs="*", default=[1, 8], help="(1 8)")
    options.add_argument("--roots", type=int, default=1, help="3: on a quorum (1)")
    options.add_argument(
        "--together", action="store_true", help="one record a second, of all writers"
    )
    options.add_argument("--gateway", choices=_WRITERS, help="the writers, through a gateway")
    run(options, measure)


def measure(options: argparse.Namespace) -> Report:
    """Measure each number of writers."""
    figures: list[Figure] = []
    with run_s3_server() as server:
        for writers in options.writers:
            url = ",".join(f"{server.new_bucket()}/root" for _ in range(options.roots))
            direct = url, server.storage_options
            topic = NewTopic(_TOPIC, options.partitions, topic_configs={"stripes": options.stripes})
            Admin(url, storage_options=server.storage_options).create_topics([topic])
            measured = _measure_gateway if options.gateway else _measure
            figures += measured(writers, direct, server.endpoint_url, options)
        notes = {
            "server": server.name,
            "latency of a request": f"{options.latency_ms:g} ms",
            "partitions": str(options.partitions),
            "stripes": str(options.stripes),
            "roots": str(options.roots),
            "records a second to each partition": "1" if options.together else "1 of each writer",
        }
    return Report("striped_topics", figures, notes)


def _measure(
    writers: int, direct: Root, server_url: str, options: argparse.Namespace
) -> Iterator[Figure]:
    seconds = options.seconds
    share = writers if options.together else 1
    with ExitStack() as stack:

        def slow() -> tuple[LatencyProxy, Root]:
            proxy = stack.enter_context(LatencyProxy.running(server_url, options.latency_ms))
            return proxy, (direct[0], {**direct[1], "endpoint_url": proxy.url})

        read_proxy, read_root = slow()
        write_proxies, write_roots = zip(*(slow() for _ in range(writers)), strict=True)
        reading = stack.enter_context(running(_consume, read_root, options.partitions))
        reading.recv()
        writing = [
            stack.enter_context(running(_produce, root, options.partitions, share, number))
            for number, root in enumerate(write_roots)
        ]
        for each in writing:
            each.recv()
        time.sleep(_WARM_UP_S)
        for each in (reading, *writing):
            each.send("measure")
        for proxy in (read_proxy, *write_proxies):
            proxy.begin()
        time.sleep(seconds)
        written = Counter(each.operation for proxy in write_proxies for each in proxy.requests())
        read = Counter(each.operation for each in read_proxy.requests())
        acknowledged_ms, ages_ms, cpu_s, idle = _end(writing, reading, read_proxy, seconds)
    if not ages_ms:
        raise SystemExit(
            "the consumer got no record while it was measured: the machine is too busy"
        )
    name = _name(writers)
    at_most = 12 if writers > 1 else 2
    yield from _figures(name, written, acknowledged_ms, ages_ms, seconds, at_most=at_most)
    yield Figure(f"{name}: processor time of the consumer", cpu_s / seconds * 1e3, "ms/s")
    yield Figure(f"{name}: requests of the consumer", sum(read.values()) / seconds, "/s")
    rate = sum(idle.values()) / seconds
    yield Figure(f"{name}: requests of the idle consumer", rate, "/s", at_most=2)


def _measure_gateway(
    writers: int, direct: Root, server_url: str, options: argparse.Namespace
) -> Iterator[Figure]:
    seconds = options.seconds
    with ExitStack() as stack:
        proxy = stack.enter_context(LatencyProxy.running(server_url, options.latency_ms))
        storage = {**direct[1], "endpoint_url": proxy.url}
        given = [f"--storage-option={key}={value}" for key, value in storage.items()]
        address, pid = stack.enter_context(running_gateway(direct[0], *given))
        reading = stack.enter_context(running(_consume_kafka, address, options.partitions))
        reading.recv()
        writing = [
            stack.enter_context(running(_WRITERS[options.gateway], address, options.partitions))
            for _ in range(writers)
        ]
        for each in writing:
            each.recv()
        time.sleep(_WARM_UP_S)
        for each in (reading, *writing):
            each.send("measure")
        proxy.begin()
        cpu_s = cpu_s_of(pid)
        time.sleep(seconds)
        busy = Counter(each.operation for each in proxy.requests())
        cpu_s = cpu_s_of(pid) - cpu_s
        acknowledged_ms, ages_ms, _, idle = _end(writing, reading, proxy, seconds)
    name = f"{_name(writers)}, gateway"
    yield from _figures(name, busy, acknowledged_ms, ages_ms, seconds, at_most=3)
    yield Figure(f"{name}: processor time", cpu_s / seconds * 1e3, "ms/s")
    for operation, count in sorted(idle.items()):
        yield Figure(f"{name}: {operation} with an idle consumer", count / seconds, "/s")


def _end(
    writing: Sequence[Connection], reading: Connection, proxy: LatencyProxy, seconds: float
) -> tuple[list[float], list[float], float, Counter[str]]:
    """End the writers, let the consumer rest, and then end it.

    Returns:
        The times until records were acknowledged, and until they were polled, in milliseconds; the
        processor time of the consumer; and the requests of some seconds with an idle consumer.
    """
    acknowledged_ms: list[float] = []
    for each in writing:
        each.send("end")
        acknowledged_ms += each.recv()
    reading.send("rest")
    ages_ms, cpu_s = reading.recv()
    time.sleep(_REST_S)
    proxy.begin()
    time.sleep(seconds)
    idle = Counter(each.operation for each in proxy.requests())
    reading.send("end")
    return acknowledged_ms, ages_ms, cpu_s, idle


def _name(writers: int) -> str:
    return f"{writers} writers" if writers > 1 else "1 writer"


def _figures(
    name: str,
    requests: Counter[str],
    acknowledged_ms: list[float],
    ages_ms: list[float],
    seconds: float,
    *,
    at_most: float,
) -> Iterator[Figure]:
    puts = requests["PUT"] / seconds
    yield Figure(f"{name}: PUT of all", puts, "/s", at_most=at_most)
    others = sum(requests.values()) / seconds - puts
    yield Figure(f"{name}: other requests of all", others, "/s")
    yield Figure(f"{name}: requests of a day", dollars_of(requests) * _DAY_S / seconds, "dollars")
    for what, times_ms in (("acknowledged", acknowledged_ms), ("poll", ages_ms)):
        for percent in (50, 99):
            value = percentile(times_ms, percent)
            yield Figure(f"{name}: send to {what}, p{percent}", value, "ms")
    yield Figure(f"{name}: records", len(ages_ms) / seconds, "/s")


def dollars_of(requests: Counter[str]) -> float:
    """Return the price of requests, by operation, by S3's list prices."""
    writes = requests["PUT"] + requests["LIST"] + requests["POST"]
    return writes * _PUT_DOLLARS + (requests["GET"] + requests["HEAD"]) * _GET_DOLLARS


# --- the processes -------------------------------------------------------------------------------


def _produce(root: Root, partitions: int, share: int, turn: int, pipe: Connection) -> None:
    """Send records until the pipe says that this ends.

    Args:
        root: the root.
        partitions: the number of partitions.
        share: the number of writers that take turns; each sends to every ``share``-th partition.
        turn: the first partition of this one; the next one a second later.
        pipe: the benchmark's end.
    """
    acknowledged_ms: list[float] = []
    is_measured = False
    with Producer(root[0], storage_options=root[1], linger_ms=1_000) as producer:
        producer.send(_TOPIC, stamp_now(), partition=0).get(timeout=60)
        pipe.send("ready")
        due_s = time.monotonic()
        while True:
            for partition in range(turn % share, partitions, share):
                sent_s = time.monotonic()
                future = producer.send(_TOPIC, stamp_now().ljust(100), partition=partition)
                if is_measured:
                    future.add_callback(
                        lambda _, sent_s=sent_s: acknowledged_ms.append(
                            (time.monotonic() - sent_s) * 1e3
                        )
                    )
            due_s += 1
            turn += 1
            if pipe.poll(max(0.0, due_s - time.monotonic())):
                if pipe.recv() == "end":
                    break
                is_measured = True
    pipe.send(acknowledged_ms)


def _consume(root: Root, partitions: int, pipe: Connection) -> None:
    ages_ms: list[float] = []
    cpu_s, state = 0.0, "warm"
    with Consumer(root=root[0], storage_options=root[1]) as consumer:
        consumer.assign([TopicPartition(_TOPIC, number) for number in range(partitions)])
        consumer.seek_to_end()
        consumer.poll(0)
        pipe.send("ready")
        while state != "end":
            for found in consumer.poll(_POLL_MS).values():
                if state == "measure":
                    ages_ms += [age_ms(each.value) for each in found]
            if pipe.poll():
                state = pipe.recv()
                if state == "measure":
                    cpu_s = time.process_time()
                elif state == "rest":
                    pipe.send((ages_ms, time.process_time() - cpu_s))


def _produce_kafka_python(address: str, partitions: int, pipe: Connection) -> None:
    from kafka import KafkaProducer

    acknowledged_ms: list[float] = []
    is_measured = False
    producer = KafkaProducer(
        bootstrap_servers=address, linger_ms=1_000, acks="all", enable_idempotence=True
    )
    producer.send(_TOPIC, stamp_now(), partition=0).get(60)
    pipe.send("ready")

    def on_delivery(value: bytes, _: object) -> None:
        if is_measured:
            acknowledged_ms.append(age_ms(value))

    due_s = time.monotonic()
    while True:
        for partition in range(partitions):
            value = stamp_now().ljust(100)
            future = producer.send(_TOPIC, value, partition=partition)
            future.add_callback(partial(on_delivery, value))
        due_s += 1
        if pipe.poll(max(0.0, due_s - time.monotonic())):
            if pipe.recv() == "end":
                break
            is_measured = True
    producer.flush()
    pipe.send(acknowledged_ms)


def _produce_confluent(
    is_idempotent: bool, address: str, partitions: int, pipe: Connection
) -> None:
    with confluent_kafka_required():
        import confluent_kafka
    acknowledged_ms: list[float] = []
    is_measured = False
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": address, "linger.ms": 1_000, "enable.idempotence": is_idempotent}
    )
    producer.produce(_TOPIC, stamp_now(), partition=0)
    producer.flush()
    pipe.send("ready")

    def on_delivery(error: Any, message: Any) -> None:
        assert error is None, error
        if is_measured:
            acknowledged_ms.append(age_ms(message.value()))

    due_s = time.monotonic()
    while True:
        for partition in range(partitions):
            value = stamp_now().ljust(100)
            producer.produce(_TOPIC, value, partition=partition, on_delivery=on_delivery)
        due_s += 1
        while (left_s := due_s - time.monotonic()) > 0:
            producer.poll(left_s)
        if pipe.poll():
            if pipe.recv() == "end":
                break
            is_measured = True
    producer.flush()
    pipe.send(acknowledged_ms)


def _consume_kafka(address: str, partitions: int, pipe: Connection) -> None:
    with confluent_kafka_required():
        import confluent_kafka
    ages_ms: list[float] = []
    state = "warm"
    consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": "unused"})
    consumer.assign(
        [
            confluent_kafka.TopicPartition(_TOPIC, number, confluent_kafka.OFFSET_END)
            for number in range(partitions)
        ]
    )
    consumer.poll(5)
    pipe.send("ready")
    while state != "end":
        for message in consumer.consume(1_000, 0.01):
            assert message.error() is None, message.error()
            if state == "measure":
                ages_ms.append(age_ms(message.value()))
        if pipe.poll():
            state = pipe.recv()
            if state == "rest":
                pipe.send((ages_ms, 0.0))
    consumer.close()


_WRITERS: dict[str, Callable[..., None]] = {
    "kafka-python": _produce_kafka_python,
    "confluent-kafka": partial(_produce_confluent, True),
    "confluent-kafka-not-idempotent": partial(_produce_confluent, False),
}


if __name__ == "__main__":
    main()
