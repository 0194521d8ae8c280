"""Brokers on a real S3 server, each in a bucket of its own, beside a root on a disk."""

import asyncio
from typing import Any

import pytest

from spark_log import Admin, AIOConsumer, AIOProducer, Consumer, NewTopic, Producer
from spark_log.cluster import Cluster
from spark_log.errors import KafkaTimeoutError, StorageError
from spark_log.testing.servers.s3_server import run_s3_server


@pytest.fixture
def given(s3_server, tmp_path):
    """Return the arguments of clients of a cluster with a topic on the brokers 0, 1 and 2."""
    options = s3_server.storage_options
    given: dict[str, Any] = {
        "root": str(tmp_path / "root"),
        "broker_storage_options": {1: options, 2: options},
    }
    admin = Admin(**given)
    for broker_id in (1, 2):
        admin.register_broker(broker_id, f"{s3_server.new_bucket()}/log")
    admin.create_topics([NewTopic("t", replica_assignment={0: [1, 0, 2]})])
    return given


def test_records_are_on_all_brokers(given):
    with Producer(**given) as producer:
        producer.send("t", b"one").result(60)

    async def send():
        async with AIOProducer(**given) as producer:
            await producer.send_and_wait("t", b"two")

    asyncio.run(send())
    with Consumer("t", **given, auto_offset_reset="earliest", consumer_timeout_ms=2000) as consumer:
        assert [record.value for _, record in zip(range(2), consumer, strict=False)] == [
            b"one",
            b"two",
        ]

    async def receive():
        async with AIOConsumer("t", **given, auto_offset_reset="earliest") as consumer:
            return await consumer.poll(timeout_ms=60_000)

    (records,) = asyncio.run(receive()).values()
    assert records[0].value == b"one"
    described = Admin(**given).describe_log_dirs(["t"])
    assert [log_dir.error for log_dir in described] == [None, None, None]
    assert [log_dir.replicas[0].log_end_offset for log_dir in described] == [2, 2, 2]


def test_without_the_options_a_broker_is_not_opened(given):
    with pytest.raises(StorageError):
        Cluster(given["root"]).broker_store(1)


def test_options_of_a_root_on_the_same_kind_of_storage_serve_its_brokers(s3_server):
    given: dict[str, Any] = {
        "root": f"{s3_server.new_bucket()}/log",
        "storage_options": s3_server.storage_options,
    }
    admin = Admin(**given)
    admin.register_broker(1, f"{s3_server.new_bucket()}/log")
    admin.create_topics([NewTopic("t", replication_factor=2)])
    with Producer(**given) as producer:
        assert producer.send("t", b"one").result(60).offset == 0
    admin.delete_topics(["t"])
    (marker,) = Cluster(**given).store.list("__deleted_topics")
    assert list(Cluster(**given).broker_store(1).list_directories(marker.name)) == []


def test_a_broker_that_does_not_answer_does_not_stop_an_admin(tmp_path):
    with run_s3_server() as server:
        given: dict[str, Any] = {
            "root": str(tmp_path / "root"),
            "broker_storage_options": {1: server.storage_options},
        }
        Admin(**given).register_broker(1, f"{server.new_bucket()}/log")
        admin = Admin(**given, default_api_timeout_ms=200)
        with server.frozen(), pytest.raises(KafkaTimeoutError, match="describe_log_dirs"):
            admin.describe_log_dirs()
        assert [log_dir.error for log_dir in admin.describe_log_dirs()] == [None, None]
