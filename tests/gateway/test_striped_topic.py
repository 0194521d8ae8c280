"""A topic with stripes, through a gateway: puts and requests that its partitions share."""

import threading
from collections import Counter

import pytest

from spark_log import Admin, ConfigResource, NewTopic
from spark_log.errors import StorageUnavailableError
from spark_log.gateway.errors import ErrorCode
from spark_log.gateway.partitions import GatewayPartition, TailWatch
from spark_log.gateway.partitions.append_queue import AppendQueue
from spark_log.gateway.partitions.log_cursor import LogCursor
from spark_log.gateway.protocol import message_class
from spark_log.log.directory import PartitionDirectory
from spark_log.log.stripe import StripeDirectory, StripeReader
from spark_log.storage.local import LocalStore
from tests.gateway.data_client import (
    TOPIC,
    Produce,
    client_batch,
    fetch_fields,
    produce,
    rows_of,
)
from tests.gateway.support import TIMEOUT_S, running_gateway
from tests.waiting import wait_until

PARTITIONS = 20


@pytest.fixture
def root(tmp_path):
    root = str(tmp_path / "root")
    striped = NewTopic(TOPIC, num_partitions=PARTITIONS, topic_configs={"stripes": "1"})
    two = NewTopic("two", num_partitions=PARTITIONS, topic_configs={"stripes": "2"})
    Admin(root).create_topics([striped, two])
    return root


@pytest.fixture
def gateway(root):
    with running_gateway(root) as gateway:
        yield gateway


@pytest.fixture
def client(gateway):
    with gateway.client() as client:
        yield client


class Puts:
    """The files of stripes and partitions that are put, by directory."""

    def __init__(self, monkeypatch):
        self.counts: Counter[str] = Counter()
        self.may_put = threading.Event()
        self.may_put.set()
        self.begun = threading.Event()
        put = LocalStore.put_if_absent

        def counted(store, path, *arguments, **options):
            if path.endswith((".stripe", ".arrow")) and "/" in path:
                self.counts[path.rpartition("/")[0]] += 1
                self.begun.set()
                assert self.may_put.wait(TIMEOUT_S)
            return put(store, path, *arguments, **options)

        monkeypatch.setattr(LocalStore, "put_if_absent", counted)

    def of_topic(self, topic):
        return sorted(count for path, count in self.counts.items() if f"/{topic}." in f"/{path}")


@pytest.fixture
def puts(monkeypatch):
    return Puts(monkeypatch)


def produce_fields(batches, topic=TOPIC, **fields):
    """Return a request with a batch for each partition."""
    partitions = [
        Produce.PartitionProduceData(index=number, records=data) for number, data in batches.items()
    ]
    data = Produce.TopicProduceData(name=topic, partition_data=partitions)
    return {"acks": -1, "timeout_ms": 30_000, "topic_data": [data], **fields}


def produce_all(client, batches, topic=TOPIC):
    """Return the answer of each partition."""
    answer = client.ask("Produce", 9, **produce_fields(batches, topic))
    return {each.index: each for each in answer.responses[0].partition_responses}


def fetch_all(client, offsets, topic=TOPIC, **options):
    answer = client.ask("Fetch", 11, **fetch_fields(offsets, topic=topic, **options))
    found = {}
    for each in answer.responses[0].partitions if answer.responses else ():
        assert each.error_code == ErrorCode.NONE
        found[each.partition_index] = each
    return found


class TestAProduceRequest:
    def test_is_one_put_for_all_partitions_of_a_stripe(self, client, puts):
        answers = produce_all(client, {number: client_batch() for number in range(PARTITIONS)})
        assert {each.error_code for each in answers.values()} == {ErrorCode.NONE}
        assert {each.base_offset for each in answers.values()} == {0}
        assert puts.of_topic(TOPIC) == [1]

    def test_is_one_put_for_each_of_two_stripes(self, client, puts):
        batches = {number: client_batch() for number in range(PARTITIONS)}
        produce_all(client, batches, "two")
        assert puts.of_topic("two") == [1, 1]

    def test_shares_a_put_with_all_that_wait_while_an_object_is_put(
        self, gateway, client, puts, monkeypatch
    ):
        queued = count_calls(monkeypatch, AppendQueue, "put")
        puts.may_put.clear()
        client.send("Produce", 9, **produce_fields({0: client_batch()}))
        assert puts.begun.wait(TIMEOUT_S)
        others = [gateway.client() for _ in range(5)]
        for number, other in enumerate(others):
            batches = {each: client_batch(number) for each in range(4)}
            other.send("Produce", 9, **produce_fields(batches))
        wait_until(lambda: len(queued) == 21)
        puts.may_put.set()
        for each in (client, *others):
            _, answer = each.receive()
            for partition in answer.responses[0].partition_responses:
                assert partition.error_code == ErrorCode.NONE
        assert puts.of_topic(TOPIC) == [2]
        for other in others:
            other.socket.close()

    def test_with_a_batch_that_is_refused_appends_the_others(self, client, puts):
        known = {"producer_id": 7, "producer_epoch": 0}
        produce(client, client_batch(base_sequence=0, **known), partition=3)
        puts.counts.clear()
        leaves_gap = client_batch(base_sequence=5, **known)
        damaged = bytearray(client_batch())
        damaged[-1] ^= 255
        batches = {number: client_batch() for number in range(PARTITIONS)}
        answers = produce_all(client, batches | {3: leaves_gap, 5: bytes(damaged)})
        codes = {number: each.error_code for number, each in answers.items() if each.error_code}
        assert codes == {
            3: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            5: ErrorCode.CORRUPT_MESSAGE,
        }
        assert sorted(puts.counts.values()) == [1]
        assert [len(rows_of(each)) for each in fetch_all(client, {0: 0, 4: 0}).values()] == [2, 2]

    def test_that_is_repeated_has_the_offsets_of_the_first(self, client, puts):
        batches = {
            number: client_batch(producer_id=7, producer_epoch=0, base_sequence=0)
            for number in range(PARTITIONS)
        }
        first = produce_all(client, batches)
        produce_all(client, {number: client_batch() for number in range(PARTITIONS)})
        again = produce_all(client, batches)
        assert {number: each.base_offset for number, each in again.items()} == {
            number: each.base_offset for number, each in first.items()
        }
        assert puts.of_topic(TOPIC) == [2]
        assert {each.high_watermark for each in fetch_all(client, {0: 0, 9: 0}).values()} == {4}

    def test_has_the_error_of_the_stripe_in_each_partition(self, client, monkeypatch):
        def fails(*_, **__):
            raise StorageUnavailableError("the storage is down")

        monkeypatch.setattr(LocalStore, "put_if_absent", fails)
        answers = produce_all(client, {number: client_batch() for number in range(3)})
        assert all(each.error_code for each in answers.values())
        monkeypatch.undo()
        answers = produce_all(client, {number: client_batch() for number in range(3)})
        assert {each.base_offset for each in answers.values()} == {0}


def count_calls(monkeypatch, owner, method):
    """Return a list that gets an entry for each call of a method."""
    calls: list[str] = []
    call = getattr(owner, method)

    def counted(*arguments, **options):
        path = getattr(arguments[0], "path", TOPIC)
        if TOPIC in path or "two." in path:  # not of the metadata
            calls.append(method)
        return call(*arguments, **options)

    monkeypatch.setattr(owner, method, counted)
    return calls


class Requests:
    """The requests that look for records, the probes of the gateway, and its reads of logs."""

    def __init__(self, monkeypatch):
        self._calls = {
            name: count_calls(monkeypatch, owner, method)
            for name, owner, method in (
                ("objects", StripeDirectory, "open"),
                ("stripes", StripeDirectory, "list"),
                ("partitions", PartitionDirectory, "list_files"),
                ("segments", PartitionDirectory, "open"),
                ("probes", TailWatch, "_probe"),
                ("reads", LogCursor, "read"),
            )
        }

    @property
    def counts(self):
        return Counter({name: len(calls) for name, calls in self._calls.items() if calls})

    def clear(self):
        for calls in self._calls.values():
            calls.clear()


class TestAFetch:
    def test_that_waits_sends_one_request_for_each_stripe_and_probe(self, client, monkeypatch):
        offsets = dict.fromkeys(range(PARTITIONS), 2)
        for topic in (TOPIC, "two"):
            produce_all(client, {number: client_batch() for number in offsets}, topic)
        fetch_all(client, offsets, TOPIC, max_wait_ms=0)
        fetch_all(client, offsets, "two", max_wait_ms=0)
        requests = Requests(monkeypatch)
        fetch_all(client, offsets, max_wait_ms=500)
        assert requests.counts["probes"] >= 2
        assert requests.counts["probes"] - requests.counts["objects"] in (0, 1)  # one under way
        assert set(requests.counts) == {"probes", "objects"}
        requests.clear()
        fetch_all(client, offsets, "two", max_wait_ms=500)
        assert requests.counts["probes"] <= requests.counts["objects"]
        assert requests.counts["objects"] <= 3 * requests.counts["probes"]
        assert set(requests.counts) == {"probes", "objects"}

    def test_that_does_not_wait_sends_one_request_for_each_stripe(self, client, monkeypatch):
        offsets = dict.fromkeys(range(PARTITIONS), 2)
        produce_all(client, {number: client_batch() for number in offsets})
        fetch_all(client, offsets)
        requests = Requests(monkeypatch)
        fetch_all(client, offsets)
        assert requests.counts == {"objects": 1}

    def test_finds_what_another_gateway_appends(self, root, client, monkeypatch):
        """It reads the one object, and lists nothing."""
        batches = {number: client_batch() for number in range(PARTITIONS)}
        produce_all(client, batches)
        offsets = dict.fromkeys(batches, 2)
        fetch_all(client, offsets)
        with running_gateway(root) as other, other.client() as sending:
            requests = Requests(monkeypatch)
            client.send("Fetch", 11, **fetch_fields(offsets, max_wait_ms=30_000))
            wait_until(lambda: requests.counts["probes"])
            produce_all(sending, batches)
            _, answer = client.receive()
            assert answer.responses
            requests.clear()
            found = fetch_all(client, offsets)
            assert [len(rows_of(each)) for each in found.values()] == [2] * PARTITIONS
            assert set(requests.counts) <= {"probes", "objects", "reads"}
            # One probe may have been under way, and the fetch itself asks once.
            assert requests.counts["objects"] <= requests.counts["probes"] + 2

    @pytest.mark.parametrize("isolation_level", [0, 1])
    def test_gets_what_this_gateway_appends_from_memory(self, client, monkeypatch, isolation_level):
        batches = {number: client_batch() for number in range(PARTITIONS)}
        produce_all(client, batches)
        offsets = dict.fromkeys(batches, 0)
        fetch_all(client, offsets)
        requests = Requests(monkeypatch)
        produce_all(client, batches)
        found = fetch_all(
            client, offsets, isolation_level=isolation_level, max_wait_ms=500, min_bytes=1
        )
        assert [len(rows_of(each)) for each in found.values()] == [4] * PARTITIONS
        assert set(requests.counts) <= {"objects", "probes"}

    def test_reads_what_is_no_longer_in_memory(self, root):
        config = {"tail.cache.bytes": 0}
        with running_gateway(root, **config) as gateway, gateway.client() as client:
            for number in range(3):
                produce(client, client_batch(2 * number), partition=7)
                (found,) = fetch_all(client, {7: 0}, max_wait_ms=30_000).values()
                assert len(rows_of(found)) == 2 * number + 2

    def test_has_the_error_of_the_stripe_in_each_partition(self, client, monkeypatch):
        offsets = dict.fromkeys(range(PARTITIONS), 2)
        produce_all(client, {number: client_batch() for number in offsets})
        fetch_all(client, offsets)

        def fails(_):
            raise StorageUnavailableError("the storage is down")

        monkeypatch.setattr(StripeReader, "poll", fails)
        answer = client.ask("Fetch", 11, **fetch_fields(offsets))
        codes = [each.error_code for each in answer.responses[0].partitions]
        assert codes == [ErrorCode.KAFKA_STORAGE_ERROR] * PARTITIONS
        monkeypatch.undo()
        assert len(fetch_all(client, offsets)) == PARTITIONS


class TestATransaction:
    def begin(self, client, transactional_id="x", numbers=range(PARTITIONS), sequence=0, **known):
        """Append a batch to each partition, and return the producer."""
        if not known:
            answer = client.ask(
                "InitProducerId",
                4,
                transactional_id=transactional_id,
                transaction_timeout_ms=60_000,
                producer_id=-1,
                producer_epoch=-1,
            )
            known = {"producer_id": answer.producer_id, "producer_epoch": answer.producer_epoch}
        batch = client_batch(is_transactional=True, base_sequence=sequence, **known)
        fields = produce_fields(dict.fromkeys(numbers, batch), transactional_id=transactional_id)
        answer = client.ask("Produce", 12, **fields)
        codes = {each.error_code for each in answer.responses[0].partition_responses}
        assert codes == {ErrorCode.NONE}
        return known

    def end(self, client, known, *, commits, transactional_id="x"):
        answer = client.ask(
            "EndTxn", 5, transactional_id=transactional_id, committed=commits, **known
        )
        assert answer.error_code == ErrorCode.NONE
        return {"producer_id": answer.producer_id, "producer_epoch": answer.producer_epoch}

    @pytest.mark.parametrize("commits", [True, False])
    def test_has_one_put_for_its_markers_and_is_read_from_memory(
        self, client, puts, monkeypatch, commits
    ):
        offsets = dict.fromkeys(range(PARTITIONS), 0)
        known = self.begin(client)
        fetch_all(client, offsets)
        assert puts.of_topic(TOPIC) == [1]
        for each in fetch_all(client, offsets, isolation_level=1).values():
            assert (each.last_stable_offset, rows_of(each)) == (0, [])
        known = self.end(client, known, commits=commits)
        assert puts.of_topic(TOPIC) == [2]
        requests = Requests(monkeypatch)
        found = fetch_all(client, offsets, isolation_level=1, max_wait_ms=1_000)
        values = [len(rows_of(each)) for each in found.values()]
        assert values == ([2] if commits else [0]) * PARTITIONS
        assert {each.last_stable_offset for each in found.values()} == {3}
        if commits:
            assert set(requests.counts) <= {"objects", "probes"}
        self.begin(client, **known)

    def test_of_partitions_that_this_gateway_has_not_opened_shares_the_put(
        self, root, client, puts, two_coordinators
    ):
        known = self.begin(client, numbers=range(3))
        with running_gateway(root) as other, other.client() as ending:
            produce(ending, client_batch(), partition=1)
            before = puts.of_topic(TOPIC)
            self.end(ending, known, commits=True)
            assert puts.of_topic(TOPIC) == [before[0] + 1]
        for each in fetch_all(client, {0: 0, 1: 0, 2: 0}, isolation_level=1).values():
            assert len(rows_of(each)) >= 2


def test_a_change_of_settings_is_used_by_the_next_append(root, gateway, client):
    batches = {number: client_batch() for number in range(PARTITIONS)}
    produce_all(client, batches)
    Admin(root).alter_configs([ConfigResource("topic", TOPIC, {"max.message.bytes": 40})])
    gateway.run(gateway.server.gateway.partitions.refresh())
    answers = produce_all(client, batches)
    assert {each.error_code for each in answers.values()} == {ErrorCode.MESSAGE_TOO_LARGE}
    found = fetch_all(client, dict.fromkeys(batches, 0))
    assert [len(rows_of(each)) for each in found.values()] == [2] * PARTITIONS


def test_a_topic_that_is_created_again_begins_at_offset_0(root, gateway, client):
    batches = {number: client_batch() for number in range(PARTITIONS)}
    produce_all(client, batches)
    admin = Admin(root)
    admin.delete_topics([TOPIC])
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, topic_configs={"stripes": "1"})])
    gateway.run(gateway.server.gateway.partitions.refresh())
    assert {each.base_offset for each in produce_all(client, batches).values()} == {0}
    found = fetch_all(client, dict.fromkeys(batches, 0))
    assert [len(rows_of(each)) for each in found.values()] == [2] * PARTITIONS


def offsets_request(numbers):
    request = message_class("ListOffsetsRequest")
    partitions = [
        request.ListOffsetsPartition(partition_index=number, timestamp=-1) for number in numbers
    ]
    return [request.ListOffsetsTopic(name=TOPIC, partitions=partitions)]


@pytest.mark.parametrize("isolation_level", [0, 1])
def test_the_ends_of_all_partitions_are_one_request(client, monkeypatch, isolation_level):
    produce_all(client, {number: client_batch() for number in range(PARTITIONS)})
    fields = {"isolation_level": isolation_level, "topics": offsets_request(range(PARTITIONS))}
    client.ask("ListOffsets", 5, replica_id=-1, **fields)
    requests = Requests(monkeypatch)
    answer = client.ask("ListOffsets", 5, replica_id=-1, **fields)
    assert {each.offset for each in answer.topics[0].partitions} == {2}
    assert requests.counts == {"objects": 1}


def test_ends_that_are_asked_for_one_by_one_share_requests(client, monkeypatch):
    """As librdkafka asks: by a request for each partition, and it waits for none of them."""
    produce_all(client, {number: client_batch() for number in range(PARTITIONS)})
    requests = Requests(monkeypatch)
    polls, goes_on = [], threading.Event()
    poll = StripeReader.poll

    def slow(reader):
        polls.append(reader)
        assert goes_on.wait(TIMEOUT_S)
        poll(reader)

    monkeypatch.setattr(StripeReader, "poll", slow)
    handled = count_calls(monkeypatch, GatewayPartition, "refresh_end")
    for number in range(PARTITIONS):
        client.send("ListOffsets", 5, replica_id=-1, topics=offsets_request([number]))
    wait_until(lambda: len(handled) == PARTITIONS)
    goes_on.set()
    for _ in range(PARTITIONS):
        _, answer = client.receive()
        assert answer.topics[0].partitions[0].offset == 2
    assert len(polls) <= 2
    assert requests.counts["partitions"] == 0
