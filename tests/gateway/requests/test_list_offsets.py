"""ListOffsets: the places in a log, and offsets by time."""

import pytest

from spark_log import Admin, NewTopic, TopicPartition
from spark_log.gateway.errors import ErrorCode
from spark_log.gateway.protocol import message_class
from spark_log.record import (
    EndTransactionMarker,
    ProducerAppend,
    times_us_of,
    timestamp_array,
)
from tests.gateway.data_client import TOPIC, batches_of, client_batch, fetch, produce
from tests.gateway.support import running_gateway
from tests.record.samples import START_US, numbered

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD = range(-1, -7, -1)
START_MS = START_US // 1000


@pytest.fixture
def root(tmp_path):
    return str(tmp_path / "root")


@pytest.fixture
def gateway(root):
    with running_gateway(root) as gateway:
        Admin(root).create_topics([NewTopic(TOPIC)])
        yield gateway


@pytest.fixture
def client(gateway):
    with gateway.client() as client:
        yield client


@pytest.fixture
def log(gateway):
    """The log of partition 0, of another process."""
    return gateway.cluster.partition_log(gateway.cluster.topic(TOPIC), 0)


def ask(client, timestamp, *, version=11, isolation_level=0, partition=0, topic=TOPIC, epoch=-1):
    request = message_class("ListOffsetsRequest")
    topics = [
        request.ListOffsetsTopic(
            name=topic,
            partitions=[
                request.ListOffsetsPartition(
                    partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch
                )
            ],
        )
    ]
    answer = client.ask(
        "ListOffsets", version, replica_id=-1, isolation_level=isolation_level, topics=topics
    )
    return answer.topics[0].partitions[0]


def place(client, timestamp, **how):
    found = ask(client, timestamp, **how)
    assert found.error_code == ErrorCode.NONE
    return found.offset, found.timestamp


class TestPlaces:
    @pytest.mark.parametrize("version", range(1, 12))
    def test_are_the_start_and_the_end(self, client, version):
        produce(client, client_batch(0, 3))
        assert place(client, EARLIEST, version=version) == (0, -1)
        assert place(client, LATEST, version=version) == (3, -1)

    def test_of_an_empty_log_are_0(self, client):
        assert place(client, EARLIEST) == (0, -1)
        assert place(client, LATEST) == (0, -1)

    def test_show_the_appends_and_deletions_of_other_processes_at_once(self, client, log, root):
        produce(client, client_batch(0, 3))
        place(client, LATEST)
        log.append(numbered(3, 4))
        assert place(client, LATEST) == (7, -1)
        Admin(root).delete_records({TopicPartition(TOPIC, 0): 3})
        assert place(client, EARLIEST) == place(client, EARLIEST_LOCAL) == (3, -1)

    def test_end_at_the_last_stable_offset_for_read_committed(self, client, log):
        produce(client, client_batch(0, 3))
        log.append(numbered(3, 2), producer=ProducerAppend(7, 0, 0, True))
        assert place(client, LATEST) == (5, -1)
        assert place(client, LATEST, isolation_level=1) == (3, -1)
        log.append_markers([EndTransactionMarker(7, 1, True)])
        assert place(client, LATEST, isolation_level=1) == (6, -1)

    def test_of_tiered_segments_are_nowhere(self, client):
        produce(client, client_batch(0, 3))
        assert place(client, LATEST_TIERED) == place(client, PENDING_UPLOAD) == (-1, -1)

    def test_have_the_leader_epoch(self, client):
        produce(client, client_batch(0, 3))
        assert ask(client, LATEST).leader_epoch == 0
        assert ask(client, 1 << 60).leader_epoch == -1


class TestTimes:
    def test_find_the_first_record_at_or_after_them(self, client):
        produce(client, client_batch(0, 3))
        assert place(client, 0) == (0, START_MS)
        assert place(client, START_MS + 1) == (1, START_MS + 1)
        assert place(client, START_MS + 3) == (-1, -1)

    def test_agree_with_the_milliseconds_that_a_client_reads_of_microseconds(self, client, log):
        records = numbered(0, 2)
        times = timestamp_array(times_us_of(records) + 999)
        log.append(records.set_column(3, records.schema.field(3), times))
        (batch,) = batches_of(fetch(client, 0))
        assert batch.max_timestamp_ms == START_MS + 1
        assert place(client, START_MS) == (0, START_MS)
        assert place(client, START_MS + 1) == (1, START_MS + 1)

    def test_find_the_largest(self, client):
        produce(client, client_batch(0, 3))
        assert place(client, MAX_TIMESTAMP) == (2, START_MS + 2)
        assert place(client, MAX_TIMESTAMP, isolation_level=1) == (2, START_MS + 2)


class TestRefusals:
    def test_of_unknown_topics_and_partitions(self, client):
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert ask(client, LATEST, topic="trains").error_code == unknown
        assert ask(client, LATEST, partition=5).error_code == unknown

    def test_of_other_negative_timestamps(self, client):
        assert ask(client, -7).error_code == ErrorCode.INVALID_REQUEST

    def test_of_newer_leader_epochs(self, client):
        assert ask(client, LATEST, epoch=3).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
