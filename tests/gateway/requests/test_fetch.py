"""Fetch: what a client reads, how long it waits, and how it moves on."""

import pytest

from spark_log import Admin, NewTopic, Producer, TopicPartition
from spark_log.gateway.errors import ErrorCode
from spark_log.gateway.protocol import message_class
from spark_log.gateway.record_batches import BatchTarget, CompressionType, from_arrow
from spark_log.log import BatchAppend
from spark_log.record import EndTransactionMarker, ProducerAppend
from tests.gateway.data_client import (
    TOPIC,
    batches_of,
    client_batch,
    fetch,
    fetch_fields,
    next_offset_of,
    produce,
    rows_of,
)
from tests.gateway.support import running_gateway
from tests.record.samples import numbered, record_batch, row
from tests.waiting import wait_until

_DeleteRecords = message_class("DeleteRecordsRequest")
_Fetch = message_class("FetchRequest")

LONG_MS = 20_000
"""A wait that a test does not reach the end of."""

FOR_EVER_MS = 2**31 - 1


@pytest.fixture
def root(tmp_path):
    return str(tmp_path / "root")


@pytest.fixture(params=[67_108_864, 0], ids=["from the cache", "from the log"])
def gateway(root, request):
    with running_gateway(root, **{"tail.cache.bytes": request.param}) as gateway:
        Admin(root).create_topics([NewTopic(TOPIC, num_partitions=2)])
        yield gateway


@pytest.fixture
def client(gateway):
    with gateway.client() as client:
        yield client


@pytest.fixture
def log(gateway):
    """The log of partition 0, of another process."""
    return gateway.cluster.partition_log(gateway.cluster.topic(TOPIC), 0)


def offsets(first, count):
    return [(offset, f"record:{offset}") for offset in range(first, first + count)]


class TestRecords:
    @pytest.mark.parametrize("version", range(4, 13))
    def test_are_those_that_were_produced(self, client, version):
        produce(client, client_batch(0, 3))
        fetched = fetch(client, 0, version=version)
        assert rows_of(fetched) == offsets(0, 3)
        assert (fetched.error_code, fetched.high_watermark) == (ErrorCode.NONE, 3)

    def test_are_found_by_topic_id(self, client, gateway):
        produce(client, client_batch(0, 3))
        topic_id = gateway.cluster.topic(TOPIC).topic_id
        assert rows_of(fetch(client, 0, version=18, topic=topic_id)) == offsets(0, 3)

    def test_of_other_writers_are_read_too(self, client, log):
        produce(client, client_batch(0, 2))
        log.append(numbered(2, 2))
        produce(client, client_batch(4, 2))
        rows, offset = [], 0
        while offset < 6:
            fetched = fetch(client, offset)
            rows += rows_of(fetched)
            offset = next_offset_of(fetched)
        assert rows == offsets(0, 6)

    def test_begin_with_the_batch_of_an_offset_within_it(self, client):
        produce(client, client_batch(0, 5))
        assert rows_of(fetch(client, 3))[-2:] == offsets(3, 2)

    def test_end_at_max_bytes_but_for_the_first_batch(self, client):
        for first in range(0, 6, 2):
            produce(client, client_batch(first, 2))
        assert rows_of(fetch(client, 0, max_bytes=1))[0] == (0, "record:0")
        limited = fetch(client, 0, partition_max_bytes=150)
        assert 0 < next_offset_of(limited) < 6

    def test_are_all_read_by_small_fetches(self, client):
        produce(client, client_batch(0, 50))
        rows, offset = [], 0
        while offset < 50:
            fetched = fetch(client, offset, partition_max_bytes=200)
            rows += [row for row in rows_of(fetched) if row[0] >= offset]
            offset = next_offset_of(fetched)
        assert rows == offsets(0, 50)

    def test_of_any_size_end_at_max_bytes_but_for_the_first_record(self, client, log):
        sizes = [1, 1, 5_000, 1, 40_000, 300, 1, 1, 9_000, 9_000]
        log.append(record_batch([row(b"v" * size) for size in sizes]))
        for limit in (1, 200, 5_100, 9_500, 60_000):
            offset = 0
            while offset < len(sizes):
                fetched = fetch(client, offset, partition_max_bytes=limit)
                assert len(fetched.records) <= max(limit, sizes[offset] + 100)
                offset = next_offset_of(fetched)

    def test_of_several_partitions_end_at_max_bytes_but_for_the_first_batch(self, client):
        for partition in (0, 1):
            for _ in range(3):
                data = from_arrow(
                    record_batch([row(b"v" * 900)]), base_offset=0, target=BatchTarget()
                )
                produce(client, data, partition=partition)

        def sizes(**limits):
            found = client.ask("Fetch", 11, **fetch_fields({0: 0, 1: 0}, **limits))
            return [len(each.records) for each in found.responses[0].partitions]

        one = len(fetch(client, 0, max_bytes=1).records)
        assert sizes() == [3 * one, 3 * one]
        assert sizes(max_bytes=4 * one) == [3 * one, one]
        assert sizes(max_bytes=4 * one - 1) == [3 * one, 0]
        assert sizes(max_bytes=one + 100) == [one, 0]
        assert sizes(max_bytes=1) == [one, 0]
        # A batch above the limit of its partition is not in an answer that has another one.
        assert sizes(partition_max_bytes=100) == [one, 0]
        found = client.ask("Fetch", 11, **fetch_fields({0: 3, 1: 0}, partition_max_bytes=100))
        assert [len(each.records) for each in found.responses[0].partitions] == [0, one]

    def test_with_zstd_are_not_given_to_old_clients(self, client):
        data = from_arrow(
            numbered(0, 9),
            base_offset=0,
            target=BatchTarget(),
            compression=CompressionType.ZSTD,
        )
        produce(client, data)
        (old,) = batches_of(fetch(client, 0, version=9))
        assert old.compression_type == CompressionType.NONE

    def test_have_the_leader_epoch_of_the_log(self, client):
        produce(client, client_batch(0, 3))
        assert [batch.leader_epoch for batch in batches_of(fetch(client, 0))] == [0]

    @pytest.mark.parametrize("isolation_level", [0, 1])
    def test_of_other_writers_are_found_without_a_wait(self, client, log, isolation_level):
        assert not fetch(client, 0, isolation_level=isolation_level).records
        log.append(numbered(0, 2))
        found = fetch(client, 0, isolation_level=isolation_level, max_wait_ms=0)
        assert rows_of(found) == offsets(0, 2)

    def test_of_other_writers_are_found_by_a_client_that_waits_too_shortly_for_a_probe(
        self, client, log, gateway
    ):
        """Its fetches end before the pause between two probes; then it probes by itself."""
        partition = gateway.server.gateway.partitions.get(gateway.cluster.topic(TOPIC), 0)
        fetch(client, 0, max_wait_ms=1)
        partition.changed_ms = float("-inf")  # at rest for long, so that probes are rare
        log.append(numbered(0, 2))
        found = wait_until(lambda: rows_of(fetch(client, 0, max_wait_ms=1)))
        assert found == offsets(0, 2)


class TestOffsets:
    def test_after_the_end_are_out_of_range(self, client):
        produce(client, client_batch(0, 3))
        assert fetch(client, 4).error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    def test_at_the_end_wait(self, client):
        assert fetch(client, 0).error_code == ErrorCode.NONE

    def test_that_are_deleted_through_this_gateway_are_gone_at_once(self, client):
        produce(client, client_batch(0, 3))
        produce(client, client_batch(3, 3))
        fetch(client, 0)
        deleted = _DeleteRecords.DeleteRecordsTopic(
            name=TOPIC,
            partitions=[_DeleteRecords.DeleteRecordsPartition(partition_index=0, offset=3)],
        )
        client.ask("DeleteRecords", 2, topics=[deleted])
        fetched = fetch(client, 3)
        assert (rows_of(fetched), fetched.log_start_offset) == (offsets(3, 3), 3)
        assert fetch(client, 0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    def test_before_the_start_are_out_of_range(self, client, root):
        produce(client, client_batch(0, 3))
        produce(client, client_batch(3, 3))
        fetch(client, 0)
        Admin(root).delete_records({TopicPartition(TOPIC, 0): 3})
        with_start = client.ask("ListOffsets", 5, **list_offsets_fields(-2))
        assert with_start.topics[0].partitions[0].offset == 3
        assert fetch(client, 0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert rows_of(fetch(client, 3)) == offsets(3, 3)


class TestWaiting:
    def test_ends_with_an_append_through_this_gateway(self, client, gateway):
        client.send("Fetch", 11, **fetch_fields({0: 0}, max_wait_ms=LONG_MS))
        with gateway.client() as producer:
            produce(producer, client_batch(0, 3))
        _, response = client.receive()
        assert rows_of(response.responses[0].partitions[0]) == offsets(0, 3)

    def test_ends_with_an_append_of_another_process(self, client, log):
        client.send("Fetch", 11, **fetch_fields({0: 0}, max_wait_ms=LONG_MS))
        log.append(numbered(0, 3))
        _, response = client.receive()
        assert rows_of(response.responses[0].partitions[0]) == offsets(0, 3)

    def test_ends_when_min_bytes_are_there(self, client, gateway):
        fields = fetch_fields({0: 0, 1: 0}, max_wait_ms=LONG_MS, min_bytes=200)
        client.send("Fetch", 11, **fields)
        with gateway.client() as producer:
            for partition in (0, 1, 0):
                produce(producer, client_batch(0, 3), partition=partition)
        _, response = client.receive()
        found = response.responses[0].partitions
        assert sum(len(each.records) for each in found) >= 200

    def test_ends_with_what_was_read_when_the_time_to_read_is_over(self, client, log, monkeypatch):
        monkeypatch.setattr("spark_log.gateway.requests.fetch._READ_MS", 0.0)
        for each in range(3):
            log.append(numbered(each, 1))
        options = {"min_bytes": 1 << 20, "max_wait_ms": FOR_EVER_MS}
        assert [rows_of(fetch(client, each, **options)) for each in range(3)] == [
            offsets(each, 1) for each in range(3)
        ]

    def test_ends_with_an_error_of_a_partition(self, client):
        fields = fetch_fields({0: 0, 7: 0}, max_wait_ms=LONG_MS)
        first, second = client.ask("Fetch", 11, **fields).responses[0].partitions
        assert (first.error_code, second.error_code) == (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def test_for_memory_ends_after_max_wait_without_records(self, client, gateway):
        produce(client, client_batch(0, 3))
        memory = gateway.server.memory
        gateway.call(memory.change, memory.limit_bytes - 1000)
        fetched = fetch(client, 0, max_wait_ms=1)
        assert (fetched.error_code, fetched.records) == (ErrorCode.NONE, b"")
        gateway.call(memory.change, 1000 - memory.limit_bytes)
        assert rows_of(fetch(client, 0)) == offsets(0, 3)

    def test_for_memory_ends_when_there_is_some(self, client, gateway):
        produce(client, client_batch(0, 3))
        memory = gateway.server.memory
        gateway.call(memory.change, memory.limit_bytes - 1000)
        client.send("Fetch", 11, **fetch_fields({0: 0}, max_wait_ms=LONG_MS))
        wait_until(lambda: gateway.call(lambda: memory.has_waiting))
        gateway.call(memory.change, 1000 - memory.limit_bytes)
        _, response = client.receive()
        assert rows_of(response.responses[0].partitions[0]) == offsets(0, 3)
        wait_until(lambda: not gateway.call(lambda: memory.used_bytes))

    @pytest.mark.parametrize("waits_for_memory", [False, True])
    def test_ends_with_what_there_is_when_the_gateway_stops(
        self, client, gateway, waits_for_memory
    ):
        """Without the end of the wait, ``stop`` would close the connection without an answer."""
        produce(client, client_batch(0, 1))
        server = gateway.server
        partition = server.gateway.partitions.get(gateway.cluster.topic(TOPIC), 0)
        if waits_for_memory:
            gateway.call(server.memory.change, server.memory.limit_bytes - 1000)
        fields = fetch_fields({0: 0}, max_wait_ms=FOR_EVER_MS, min_bytes=1000)
        client.send("Fetch", 11, **fields)
        if waits_for_memory:
            wait_until(lambda: gateway.call(lambda: server.memory.has_waiting))
        else:
            wait_until(lambda: gateway.call(lambda: partition.is_waited_for))
        gateway.run(server.stop())
        _, response = client.receive()
        (found,) = response.responses[0].partitions
        assert found.error_code == ErrorCode.NONE
        assert rows_of(found) == ([] if waits_for_memory else offsets(0, 1))
        assert client.is_closed()

    def test_ends_after_max_wait(self, client):
        assert not fetch(client, 0, max_wait_ms=1).records


class TestReadCommitted:
    def send(self, log, producer_id, count=2, *, is_transactional=True, sequence=0):
        producer = ProducerAppend(producer_id, 0, sequence, is_transactional)
        records = numbered(0, count, mark=str(producer_id))
        (info,) = log.append_batches([BatchAppend(records, producer)])
        return info

    def values(self, client, *, committed=True):
        """All values, as a client reads them that moves on by the batches it gets."""
        values: list[str] = []
        offset = 0
        while True:
            fetched = fetch(client, offset, isolation_level=int(committed))
            following = next_offset_of(fetched)
            if following is None:
                return values, offset
            assert following > offset
            values += [row[1] for row in rows_of(fetched) if row[0] >= offset]
            offset = following

    def test_ends_at_the_last_stable_offset(self, client, log):
        self.send(log, 1, is_transactional=False)
        self.send(log, 2)
        self.send(log, 3, is_transactional=False)
        assert self.values(client) == (["1:0", "1:1"], 2)
        fetched = fetch(client, 2, isolation_level=1)
        assert (fetched.last_stable_offset, fetched.high_watermark) == (2, 6)
        assert len(self.values(client, committed=False)[0]) == 6

    def test_moves_past_aborted_records_at_the_end(self, client, log):
        self.send(log, 1, is_transactional=False)
        self.send(log, 2)
        log.append_markers([EndTransactionMarker(2, 1, False)])
        assert self.values(client) == (["1:0", "1:1"], 5)

    @pytest.mark.parametrize(("committed", "expected"), [(True, [8]), (False, [4, 8])])
    def test_ends_with_a_control_batch_if_the_log_ends_with_markers(
        self, client, log, committed, expected
    ):
        self.send(log, 1, is_transactional=False)
        self.send(log, 2)
        log.append_markers([EndTransactionMarker(2, 1, True)])
        self.send(log, 3)
        log.append_markers([EndTransactionMarker(3, 1, False)])
        log.append_markers([EndTransactionMarker(4, 1, False)])
        kinds, offset = [], 0
        while (fetched := fetch(client, offset, isolation_level=int(committed))).records:
            kinds += [(each.is_control, each.last_offset) for each in batches_of(fetched)]
            offset = next_offset_of(fetched)
        assert [last for is_control, last in kinds if is_control] == expected
        assert offset == 9

    def test_moves_past_a_log_of_aborted_records(self, client, log):
        self.send(log, 2)
        log.append_markers([EndTransactionMarker(2, 1, False)])
        assert self.values(client) == ([], 3)
        (batch,) = batches_of(fetch(client, 0, isolation_level=1))
        assert batch.is_control
        assert (batch.record_count, batch.base_offset, batch.last_offset) == (1, 0, 2)

    def test_leaves_out_aborted_records_between_others(self, client, log):
        self.send(log, 2)
        self.send(log, 1, is_transactional=False)
        log.append_markers([EndTransactionMarker(2, 1, False)])
        self.send(log, 3)
        log.append_markers([EndTransactionMarker(3, 1, True)])
        assert self.values(client) == (["1:0", "1:1", "3:0", "3:1"], 8)

    def test_ends_its_wait_with_a_marker(self, client, log):
        self.send(log, 2)
        fields = fetch_fields({0: 0}, max_wait_ms=LONG_MS, isolation_level=1)
        client.send("Fetch", 11, **fields)
        log.append_markers([EndTransactionMarker(2, 1, True)])
        _, response = client.receive()
        assert [value for _, value in rows_of(response.responses[0].partitions[0])] == [
            "2:0",
            "2:1",
        ]

    def test_waits_quietly_for_a_transaction_of_another_process(
        self, client, log, gateway, monkeypatch
    ):
        """The records of the open transaction are found once, and not read again and again."""
        logs = gateway.server.gateway.partitions.get(gateway.cluster.topic(TOPIC), 0).logs
        reads = []
        shipped = logs.read

        def read(*arguments):
            reads.append(arguments)
            return shipped(*arguments)

        monkeypatch.setattr(logs, "read", read)
        fetch(client, 0, isolation_level=1)
        fields = fetch_fields({0: 0}, max_wait_ms=400, isolation_level=1)
        client.send("Fetch", 11, **fields)
        self.send(log, 2)
        _, response = client.receive()
        assert not response.responses[0].partitions[0].records
        assert len(reads) <= 4

    def test_names_no_aborted_transaction(self, client, log):
        self.send(log, 2)
        assert fetch(client, 0, isolation_level=1).aborted_transactions == []
        assert fetch(client, 0, isolation_level=0).aborted_transactions is None


class SessionClient:
    """A client that keeps a fetch session, and sends only what changes."""

    def __init__(self, client, version=11, topic=TOPIC):
        self._client = client
        self._version = version
        self._topic = topic
        self.id = self.epoch = 0

    def fetch(self, offsets, *, forgotten=(), **fields):
        """Return the answers of partitions by number, with their errors or records."""
        self.send(offsets, forgotten=forgotten, **fields)
        return self.receive()

    def send(self, offsets, *, forgotten=(), **fields):
        wanted = fetch_fields(offsets, topic=self._topic, **fields)
        if not offsets:
            wanted["topics"] = []
        named = {"topic_id": self._topic} if len(self._topic) == 22 else {"topic": self._topic}
        if forgotten:
            wanted["forgotten_topics_data"] = [
                _Fetch.ForgottenTopic(**named, partitions=list(forgotten))
            ]
        self._client.send(
            "Fetch", self._version, session_id=self.id, session_epoch=self.epoch, **wanted
        )

    def receive(self):
        _, response = self._client.receive()
        if response.error_code:
            return ErrorCode(response.error_code)
        self.id, self.epoch = response.session_id, self.epoch + 1
        return {
            each.partition_index: ErrorCode(each.error_code).name
            if each.error_code
            else [offset for offset, _ in rows_of(each)]
            for topic in response.responses
            for each in topic.partitions
        }


class TestSessions:
    @pytest.fixture
    def session(self, client):
        return SessionClient(client)

    def test_answer_only_partitions_that_changed(self, client, session):
        assert session.fetch({0: 0, 1: 0}) == {0: [], 1: []}
        assert session.id
        assert session.fetch({}) == {}
        produce(client, client_batch(0, 2), partition=1)
        assert session.fetch({}) == {1: [0, 1]}
        assert session.fetch({}) == {1: [0, 1]}  # the client has not moved on
        assert session.fetch({1: 2}) == {}

    def test_know_topics_by_their_ids(self, client, gateway):
        session = SessionClient(client, 17, gateway.cluster.topic(TOPIC).topic_id)
        assert session.fetch({0: 0, 1: 0}) == {0: [], 1: []}
        produce(client, client_batch(0, 2), partition=1)
        assert session.fetch({}) == {1: [0, 1]}
        assert session.fetch({}, forgotten=[1]) == {}
        assert session.fetch({1: 0}) == {1: [0, 1]}

    def test_wait_for_records_of_all_their_partitions(self, gateway, client, session):
        session.fetch({0: 0, 1: 0})
        session.send({}, max_wait_ms=LONG_MS)
        with gateway.client() as producer:
            produce(producer, client_batch(0, 3), partition=1)
        assert session.receive() == {1: [0, 1, 2]}

    def test_forget_partitions(self, client, session):
        session.fetch({0: 0, 1: 0})
        produce(client, client_batch(0, 2), partition=0)
        produce(client, client_batch(0, 2), partition=1)
        assert session.fetch({}, forgotten=[0]) == {1: [0, 1]}

    def test_tell_a_deletion_of_records(self, client, session):
        produce(client, client_batch(0, 3))
        session.fetch({0: 3})
        deleted = _DeleteRecords.DeleteRecordsTopic(
            name=TOPIC,
            partitions=[_DeleteRecords.DeleteRecordsPartition(partition_index=0, offset=3)],
        )
        client.ask("DeleteRecords", 2, topics=[deleted])
        assert session.fetch({}) == {0: []}
        assert session.fetch({}) == {}

    def test_tell_errors_each_time(self, session):
        assert session.fetch({0: 0, 7: 0}) == {0: [], 7: "UNKNOWN_TOPIC_OR_PARTITION"}
        assert session.fetch({}, max_wait_ms=LONG_MS) == {7: "UNKNOWN_TOPIC_OR_PARTITION"}
        assert session.fetch({0: 99}) == {0: "OFFSET_OUT_OF_RANGE", 7: "UNKNOWN_TOPIC_OR_PARTITION"}
        assert session.fetch({0: 0}, forgotten=[7]) == {0: []}

    def test_read_those_first_that_had_no_room(self, client, session):
        for partition in (0, 1):
            produce(client, client_batch(0, 2), partition=partition)
        limits = {"max_bytes": 1, "partition_max_bytes": 1}
        found = [session.fetch(offsets, **limits) for offsets in ({0: 0, 1: 0}, {}, {})]
        assert [[key for key, rows in each.items() if rows] for each in found] == [[0], [0], [1]]

    def test_of_another_gateway_or_of_one_that_began_anew_are_refused(self, client, session):
        session.id, session.epoch = 17, 1
        assert session.fetch({}) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    def test_are_used_by_one_request_at_a_time(self, gateway, client, session):
        session.fetch({0: 0})
        session.send({}, max_wait_ms=LONG_MS)
        with gateway.client() as other:
            second = SessionClient(other)
            second.id, second.epoch = session.id, session.epoch + 1
            assert second.fetch({}) == {}
            produce(other, client_batch(0, 1))
        assert session.receive() is ErrorCode.INVALID_FETCH_SESSION_EPOCH

    def test_end_with_the_last_epoch(self, gateway, client, session):
        session.fetch({0: 0})
        before = gateway.call(len, gateway.server.gateway.fetch_sessions)
        session.epoch = -1
        assert session.fetch({}, max_wait_ms=LONG_MS) == {}
        assert (before, gateway.call(len, gateway.server.gateway.fetch_sessions)) == (1, 0)
        assert session.id == 0

    def test_are_not_given_to_clients_that_want_none(self, client):
        response = client.ask("Fetch", 11, **fetch_fields({0: 0}, session_epoch=-1))
        assert response.session_id == 0
        response = client.ask("Fetch", 6, **fetch_fields({0: 0}))
        assert response.session_id == 0


class TestRequests:
    def test_with_a_newer_leader_epoch_are_refused(self, client):
        assert fetch(client, 0, epoch=5).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert fetch(client, 0, epoch=0).error_code == ErrorCode.NONE

    def test_of_an_unknown_topic_are_refused(self, client):
        answer = fetch(client, 0, topic="trains")
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        answer = fetch(client, 0, version=13, topic="B" * 22)
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID

    def test_of_a_deleted_topic_are_refused(self, client, root):
        produce(client, client_batch())
        fetch(client, 0)
        Admin(root).delete_topics([TOPIC])
        Admin(root).create_topics([NewTopic(TOPIC)])
        with Producer(root) as producer:
            producer.send(TOPIC, b"new").result()
        # For metadata.max.age.ms the gateway may know the old topic: its records, or what is left.

        def is_new():
            answer = fetch(client, 0)
            found = rows_of(answer)
            assert answer.error_code or found in ([], offsets(0, 2), [(0, "new")])
            return found == [(0, "new")]

        wait_until(is_new)


def list_offsets_fields(timestamp, *, epoch=-1, isolation_level=0):
    request = message_class("ListOffsetsRequest")
    return {
        "replica_id": -1,
        "isolation_level": isolation_level,
        "topics": [
            request.ListOffsetsTopic(
                name=TOPIC,
                partitions=[
                    request.ListOffsetsPartition(
                        partition_index=0, timestamp=timestamp, current_leader_epoch=epoch
                    )
                ],
            )
        ],
    }
