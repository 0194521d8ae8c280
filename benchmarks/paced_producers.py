"""Delivery times of producers that send at a steady rate."""

import os
import time
from collections.abc import Callable
from typing import Any

from benchmarks.kafka_broker import confluent_kafka_required

WARM_UP_S = 3.0
_TICK_S = 0.01
_TIMEOUT_S = 120

Send = Callable[[int, float | None], None]
"""Sends a record of one producer: gets the record's number, and the time at which it was sent, in
seconds of ``perf_counter``; None if its delivery time does not count."""


def send_paced(
    sends: list[Send],
    rate: float,
    seconds: float,
    *,
    poll: Callable[[], None] = lambda: None,
    on_warm: Callable[[], None] = lambda: None,
) -> None:
    """Send records of several producers at a steady rate.

    The first seconds, in which clients connect and logs are opened, do not count.

    Args:
        sends: sends a record, for each producer.
        rate: records per second of each producer.
        seconds: the time that is measured.
        poll: called every 10 ms.
        on_warm: called when the time that is measured begins.
    """
    began_s = time.perf_counter()
    counts_from_s = began_s + WARM_UP_S
    sent, is_warm = [0] * len(sends), False
    while (now_s := time.perf_counter()) < counts_from_s + seconds:
        if not is_warm and now_s >= counts_from_s:
            is_warm = True
            on_warm()
        for at, send in enumerate(sends):
            due = int((now_s - began_s) * rate)
            while sent[at] < due:
                sent_s = time.perf_counter()
                send(sent[at], sent_s if is_warm else None)
                sent[at] += 1
        poll()
        time.sleep(_TICK_S)


def paced_ms(
    address: str, topic: str, partitions: int, *, producers: int, rate: float, seconds: float
) -> list[float]:
    """Produce with librdkafka at a steady rate; return the delivery times, in milliseconds.

    Args:
        address: the server.
        topic: an existing topic.
        partitions: its partitions.
        producers: the number of producers.
        rate: records per second of each producer.
        seconds: the time that is measured (`send_paced`).
    """
    with confluent_kafka_required():
        from confluent_kafka import Producer
    settings = {"bootstrap.servers": address, "acks": "all", "linger.ms": 5}
    clients = [Producer(settings) for _ in range(producers)]
    value, times_ms, errors = os.urandom(100), [], []

    def sent_at(sent_s: float | None) -> Any:
        def on_delivery(error: object, _: object) -> None:
            if error is not None:
                errors.append(error)
            elif sent_s is not None:
                times_ms.append((time.perf_counter() - sent_s) * 1000)

        return on_delivery

    def send_of(producer: int) -> Send:
        def send(number: int, sent_s: float | None) -> None:
            partition = (producer + number) % partitions
            clients[producer].produce(
                topic, value, partition=partition, on_delivery=sent_at(sent_s)
            )

        return send

    def poll() -> None:
        for client in clients:
            client.poll(0)

    send_paced([send_of(producer) for producer in range(producers)], rate, seconds, poll=poll)
    left = sum(client.flush(_TIMEOUT_S) for client in clients)
    if errors or left:
        raise RuntimeError(f"{len(errors) + left} records failed: {errors[:1]}")
    return times_ms
