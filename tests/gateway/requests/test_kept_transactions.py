"""Transactions of clients that keep their epoch: AddPartitionsToTxn to EndTxn before version 5."""

import pytest

from spark_log import Admin, NewTopic
from spark_log.gateway.errors import ErrorCode
from spark_log.gateway.protocol import message_class
from tests.gateway.data_client import client_batch, produce, produce_fields
from tests.gateway.support import running_gateway

_Partitions = message_class("AddPartitionsToTxnRequest")
_Offsets = message_class("TxnOffsetCommitRequest")

UNKNOWN = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@pytest.fixture
def root(gateway, tmp_path):
    Admin(tmp_path / "root").create_topics([NewTopic("flights", 2)])
    return tmp_path / "root"


def init(client, version=3, **fields):
    fields = {"transactional_id": "x", "transaction_timeout_ms": 60_000, **fields}
    found = client.ask("InitProducerId", version, **fields)
    assert found.error_code == 0
    return {"producer_id": found.producer_id, "producer_epoch": found.producer_epoch}


def add(client, mine, *partitions, version=3, topic="flights"):
    """Add partitions; return the error of each."""
    answer = client.ask(
        "AddPartitionsToTxn",
        version,
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=mine["producer_id"],
        v3_and_below_producer_epoch=mine["producer_epoch"],
        v3_and_below_topics=[
            _Partitions.AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))
        ],
    )
    (found,) = answer.results_by_topic_v3_and_below
    return [each.partition_error_code for each in found.results_by_partition]


def send(client, mine, sequence, *, partition=0, version=9):
    """Send two records from a sequence number on; return the error and the base offset."""
    batch = client_batch(sequence, is_transactional=True, base_sequence=sequence, **mine)
    found = produce(client, batch, partition=partition, version=version, transactional_id="x")
    return found.error_code, found.base_offset


def end(client, mine, committed=True, version=3):
    return client.ask(
        "EndTxn", version, transactional_id="x", committed=committed, **mine
    ).error_code


@pytest.mark.parametrize("version", range(4))
def test_each_version_adds_partitions(client, root, version):
    mine = init(client)
    assert add(client, mine, 0, 1, version=version) == [0, 0]
    assert add(client, mine, 0, version=version) == [0]
    unknown = [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert add(client, mine, 1, 9, version=version) == unknown


@pytest.mark.parametrize("version", range(5))
def test_sequences_go_on_and_repeats_are_answered_in_the_next_transaction(client, root, version):
    mine = init(client)
    add(client, mine, 0)
    assert send(client, mine, 0) == (0, 0)
    assert end(client, mine, version=version) == 0
    add(client, mine, 0)
    assert send(client, mine, 0) == (0, 0), "a late copy"
    assert send(client, mine, 4) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert send(client, mine, 2) == (0, 3)
    assert end(client, mine, version=version) == 0
    assert end(client, mine, version=version) == 0


@pytest.mark.parametrize(
    ("version", "code"),
    [(3, 48), (10, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)],
)
def test_a_batch_needs_its_partition_in_the_ongoing_transaction(client, root, version, code):
    mine = init(client)
    assert send(client, mine, 0, version=version) == (code, -1)
    add(client, mine, 1)
    assert send(client, mine, 0, version=version) == (code, -1)
    assert send(client, mine, 0, partition=1, version=version) == (0, 0)
    end(client, mine)
    assert send(client, mine, 2, partition=1, version=version) == (code, -1)


def test_a_gateway_whose_state_is_old_translates_again(root, gateway, client):
    with running_gateway(root) as other, other.client() as leader:
        mine = init(client)
        add(client, mine, 0)
        assert send(leader, mine, 0) == (0, 0)
        for number in range(1, 4):
            assert end(client, mine, committed=number % 2) == 0
            add(client, mine, 0)
            sent = [leader.send("Produce", 9, **_request(mine, 4 * number + at)) for at in (-2, 0)]
            found = [leader.receive() for _ in sent]
            assert [each for each, _ in found] == sent
            codes = [answer.responses[0].partition_responses[0].error_code for _, answer in found]
            assert codes == [0, 0], "the batches keep their order"


def _request(mine, sequence):
    batch = client_batch(sequence, is_transactional=True, base_sequence=sequence, **mine)
    return {**produce_fields(batch), "transactional_id": "x"}


def test_an_end_on_a_connection_that_has_not_shown_the_transaction_is_asked_for_again(
    gateway, client, root
):
    mine = init(client)
    add(client, mine, 0)
    with gateway.client() as late:
        assert end(late, mine) == UNKNOWN
        assert end(client, mine) == 0
        add(client, mine, 1)
        assert end(late, mine) == UNKNOWN, "it knows the transaction before"
        assert end(client, mine, committed=False) == 0
        add(client, mine, 1)
        assert [end(late, mine) for _ in range(2)] == [UNKNOWN, 0], "its client has moved here"


@pytest.mark.parametrize(
    ("name", "version", "code"),
    [
        ("librdkafka", "2.15.1", 0),
        ("confluent-kafka-python", "2.16.0-rdkafka-2.16.0", 0),
        ("librdkafka", "1.9.2", ErrorCode.INVALID_TXN_STATE),
        ("apache-kafka-java", "3.7.2", ErrorCode.INVALID_TXN_STATE),
    ],
)
def test_only_a_client_that_never_aborts_a_commit_may_abort_after_one(
    client, root, name, version, code
):
    client.ask("ApiVersions", 3, client_software_name=name, client_software_version=version)
    mine = init(client)
    add(client, mine, 0)
    assert end(client, mine) == 0
    assert end(client, mine, committed=False) == code


@pytest.mark.parametrize("had_transaction", [False, True])
def test_the_identity_before_is_fenced(client, root, had_transaction):
    mine = init(client)
    add(client, mine, 0)
    send(client, mine, 0)
    if had_transaction:
        end(client, mine)
        add(client, mine, 0)
    init(client)
    fenced, old = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH
    assert [add(client, mine, 0, version=version) for version in (1, 2)] == [[old], [fenced]]
    assert [end(client, mine, version=version) for version in (1, 2)] == [old, fenced]
    assert send(client, mine, 2) == (old, -1)
    assert commit_offsets(client, mine, 4) == old
    fields = {"transactional_id": "x", "group_id": "g", **mine}
    codes = [client.ask("AddOffsetsToTxn", version, **fields).error_code for version in (1, 2)]
    assert codes == [old, fenced]


def commit_offsets(client, mine, version, offset=5, **fields):
    topic = _Offsets.TxnOffsetCommitRequestTopic(
        name="flights",
        partitions=[
            _Offsets.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        ],
    )
    answer = client.ask(
        "TxnOffsetCommit",
        version,
        transactional_id="x",
        group_id="g",
        topics=[topic],
        **mine,
        **fields,
    )
    return answer.topics[0].partitions[0].error_code


@pytest.mark.parametrize("version", range(5))
def test_offsets_are_committed_after_their_group_was_added(client, root, version):
    mine = init(client)
    for offset in (5, 7):
        assert commit_offsets(client, mine, version) == ErrorCode.INVALID_TXN_STATE
        added = client.ask(
            "AddOffsetsToTxn", min(version, 4), transactional_id="x", group_id="g", **mine
        )
        assert added.error_code == 0
        assert commit_offsets(client, mine, version, offset) == 0
        assert end(client, mine) == 0
        (found,) = Admin(root).list_group_offsets("g").values()
        assert found.offset == offset
    empty = client.ask("AddOffsetsToTxn", 3, transactional_id="x", group_id="", **mine)
    assert empty.error_code == ErrorCode.INVALID_GROUP_ID


def test_a_client_before_kip_447_commits_beside_the_members_of_its_group(client, root):
    joined = client.ask(
        "ConsumerGroupHeartbeat",
        1,
        group_id="g",
        member_id="a",
        rebalance_timeout_ms=1000,
        subscribed_topic_names=["flights"],
        topic_partitions=[],
    )
    assert joined.error_code == 0
    mine = init(client)
    for offset in (5, 7):
        client.ask("AddOffsetsToTxn", 0, transactional_id="x", group_id="g", **mine)
        assert commit_offsets(client, mine, 2, offset) == 0
        end(client, mine)
        (found,) = Admin(root).list_group_offsets("g").values()
        assert found.offset == offset
    again = client.ask(
        "ConsumerGroupHeartbeat", 1, group_id="g", member_id="a", member_epoch=joined.member_epoch
    )
    assert (again.error_code, again.member_epoch) == (0, joined.member_epoch)


def test_a_late_request_begins_and_ends_no_transaction(gateway, client, root, monkeypatch):
    """Another gateway coordinates the transactional id: the client has begun nothing more there.

    What such a request began nobody would end: after its timeout the abort would fence the client.
    """
    mine, handlers = init(client), gateway.server.gateway

    def state():
        return Admin(root).describe_transactions(["x"])["x"].state

    with monkeypatch.context() as late:
        late.setattr(handlers, "has_coordinated", lambda *_: False)
        assert add(client, mine, 0) == [ErrorCode.NOT_COORDINATOR]
        added = client.ask("AddOffsetsToTxn", 3, transactional_id="x", group_id="g", **mine)
        assert added.error_code == ErrorCode.NOT_COORDINATOR
        assert state() == "Empty"
    assert add(client, mine, 0) == [ErrorCode.NONE]
    with monkeypatch.context() as late:
        late.setattr(handlers, "has_coordinated", lambda *_: False)
        for committed in (False, True):
            assert end(client, mine, committed) == ErrorCode.NOT_COORDINATOR
        assert state() == "Ongoing"
    assert end(client, mine) == ErrorCode.NONE
