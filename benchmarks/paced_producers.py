"""Delivery times of producers of librdkafka that send at a steady rate."""

import os
import time
from typing import Any

from benchmarks.kafka_broker import confluent_kafka_required

WARM_UP_S = 3.0
_TICK_S = 0.01
_TIMEOUT_S = 120


def paced_ms(
    address: str, topic: str, partitions: int, *, producers: int, rate: float, seconds: float
) -> list[float]:
    """Produce at a steady rate; return the delivery times of the records, in milliseconds.

    The first seconds, in which clients connect and logs are opened, do not count.

    Args:
        address: the server.
        topic: an existing topic.
        partitions: its partitions.
        producers: the number of producers.
        rate: records per second of each producer.
        seconds: the time that is measured.
    """
    with confluent_kafka_required():
        from confluent_kafka import Producer
    settings = {"bootstrap.servers": address, "acks": "all", "linger.ms": 5}
    clients = [Producer(settings) for _ in range(producers)]
    value, times_ms, errors = os.urandom(100), [], []
    began_s = time.perf_counter()
    counts_from_s = began_s + WARM_UP_S

    def sent_at(sent_s: float) -> Any:
        def on_delivery(error: object, _: object) -> None:
            if error is not None:
                errors.append(error)
            elif sent_s >= counts_from_s:
                times_ms.append((time.perf_counter() - sent_s) * 1000)

        return on_delivery

    sent = [0] * producers
    while (now_s := time.perf_counter()) < counts_from_s + seconds:
        for number, client in enumerate(clients):
            due = int((now_s - began_s) * rate)
            while sent[number] < due:
                partition = (number + sent[number]) % partitions
                on_delivery = sent_at(time.perf_counter())
                client.produce(topic, value, partition=partition, on_delivery=on_delivery)
                sent[number] += 1
            client.poll(0)
        time.sleep(_TICK_S)
    left = sum(client.flush(_TIMEOUT_S) for client in clients)
    if errors or left:
        raise RuntimeError(f"{len(errors) + left} records failed: {errors[:1]}")
    return times_ms
