"""Produce: what a client is answered to its batches."""

import threading
from types import SimpleNamespace

import pytest

from spark_log import Admin, Consumer, NewTopic
from spark_log.errors import StorageError
from spark_log.gateway.errors import ErrorCode
from spark_log.gateway.record_batches import (
    BatchTarget,
    CompressionType,
    from_arrow,
    split,
)
from spark_log.gateway.requests import produce as produce_module
from spark_log.transaction import TopicIdPartition, TransactionCoordinator
from tests.gateway.data_client import (
    TOPIC,
    Produce,
    batches_of,
    client_batch,
    fetch,
    produce,
    produce_fields,
    rows_of,
)
from tests.gateway.support import TIMEOUT_S, running_gateway
from tests.record.samples import numbered, record_batch, row
from tests.waiting import wait_until


@pytest.fixture
def root(tmp_path):
    return str(tmp_path / "root")


@pytest.fixture
def gateway(root):
    with running_gateway(root) as gateway:
        Admin(root).create_topics([NewTopic(TOPIC, num_partitions=2)])
        yield gateway


@pytest.fixture
def client(gateway):
    with gateway.client() as client:
        yield client


def values_in(root):
    """The values that our own consumer reads."""
    consumer = Consumer(root=root, auto_offset_reset="earliest")
    consumer.subscribe([TOPIC])
    try:
        found = []
        while polled := consumer.poll(timeout_ms=200):
            found += [record.value for records in polled.values() for record in records]
        return found
    finally:
        consumer.close()


class TestABatch:
    @pytest.mark.parametrize("version", range(3, 13))
    def test_is_appended_in_every_version(self, client, version):
        answer = produce(client, client_batch(), version=version)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)
        assert produce(client, client_batch(), version=version).base_offset == 2

    def test_is_appended_to_a_topic_id(self, client, gateway):
        topic_id = gateway.cluster.topic(TOPIC).topic_id
        assert produce(client, client_batch(), version=13, topic=topic_id).base_offset == 0

    def test_is_read_by_our_own_consumer(self, client, root):
        produce(client, client_batch(0, 3))
        assert values_in(root) == [b"record:0", b"record:1", b"record:2"]

    @pytest.mark.parametrize("compression", CompressionType)
    def test_may_have_any_compression(self, client, compression):
        data = from_arrow(
            numbered(0, 50), base_offset=0, target=BatchTarget(), compression=compression
        )
        assert produce(client, data).base_offset == 0
        assert len(rows_of(fetch(client, 0))) == 50

    def test_gets_the_time_of_the_append_if_the_topic_says_so(self, client, root):
        configs = {"message.timestamp.type": "LogAppendTime"}
        Admin(root).create_topics([NewTopic("timed", topic_configs=configs)])
        answer = produce(client, client_batch(), topic="timed")
        assert answer.log_append_time_ms > 1_700_000_000_000
        (batch,) = batches_of(fetch(client, 0, topic="timed"))
        assert (batch.timestamp_type, batch.max_timestamp_ms) == (1, answer.log_append_time_ms)

    def test_without_timestamps_keeps_none(self, client, root):
        """The limit of the topic does not concern it, as in Kafka."""
        configs = {"message.timestamp.before.max.ms": "1000"}
        Admin(root).create_topics([NewTopic("limited", topic_configs=configs)])
        rows = [row(value=b"a", timestamp=-1_000)]
        data = from_arrow(record_batch(rows), base_offset=0, target=BatchTarget())
        assert split(data, max_batches=1)[0].max_timestamp_ms == -1
        assert produce(client, data, topic="limited").error_code == ErrorCode.NONE
        with running_gateway(root) as other, other.client() as from_log:
            for reader in (client, from_log):
                (batch,) = batches_of(fetch(reader, 0, topic="limited"))
                assert batch.max_timestamp_ms == -1
        rows = [row(value=b"a", timestamp=-2_000)]
        data = from_arrow(record_batch(rows), base_offset=0, target=BatchTarget())
        answer = produce(client, data, topic="limited")
        assert answer.error_code == ErrorCode.INVALID_TIMESTAMP

    def test_without_keys_is_refused_by_a_compacted_topic(self, client, root):
        configs = {"cleanup.policy": "compact"}
        Admin(root).create_topics([NewTopic("compacted", topic_configs=configs)])
        rows = [row(key=b"a"), row(key=None), row(key=b"b"), row(key=None)]
        data = from_arrow(record_batch(rows), base_offset=0, target=BatchTarget())
        answer = produce(client, data, topic="compacted")
        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert "compacted" in answer.error_message
        assert [each.batch_index for each in answer.record_errors] == [1, 3]

    def test_gets_no_answer_with_acks_0(self, client):
        client.send("Produce", 9, **produce_fields(client_batch(), acks=0))
        assert produce(client, client_batch()).base_offset == 2

    @pytest.mark.parametrize(
        "what", [{"topic": "trains"}, {"partition": 2}, {"data": b"damaged"}, {"acks": 0}]
    )
    def test_with_acks_0_closes_the_connection_of_a_client_whose_batch_is_refused(
        self, gateway, client, root, what, monkeypatch
    ):
        """As in Kafka: the client would send to the wrong place for ever otherwise."""
        if "acks" in what:  # a fault before the append

            async def fails(*_):
                raise StorageError("the root cannot be read")

            monkeypatch.setattr("spark_log.gateway.requests.produce.topics_of", fails)
        fields = {"data": client_batch(), "acks": 0} | what
        client.send("Produce", 9, **produce_fields(**fields))
        assert client.is_closed()
        assert values_in(root) == []
        with gateway.client() as other:
            assert other.ask("ApiVersions", 0).error_code == 0


class TestAnIdempotentProducer:
    def produce(self, client, sequence, epoch=0):
        return produce(
            client, client_batch(producer_id=7, producer_epoch=epoch, base_sequence=sequence)
        )

    def test_gets_the_first_offsets_of_a_repeat(self, client):
        assert [self.produce(client, each).base_offset for each in (0, 2, 0, 2)] == [0, 2, 0, 2]
        assert len(rows_of(fetch(client, 0))) == 4

    def test_is_refused_after_a_gap(self, client):
        self.produce(client, 0)
        assert self.produce(client, 5).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def test_is_fenced_by_a_newer_epoch(self, client):
        self.produce(client, 0, epoch=1)
        assert self.produce(client, 0).error_code == ErrorCode.INVALID_PRODUCER_EPOCH

    def test_may_have_five_requests_under_way(self, client):
        batches = [
            client_batch(producer_id=7, producer_epoch=0, base_sequence=sequence)
            for sequence in range(0, 10, 2)
        ]
        for batch in batches:
            client.send("Produce", 9, **produce_fields(batch))
        answers = [client.receive()[1].responses[0].partition_responses[0] for _ in batches]
        assert [(each.error_code, each.base_offset) for each in answers] == [
            (0, offset) for offset in range(0, 10, 2)
        ]


class TestARefusal:
    def test_of_damaged_bytes(self, client):
        damaged = bytearray(client_batch())
        damaged[-1] ^= 1
        assert produce(client, bytes(damaged)).error_code == ErrorCode.CORRUPT_MESSAGE

    def test_of_two_batches(self, client):
        data = bytes(client_batch()) * 2
        assert produce(client, data).error_code == ErrorCode.INVALID_RECORD

    @pytest.mark.parametrize("data", [None, b""])
    def test_of_no_batch(self, client, data):
        assert produce(client, data).error_code == ErrorCode.INVALID_RECORD

    def test_of_an_unknown_topic(self, client):
        answer = produce(client, client_batch(), topic="trains")
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def test_of_an_unknown_topic_id(self, client):
        answer = produce(client, client_batch(), version=13, topic="B" * 22)
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID

    def test_of_an_unknown_partition(self, client):
        answer = produce(client, client_batch(), partition=2)
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def test_of_other_acks(self, client):
        answer = produce(client, client_batch(), acks=2)
        assert answer.error_code == ErrorCode.INVALID_REQUIRED_ACKS

    def test_of_a_batch_above_max_message_bytes(self, client, root):
        Admin(root).create_topics([NewTopic("small", topic_configs={"max.message.bytes": "100"})])
        answer = produce(client, client_batch(count=9), topic="small")
        assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert "max.message.bytes" in answer.error_message

    def test_leaves_other_batches_of_the_same_append(self, client):
        damaged = bytearray(client_batch())
        damaged[-1] ^= 1
        for data in (client_batch(), bytes(damaged), client_batch()):
            client.send("Produce", 9, **produce_fields(data))
        answers = [client.receive()[1].responses[0].partition_responses[0] for _ in range(3)]
        assert [each.base_offset for each in answers] == [0, -1, 2]


class TestATransaction:
    def test_needs_a_transactional_id(self, client):
        data = client_batch(producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
        assert produce(client, data).error_code == ErrorCode.INVALID_RECORD

    def test_of_an_unknown_transactional_id_is_refused(self, client):
        data = client_batch(producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
        answer = produce(client, data, version=12, transactional_id="mine")
        assert answer.error_code
        assert not rows_of(fetch(client, 0))

    def test_of_a_fenced_producer_is_refused_with_the_code_that_kafkas_leaders_use(self, client):
        old = client.ask("InitProducerId", 6, transactional_id="x", transaction_timeout_ms=60_000)
        client.ask("InitProducerId", 6, transactional_id="x", transaction_timeout_ms=60_000)
        data = client_batch(
            producer_id=old.producer_id, producer_epoch=0, base_sequence=0, is_transactional=True
        )
        answer = produce(client, data, version=12, transactional_id="x")
        assert answer.error_code == ErrorCode.INVALID_PRODUCER_EPOCH

    def test_gets_its_partition_added(self, client, gateway):
        coordinator = TransactionCoordinator(gateway.cluster, "mine")
        owner = coordinator.initialize(60_000)
        data = client_batch(
            producer_id=owner.producer_id,
            producer_epoch=owner.producer_epoch,
            base_sequence=0,
            is_transactional=True,
        )
        assert produce(client, data, version=12, transactional_id="mine").error_code == 0
        topic_id = gateway.cluster.topic(TOPIC).topic_id
        (participant,) = coordinator.refresh().participants.values()
        assert TopicIdPartition(topic_id, 0) in participant.partitions
        assert not rows_of(fetch(client, 0, isolation_level=1))
        assert len(rows_of(fetch(client, 0))) == 2
        coordinator.commit(owner)
        assert len(rows_of(fetch(client, 0, isolation_level=1, max_wait_ms=5000))) == 2

    def test_whose_coordinator_fails_leaves_no_batch_in_the_queue(
        self, client, gateway, monkeypatch
    ):
        owner = TransactionCoordinator(gateway.cluster, "mine").initialize(60_000)
        data = client_batch(
            producer_id=owner.producer_id,
            producer_epoch=owner.producer_epoch,
            base_sequence=0,
            is_transactional=True,
        )
        with monkeypatch.context() as patch:
            fault = {"add_partitions": lambda *_: 1 / 0}
            patch.setattr(gateway.server.gateway, "transactions", SimpleNamespace(**fault))
            answer = produce(client, data, version=12, transactional_id="mine")
            assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        # Batches of one transactional id wait for those before them.
        assert produce(client, data, version=12, transactional_id="mine").error_code == 0
        assert len(rows_of(fetch(client, 0))) == 2


class TestATimeout:
    @pytest.fixture
    def held(self, gateway, monkeypatch):
        """The event that lets appends begin; requests time out after a millisecond."""
        monkeypatch.setattr(produce_module, "_MIN_TIMEOUT_MS", 1)
        partitions = gateway.server.gateway.partitions
        logs = gateway.call(partitions.get, gateway.cluster.topic(TOPIC), 0).logs
        append, may_append = logs.append, threading.Event()

        def append_later(produced):
            assert may_append.wait(TIMEOUT_S)
            return append(produced)

        monkeypatch.setattr(logs, "append", append_later)
        yield may_append
        may_append.set()

    def fields(self, data, **fields):
        return produce_fields(data, **fields) | {"timeout_ms": 0}

    def test_takes_back_what_has_not_begun(self, client, gateway, held, root):
        answers = []
        for number in range(3):
            data = client_batch(first=number, count=1)
            answer = client.ask("Produce", 9, **self.fields(data)).responses[0]
            answers.append(answer.partition_responses[0])
        assert {each.error_code for each in answers} == {ErrorCode.REQUEST_TIMED_OUT}
        assert [each.error_message.split("; ")[1] for each in answers] == [
            "it may still be appended",
            "it was not appended",
            "it was not appended",
        ]
        memory = gateway.server.memory
        assert gateway.call(lambda: memory.used_bytes) > 0, "the append still uses its request"
        held.set()
        wait_until(lambda: not gateway.call(lambda: memory.used_bytes))
        assert values_in(root) == [b"record:0"]

    def test_and_a_repeat_do_not_double_a_batch(self, client, held, root):
        data = client_batch(producer_id=7, producer_epoch=0, base_sequence=0)
        first = client.ask("Produce", 9, **self.fields(data)).responses[0].partition_responses[0]
        assert first.error_code == ErrorCode.REQUEST_TIMED_OUT
        held.set()
        fields = produce_fields(data) | {"timeout_ms": 60_000}
        again = client.ask("Produce", 9, **fields).responses[0].partition_responses[0]
        assert (again.error_code, again.base_offset) == (ErrorCode.NONE, 0)
        assert len(values_in(root)) == 2


class TestQuotas:
    def test_are_answered_as_a_pause(self, client, root):
        Admin(root).alter_client_quotas({"a-test": {"producer_byte_rate": 1}})
        fields = produce_fields(client_batch(count=100))
        pauses = [client.ask("Produce", 9, **fields).throttle_time_ms for _ in range(2)]
        assert pauses[-1] > 1000


def test_several_partitions_of_a_request_have_an_answer_each(client):
    request = Produce(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[
            Produce.TopicProduceData(
                name=TOPIC,
                partition_data=[
                    Produce.PartitionProduceData(index=index, records=client_batch())
                    for index in (0, 1, 2)
                ],
            )
        ],
    )
    (topic,) = client.ask("Produce", 9, request).responses
    assert [(each.index, each.error_code) for each in topic.partition_responses] == [
        (0, ErrorCode.NONE),
        (1, ErrorCode.NONE),
        (2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
