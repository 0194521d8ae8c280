"""Measures the codec of Kafka's messages beside kafka-python's.

    python -m benchmarks.gateway_codec --repeats 7

Both read requests and write responses of typical sizes. Figures are microseconds of processor time
for a message, the best of all repeats. The last lines are messages of a hostile client, 256 KiB
each: both have to refuse or read them, and time grows with the size of the message alone if a
decoder is safe.
"""

import argparse
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kafka.protocol.consumer import FetchRequest, FetchResponse
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.protocol.producer import ProduceRequest, ProduceResponse

from benchmarks.command_line import positive
from spark_log.gateway.protocol import (
    decode_header,
    decode_request,
    encode_request,
    encode_response,
    message_class,
)
from spark_log.util import random_id

_HOSTILE_BYTES = 262_144


def produce_request() -> Any:
    """Return a request with one batch of 16 KiB."""
    message = message_class("ProduceRequest")
    partition = message.PartitionProduceData(index=0, records=b"x" * 16_384)
    topic = message.TopicProduceData(name="flights", partition_data=[partition])
    return message(acks=-1, timeout_ms=30_000, topic_data=[topic])


def produce_response() -> Any:
    """Return the response to it."""
    message = message_class("ProduceResponse")
    partition = message.PartitionProduceResponse(index=0, base_offset=5)
    return message(
        responses=[message.TopicProduceResponse(name="flights", partition_responses=[partition])]
    )


def fetch_request() -> Any:
    """Return a request for 50 partitions."""
    message = message_class("FetchRequest")
    partitions = [message.FetchPartition(partition=n, fetch_offset=n) for n in range(50)]
    topic = message.FetchTopic(topic="flights", partitions=partitions)
    return message(max_wait_ms=500, min_bytes=1, topics=[topic])


def fetch_response() -> Any:
    """Return a response with 50 partitions, without records."""
    message = message_class("FetchResponse")
    partitions = [
        message.PartitionData(partition_index=n, high_watermark=n, records=b"") for n in range(50)
    ]
    topic = message.FetchableTopicResponse(topic="flights", partitions=partitions)
    return message(responses=[topic])


def metadata_response() -> Any:
    """Return a response with 1,000 partitions."""
    message = message_class("MetadataResponse")
    partitions = [
        message.MetadataResponsePartition(
            partition_index=n, leader_id=1_001, replica_nodes=[1_001], isr_nodes=[1_001]
        )
        for n in range(1_000)
    ]
    topic = message.MetadataResponseTopic(
        name="flights", topic_id=random_id(), partitions=partitions
    )
    return message(cluster_id="c", topics=[topic])


def measured(call: Callable[[], object], repeats: int) -> float:
    """Return the processor time of one call in microseconds: the best of all repeats."""
    call()
    began = time.process_time()
    call()
    number = max(1, int(0.05 / max(1e-7, time.process_time() - began)))
    best = float("inf")
    for _ in range(repeats):
        began = time.process_time()
        for _ in range(number):
            call()
        best = min(best, (time.process_time() - began) / number)
    return best * 1e6


def print_line(what: str, ours_us: float, theirs_us: float) -> None:
    """Print one comparison."""
    print(f"{what:44} {ours_us:12,.1f} {theirs_us:14,.1f} {theirs_us / ours_us:8.1f}")


def compare_read(name: str, version: int, request: Any, other: Any, repeats: int) -> None:
    """Compare how long a request takes to read."""
    frame = memoryview(b"".join(encode_request(name, version, 1, "client", request))[4:])

    def ours() -> None:
        decode_request(name, decode_header(frame), frame)

    def theirs() -> None:
        other.decode(frame, version=version, header=True)

    print_line(f"read {name} {version}", measured(ours, repeats), measured(theirs, repeats))


def compare_write(name: str, version: int, response: Any, other: Any, repeats: int) -> None:
    """Compare how long a response takes to write."""
    parts = encode_response(name, version, 1, response)
    data = b"".join(parts[2:])
    again = other.decode(data, version=version)
    again._header = None

    def ours() -> None:
        b"".join(encode_response(name, version, 1, response))

    def theirs() -> None:
        again.with_header(1)
        again.encode(header=True, framed=True)  # of the version that it was read as

    print_line(f"write {name} {version}", measured(ours, repeats), measured(theirs, repeats))


def compare_hostile(what: str, body: bytes) -> None:
    """Compare how long a hostile Metadata request takes, once."""
    head = b"\x00\x03\x00\x0c\x00\x00\x00\x01\xff\xff\x00"
    frame = memoryview(head + body)

    def once(call: Callable[[], object]) -> float:
        began = time.process_time()
        with suppress(Exception):
            call()
        return (time.process_time() - began) * 1e6

    ours = once(lambda: decode_request("Metadata", decode_header(frame), frame))
    theirs = once(lambda: MetadataRequest.decode(frame, version=12, header=True))
    print_line(what, ours, theirs)


def main() -> None:
    """Compare both codecs."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--repeats", type=positive, default=5)
    repeats = arguments.parse_args().repeats
    print(f"{'microseconds of processor time':44} {'ours':>12} {'kafka-python':>14} {'ratio':>8}")
    compare_read("Produce", 9, produce_request(), ProduceRequest, repeats)
    compare_write("Produce", 9, produce_response(), ProduceResponse, repeats)
    compare_read("Fetch", 12, fetch_request(), FetchRequest, repeats)
    compare_write("Fetch", 12, fetch_response(), FetchResponse, repeats)
    compare_write("Metadata", 12, metadata_response(), MetadataResponse, repeats)
    count = _HOSTILE_BYTES // 24
    topic = b"\x00" * 16 + b"\x02a" + b"\x01\x63\x01x"  # each has an unknown tagged field
    many = bytes([0x80 | (count + 1) & 0x7F, 0x80 | (count + 1) >> 7 & 0x7F, (count + 1) >> 14])
    compare_hostile(f"{count} topics with a tagged field each", many + topic * count + b"\x00" * 4)
    compare_hostile("a varint of 256 KiB", b"\x80" * _HOSTILE_BYTES)


if __name__ == "__main__":
    main()
