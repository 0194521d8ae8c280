"""Tests of aiokafka, whose own tests need Docker and are in no package.

They run with pytest in the client's environment, so they import nothing of this checkout; BROKERS
in the environment has the gateways.
"""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    OffsetOutOfRangeError,
    ProducerFenced,
    TopicAlreadyExistsError,
    for_code,
)
from aiokafka.structs import OffsetAndMetadata

BROKERS = os.environ["BROKERS"]
CODECS = (None, "gzip", "snappy", "lz4", "zstd")
TIMEOUT_S = 30


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in an event loop of its own."""

    @wraps(test)
    def run(**arguments: Any) -> None:
        asyncio.run(test(**arguments))

    return run


@asynccontextmanager
async def running(client: Any) -> AsyncIterator[Any]:
    """Start a client, and stop it after the block."""
    await client.start()
    try:
        yield client
    finally:
        await (client.close if isinstance(client, AIOKafkaAdminClient) else client.stop)()


def producer(**config: Any) -> Any:
    return running(AIOKafkaProducer(bootstrap_servers=BROKERS, **config))


def consumer(*topics: str, **config: Any) -> Any:
    given = {"auto_offset_reset": "earliest", "enable_auto_commit": False, **config}
    return running(AIOKafkaConsumer(*topics, bootstrap_servers=BROKERS, **given))


def admin() -> Any:
    return running(AIOKafkaAdminClient(bootstrap_servers=BROKERS))


async def new_topic(partitions: int = 1) -> str:
    """Create a topic; return its name."""
    name = f"aiokafka_{uuid.uuid4()}"
    async with admin() as client:
        await client.create_topics([NewTopic(name, partitions, 1)])
    return name


async def read(source: Any, count: int) -> list[Any]:
    """Return the next records."""
    found: list[Any] = []
    while len(found) < count:
        found.append(await asyncio.wait_for(source.getone(), TIMEOUT_S))
    return found


async def fill(topic: str, count: int, partition: int = 0) -> None:
    async with producer() as client:
        for number in range(count):
            await client.send(topic, b"%d" % number, partition=partition)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("is_idempotent", [False, True])
@in_a_loop
async def test_records_keep_their_order_and_all_that_they_have(
    codec: str | None, is_idempotent: bool
) -> None:
    topic = await new_topic()
    async with producer(
        compression_type=codec, enable_idempotence=is_idempotent, linger_ms=10
    ) as client:
        sent = [
            await client.send(
                topic,
                None if number % 7 == 0 else b"value %d" % number * 9,
                key=None if number % 7 == 3 else b"key %d" % number,
                timestamp_ms=1_700_000_000_000 + number,
                headers=[("number", b"%d" % number), ("empty", b"")],
            )
            for number in range(500)
        ]
        metadata = await asyncio.gather(*sent)
    assert [each.offset for each in metadata] == list(range(500))
    async with consumer(topic) as client:
        for number, record in enumerate(await read(client, 500)):
            assert record.offset == number
            assert record.value == (None if number % 7 == 0 else b"value %d" % number * 9)
            assert record.key == (None if number % 7 == 3 else b"key %d" % number)
            assert record.timestamp == 1_700_000_000_000 + number
            assert record.headers == (("number", b"%d" % number), ("empty", b""))


@pytest.mark.parametrize("acks", [0, 1, "all"])
@in_a_loop
async def test_every_kind_of_acknowledgement(acks: Any) -> None:
    topic = await new_topic()
    async with producer(acks=acks) as client:
        for number in range(10):
            await client.send_and_wait(topic, b"%d" % number)
    async with consumer(topic) as client:
        assert [each.value for each in await read(client, 10)] == [b"%d" % n for n in range(10)]


@in_a_loop
async def test_a_group_goes_on_where_it_has_committed() -> None:
    topic, group = await new_topic(), f"group_{uuid.uuid4()}"
    partition = TopicPartition(topic, 0)
    await fill(topic, 10)
    async with consumer(topic, group_id=group) as client:
        await read(client, 10)
        await client.commit({partition: OffsetAndMetadata(4, "up to four")})
        assert await client.committed(partition) == 4
    async with consumer(topic, group_id=group) as client:
        assert [each.offset for each in await read(client, 6)] == list(range(4, 10))
        await client.commit()
        assert await client.committed(partition) == 10


@in_a_loop
async def test_a_group_commits_by_itself() -> None:
    topic, group = await new_topic(), f"group_{uuid.uuid4()}"
    await fill(topic, 10)
    async with consumer(topic, group_id=group, enable_auto_commit=True) as client:
        await read(client, 7)
    async with consumer(topic, group_id=group) as client:
        assert [each.offset for each in await read(client, 3)] == [7, 8, 9]


@in_a_loop
async def test_members_share_partitions_and_take_those_of_one_that_leaves() -> None:
    topic, group = await new_topic(6), f"group_{uuid.uuid4()}"
    timing = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 200}
    async with consumer(topic, group_id=group, **timing) as first:
        async with consumer(topic, group_id=group, **timing) as second:
            await _until(lambda: len(first.assignment()) == len(second.assignment()) == 3)
            assert not first.assignment() & second.assignment()
            for number in range(6):
                await fill(topic, 5, number)
            found = [*await read(first, 15), *await read(second, 15)]
            assert {each.partition for each in found} == set(range(6))
            await second.commit()
            await first.commit()
        await _until(lambda: len(first.assignment()) == 6)
        for number in range(6):
            await fill(topic, 1, number)
        assert {(each.partition, each.offset) for each in await read(first, 6)} == {
            (number, 5) for number in range(6)
        }


@in_a_loop
async def test_topics_that_match_a_pattern_are_read_also_later_ones() -> None:
    prefix = f"pattern_{uuid.uuid4()}"
    async with producer() as client:
        await client.send_and_wait(f"{prefix}_a", b"first")
    async with consumer(group_id=f"group_{prefix}", metadata_max_age_ms=500) as client:
        client.subscribe(pattern=f"^{prefix}_.*")
        assert (await read(client, 1))[0].topic == f"{prefix}_a"
        await client.commit()  # the later topic brings a rebalance
        async with producer() as other:
            await other.send_and_wait(f"{prefix}_b", b"second")
        assert (await read(client, 1))[0].topic == f"{prefix}_b"


@in_a_loop
async def test_offsets_are_found_by_time_and_positions_by_seeks() -> None:
    topic = await new_topic()
    partition = TopicPartition(topic, 0)
    now_ms = int(time.time() * 1000)
    async with producer() as client:
        for number in range(10):
            await client.send_and_wait(topic, b"", timestamp_ms=now_ms + number * 1000)
    async with consumer() as client:
        client.assign([partition])
        assert await client.beginning_offsets([partition]) == {partition: 0}
        assert await client.end_offsets([partition]) == {partition: 10}
        found = (await client.offsets_for_times({partition: now_ms + 3500}))[partition]
        assert (found.offset, found.timestamp) == (4, now_ms + 4000)
        assert await client.offsets_for_times({partition: now_ms + 10_000}) == {partition: None}
        client.seek(partition, 7)
        assert [each.offset for each in await read(client, 3)] == [7, 8, 9]
        await client.seek_to_beginning(partition)
        assert (await read(client, 1))[0].offset == 0
        await client.seek_to_end(partition)
        assert await client.position(partition) == 10
        assert client.highwater(partition) == 10


@in_a_loop
async def test_a_position_outside_of_the_log_is_told() -> None:
    topic = await new_topic()
    partition = TopicPartition(topic, 0)
    await fill(topic, 3)
    async with consumer(auto_offset_reset="none") as client:
        client.assign([partition])
        client.seek(partition, 99)
        with pytest.raises(OffsetOutOfRangeError):
            await asyncio.wait_for(client.getone(), TIMEOUT_S)


@in_a_loop
async def test_a_paused_partition_gives_nothing() -> None:
    topic = await new_topic(2)
    one, two = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with consumer() as client:
        client.assign([one, two])
        client.pause(one)
        await fill(topic, 3, 0)
        await fill(topic, 3, 1)
        assert {each.partition for each in await read(client, 3)} == {1}
        client.resume(one)
        assert {each.partition for each in await read(client, 3)} == {0}


@in_a_loop
async def test_transactions_are_read_when_they_are_committed() -> None:
    topic = await new_topic(2)
    async with producer(transactional_id=f"transactions_{uuid.uuid4()}") as client:
        for number in range(6):
            await client.begin_transaction()
            for partition in (0, 1):
                await client.send(topic, b"%d" % number, partition=partition)
            if number % 2:
                await client.commit_transaction()
            else:
                await client.abort_transaction()
    async with consumer(topic, isolation_level="read_committed") as client:
        found = await read(client, 6)
    for partition in (0, 1):
        values = [each.value for each in found if each.partition == partition]
        assert values == [b"1", b"3", b"5"]


@in_a_loop
async def test_offsets_are_committed_with_their_transaction() -> None:
    topic, target, group = await new_topic(), await new_topic(), f"group_{uuid.uuid4()}"
    partition = TopicPartition(topic, 0)
    await fill(topic, 5)
    async with (
        consumer(topic, group_id=group, isolation_level="read_committed") as source,
        producer(transactional_id=f"transactions_{uuid.uuid4()}") as client,
    ):
        values = [each.value for each in await read(source, 5)]
        for is_committed in (False, True):
            await client.begin_transaction()
            for value in values:
                await client.send(target, value)
            await client.send_offsets_to_transaction({partition: 5}, group)
            if is_committed:
                await client.commit_transaction()
            else:
                await client.abort_transaction()
            assert await source.committed(partition) == (5 if is_committed else None)
    async with consumer(target, isolation_level="read_committed") as client:
        assert [each.value for each in await read(client, 5)] == values


@in_a_loop
async def test_a_second_producer_of_a_transactional_id_fences_the_first() -> None:
    topic, name = await new_topic(), f"transactions_{uuid.uuid4()}"
    async with producer(transactional_id=name) as first:
        await first.begin_transaction()
        await first.send_and_wait(topic, b"of the first")
        async with producer(transactional_id=name) as second:
            await second.begin_transaction()
            await second.send_and_wait(topic, b"of the second")
            await second.commit_transaction()
        with pytest.raises(ProducerFenced):
            await first.commit_transaction()
    async with consumer(topic, isolation_level="read_committed") as client:
        assert [each.value for each in await read(client, 1)] == [b"of the second"]


@in_a_loop
async def test_topics_are_created_altered_and_deleted() -> None:
    name = f"aiokafka_{uuid.uuid4()}"
    async with admin() as client:
        configs = {"retention.ms": "12345"}
        await client.create_topics([NewTopic(name, 2, 1, topic_configs=configs)])
        with pytest.raises(TopicAlreadyExistsError):
            _raise_first(await client.create_topics([NewTopic(name, 2, 1)]))
        assert name in await client.list_topics()
        await client.create_partitions({name: NewPartitions(5)})
        (described,) = await client.describe_topics([name])
        assert len(described["partitions"]) == 5
        resource = ConfigResource(ConfigResourceType.TOPIC, name)
        (answer,) = await client.describe_configs([resource])
        values = {entry[0]: entry[1] for entry in answer.resources[0][4]}
        assert values["retention.ms"] == "12345"
        await client.alter_configs(
            [ConfigResource(ConfigResourceType.TOPIC, name, configs={"retention.ms": "777"})]
        )
        (answer,) = await client.describe_configs([resource])
        assert {entry[0]: entry[1] for entry in answer.resources[0][4]}["retention.ms"] == "777"
        await client.delete_topics([name])
        assert name not in await client.list_topics()


@in_a_loop
async def test_groups_are_listed_and_described_with_their_offsets() -> None:
    topic, group = await new_topic(), f"group_{uuid.uuid4()}"
    partition = TopicPartition(topic, 0)
    await fill(topic, 3)
    async with admin() as client, consumer(topic, group_id=group) as member:
        await read(member, 3)
        await member.commit()
        assert (group, "consumer") in await client.list_consumer_groups()
        (answer,) = await client.describe_consumer_groups([group])
        ((_, name, state, *_),) = answer.groups
        assert (name, state) == (group, "Stable")
        offsets = await client.list_consumer_group_offsets(group)
        assert offsets[partition].offset == 3


@in_a_loop
async def test_records_are_deleted_up_to_an_offset() -> None:
    topic = await new_topic()
    partition = TopicPartition(topic, 0)
    await fill(topic, 10)
    async with admin() as client:
        assert await client.delete_records({partition: RecordsToDelete(6)}) == {partition: 6}
    async with consumer(topic) as client:
        assert await client.beginning_offsets([partition]) == {partition: 6}
        assert [each.offset for each in await read(client, 4)] == [6, 7, 8, 9]


@in_a_loop
async def test_the_cluster_is_described() -> None:
    async with admin() as client:
        cluster = await client.describe_cluster()
    addresses = {f"{each['host']}:{each['port']}" for each in cluster["brokers"]}
    assert addresses == set(BROKERS.split(","))
    assert cluster["controller_id"] in {each["node_id"] for each in cluster["brokers"]}


def _raise_first(answer: Any) -> None:
    """Raise the error of the first topic of an answer."""
    code = answer.topic_errors[0][1]
    if code:
        raise for_code(code)


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not holds():
            await asyncio.sleep(0.05)
