"""What is printed of a public object tells what it is, and never a storage option."""

import asyncio
from unittest.mock import Mock

import pyarrow as pa
import pytest

from spark_log import (
    Admin,
    AIOConsumer,
    AIOProducer,
    Consumer,
    NewTopic,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
)
from spark_log.cluster import Cluster
from spark_log.coordinator import OffsetsTable
from spark_log.datasource.options.read_options import parse_read_options
from spark_log.datasource.options.write_options import parse_write_options
from spark_log.dead_letter import DeadLetters
from spark_log.storage import open_store
from spark_log.storage.object.location import ObjectLocation
from spark_log.util.clock import SYSTEM_CLOCK
from tests.producer.support import by_hand, run

SECRET = "pa55word"
OPTIONS = {"key": SECRET, "secret": SECRET}


@pytest.fixture
def root(tmp_path):
    path = str(tmp_path / "root")
    with Admin(path, storage_options=OPTIONS) as admin:
        admin.create_topics([NewTopic("t", 2)])
    return path


@pytest.fixture
def given(root):
    return {"root": root, "storage_options": OPTIONS}


@pytest.fixture
def cluster(root):
    return Cluster(root, OPTIONS)


def test_clients_tell_their_root(root, given):
    with Admin(**given) as admin:
        assert repr(admin) == f"Admin(root={root!r})"
    with Producer(**given, client_id="p") as producer:
        assert repr(producer) == f"<Producer root={root!r} client_id='p'>"
    with Consumer("t", **given, group_id="g") as consumer:
        assert repr(consumer) == f"<Consumer root={root!r} group_id='g' assignment=[]>"


def test_asyncio_clients_tell_theirs_once_they_are_started(root, given):
    async def tell():
        producer, consumer = AIOProducer(**given, client_id="p"), AIOConsumer(**given)
        yield repr(producer)
        yield repr(consumer)
        async with producer, consumer:
            yield repr(producer)
            yield repr(consumer)

    async def told():
        return [each async for each in tell()]

    assert asyncio.run(told()) == [
        "<AIOProducer, not started>",
        "<AIOConsumer, not started>",
        f"<AIOProducer root={root!r} client_id='p'>",
        f"<AIOConsumer root={root!r} assignment=[]>",
    ]


def test_what_is_below_a_client_tells_where_it_is(root, cluster):
    table = OffsetsTable(cluster)
    table.commit("g", {TopicPartition("t", 0): OffsetAndMetadata(0)})
    log = cluster.partition_log(cluster.topic("t"), 1)
    assert repr(cluster) == f"<Cluster root={root!r} cluster_id={cluster.cluster_id!r}>"
    assert repr(cluster.store) == f"<LocalStore url={root!r}>"
    assert repr(cluster.image()) == "<MetadataImage of 1 topics>"
    assert repr(cluster.suppressed) == "<SuppressedErrors {}>"
    assert repr(log) == f"<PartitionLog directory={log.directory!r} replicas=[0]>"
    assert repr(table) == f"<OffsetsTable url={table.url!r}>"
    assert repr(DeadLetters(Mock(), "dead")) == "<DeadLetters topic='dead'>"
    assert repr(SYSTEM_CLOCK) == "<SystemClock>"


def test_views_and_readers_tell_offsets(root, given, cluster):
    with Producer(**given) as producer:
        for number in range(3):
            producer.send("t", b"%d" % number, partition=0).get(30)
    log = cluster.partition_log(cluster.topic("t"), 0)
    view = log.observe()
    assert repr(view) == "<LogView log_start_offset=0 log_end_offset=3 segments=3>"
    reader = log.files.open_listed(view.live.segments[1], view.observed_ms)
    assert repr(reader) == f"<SegmentReader path={reader.path!r} batches=1>"


def test_futures_tell_their_state(given, clock):
    table = pa.table({"value": [b"a", b"b"]})
    producer = by_hand(given.pop("root"), clock, **given)
    record = producer.send("t", b"c", partition=1)
    rows = producer.send_table("t", table, partition=0)
    assert repr(record) == "<RecordFuture t-1, record 0: on its way>"
    assert repr(rows) == "<TableFuture t, 2 records: on its way>"
    assert repr(producer.send_table("t", table.slice(2))) == "<TableFuture, no rows>"
    run(producer, clock)
    assert repr(record) == "<RecordFuture t-1, record 0: acknowledged>"
    assert repr(rows) == "<TableFuture t, 2 records: acknowledged>"


def test_no_storage_option_is_printed(root, given, cluster):
    url = "s3://bucket/log"
    printed = [
        repr(ObjectLocation.parse(url, OPTIONS)),
        repr(open_store(url, OPTIONS)),
        repr(Admin(url, storage_options=OPTIONS)),
        repr(vars(Admin(**given))["config"]),
        repr(cluster.partition_log(cluster.topic("t"), 0).files),
    ]
    options = {"path": root, "storage.key": SECRET}
    printed += [
        repr(parse_read_options({**options, "subscribe": "t"})),
        repr(parse_write_options({**options, "topic": "t"})),
    ]
    assert SECRET not in "".join(printed)
    assert printed[1] == "<ObjectStore url='s3://bucket/log'>"
