"""Produce and Fetch requests of a test, and the batches in them."""

from __future__ import annotations

from spark_log.gateway.protocol import message_class
from spark_log.gateway.record_batches import BatchTarget, from_arrow, split, to_arrow_with_offsets
from tests.record.samples import numbered

TOPIC = "flights"

Produce = message_class("ProduceRequest")
Fetch = message_class("FetchRequest")


def client_batch(first=0, count=2, **target):
    """Return a client's batch; the fields of its header are those of `BatchTarget`."""
    return from_arrow(numbered(first, count), base_offset=0, target=BatchTarget(**target))


def produce(client, data, *, partition=0, version=9, acks=-1, topic=TOPIC, **fields):
    """Return the answer to one batch."""
    sent = client.send("Produce", version, **produce_fields(data, partition, acks, topic), **fields)
    found, response = client.receive()
    assert found == sent
    return response.responses[0].partition_responses[0]


def produce_fields(data, partition=0, acks=-1, topic=TOPIC):
    named = {"topic_id": topic} if len(topic) == 22 else {"name": topic}
    return {
        "acks": acks,
        "timeout_ms": 30_000,
        "topic_data": [
            Produce.TopicProduceData(
                **named,
                partition_data=[Produce.PartitionProduceData(index=partition, records=data)],
            )
        ],
    }


def fetch(client, offset, *, version=11, **options):
    """Return the answer of one partition."""
    response = client.ask("Fetch", version, **fetch_fields({0: offset}, **options))
    return response.responses[0].partitions[0]


def fetch_fields(
    offsets,
    *,
    max_wait_ms=0,
    min_bytes=1,
    max_bytes=1 << 20,
    partition_max_bytes=1 << 20,
    isolation_level=0,
    topic=TOPIC,
    epoch=-1,
    **fields,
):
    named = {"topic_id": topic} if len(topic) == 22 else {"topic": topic}
    return {
        "max_wait_ms": max_wait_ms,
        "min_bytes": min_bytes,
        "max_bytes": max_bytes,
        "isolation_level": isolation_level,
        "topics": [
            Fetch.FetchTopic(
                **named,
                partitions=[
                    Fetch.FetchPartition(
                        partition=partition,
                        fetch_offset=offset,
                        partition_max_bytes=partition_max_bytes,
                        current_leader_epoch=epoch,
                    )
                    for partition, offset in offsets.items()
                ],
            )
        ],
        **fields,
    }


def batches_of(fetched):
    return split(fetched.records, max_batches=10_000)


def rows_of(fetched):
    """Return ``[(offset, value), …]`` of an answer, without control records."""
    rows = []
    for batch in batches_of(fetched):
        if not batch.is_control:
            records, offsets = to_arrow_with_offsets([batch], max_uncompressed_bytes=1 << 30)
            values = records.column("value").to_pylist()
            rows += [(int(o), v.decode()) for o, v in zip(offsets, values, strict=True)]
    return rows


def next_offset_of(fetched):
    """Return the offset that a client asks for next; None if it would not move on."""
    batches = batches_of(fetched)
    return batches[-1].last_offset + 1 if batches else None
