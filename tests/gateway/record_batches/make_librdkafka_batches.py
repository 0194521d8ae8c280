"""Writes bytes/librdkafka-*.bin: what confluent-kafka's producer sends, kept by its mock broker.

python -m tests.gateway.record_batches.make_librdkafka_batches
"""

from __future__ import annotations

import socket
import struct

from confluent_kafka import Producer
from kafka.protocol.consumer import FetchRequest, FetchResponse

from tests.gateway.record_batches.kafka_records import BYTES, MANY

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


def main() -> None:
    """Produce the records once with each compression, and keep what a fetch returns."""
    for compression in COMPRESSIONS:
        producer = Producer(
            {
                "bootstrap.servers": "mock",
                "test.mock.num.brokers": 1,
                "compression.type": compression,
                "linger.ms": 500,
                "enable.idempotence": True,
                "queue.buffering.max.kbytes": 4096,
            }
        )
        for key, value, _, time_ms in MANY:
            assert value is not None
            headers: list[tuple[str, str | bytes | None]] = [("n", value[-1:]), ("none", None)]
            producer.produce(
                "topic",
                value,
                key,
                partition=0,
                timestamp=time_ms,
                headers=None if key else headers,
            )
        producer.flush()
        (broker,) = producer.list_topics().brokers.values()
        data = fetched(broker.port)
        (BYTES / f"librdkafka-{compression}.bin").write_bytes(data)


def fetched(port: int) -> bytes:
    """Return the record batches of partition 0 of the topic."""
    request = FetchRequest(
        version=4,
        replica_id=-1,
        max_wait_ms=1000,
        min_bytes=1,
        max_bytes=1 << 24,
        isolation_level=0,
        topics=[
            FetchRequest.FetchTopic(
                topic="topic",
                partitions=[
                    FetchRequest.FetchTopic.FetchPartition(
                        partition=0, fetch_offset=0, partition_max_bytes=1 << 24
                    )
                ],
            )
        ],
    )
    request.with_header(correlation_id=1, client_id="fixtures")
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(request.encode(framed=True, header=True))
        stream = connection.makefile("rb")
        (size,) = struct.unpack(">i", stream.read(4))
        response = FetchResponse.decode(stream.read(size), version=4, header=True)
    return bytes(response.responses[0].partitions[0].records)


if __name__ == "__main__":
    main()
