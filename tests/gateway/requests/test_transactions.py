"""InitProducerId, EndTxn, and the requests that describe producers and transactions."""

from dataclasses import replace

import pytest

from spark_log import Admin, NewTopic, OffsetAndMetadata, Producer, TopicPartition
from spark_log.cluster import Cluster
from spark_log.errors import TransactionAbortableError
from spark_log.gateway.errors import ErrorCode
from spark_log.gateway.partitions.partition_logs import PartitionLogs
from spark_log.gateway.protocol import message_class
from spark_log.gateway.transactions import Transactions
from spark_log.record import ProducerIdAndEpoch
from spark_log.transaction import TopicIdPartition
from spark_log.transaction.producers import forget_producer
from tests.cli.support import begin_transaction, partition_log
from tests.gateway.data_client import (
    client_batch,
    fetch,
    next_offset_of,
    produce,
    rows_of,
)
from tests.gateway.support import running_gateway
from tests.transaction.support import markers_in

_Topic = message_class("DescribeProducersRequest").TopicRequest


@pytest.fixture
def root(gateway, tmp_path):
    Admin(tmp_path / "root").create_topics([NewTopic("t", 2)])
    return tmp_path / "root"


def begin(gateway, found, *partitions):
    """Register partitions, as produce requests do."""
    topic_id = gateway.cluster.image().topic("t").topic_id
    producer = ProducerIdAndEpoch(found.producer_id, found.producer_epoch)
    gateway.server.gateway.transactions.add_partitions(
        "x", producer, [TopicIdPartition(topic_id, number) for number in partitions]
    )


@pytest.mark.parametrize("version", range(7))
def test_each_idempotent_producer_gets_an_id_of_its_own(client, version):
    found = [client.ask("InitProducerId", version, transactional_id=None) for _ in range(3)]
    assert [(each.error_code, each.producer_epoch) for each in found] == [(0, 0)] * 3
    assert len({each.producer_id for each in found}) == 3


def init(client, version=6, **fields):
    fields.setdefault("transactional_id", "x")
    return client.ask("InitProducerId", version, transaction_timeout_ms=60_000, **fields)


def test_a_transactional_id_keeps_its_producer_and_a_new_process_fences_the_old_one(client):
    first, second = init(client), init(client)
    assert first.producer_id == second.producer_id
    assert (first.producer_epoch, second.producer_epoch) == (0, 1)
    mine = {"producer_id": first.producer_id, "producer_epoch": 0}
    assert init(client, **mine).error_code == ErrorCode.PRODUCER_FENCED
    assert init(client, 3, **mine).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    third = init(client, producer_id=second.producer_id, producer_epoch=1)
    assert (third.error_code, third.producer_epoch) == (0, 2)


def test_a_late_request_fences_no_producer_and_keeps_no_offsets(client, root, gateway):
    """Another gateway coordinated the group and the transactional id since it arrived."""
    found = init(client)
    assert commit_offsets(client, found, {0: 7}) == [0]
    handlers = gateway.server.gateway
    has_coordinated, handlers.has_coordinated = handlers.has_coordinated, lambda *_: False
    assert init(client).error_code == ErrorCode.NOT_COORDINATOR
    assert commit_offsets(client, found, {0: 5}) == [ErrorCode.NOT_COORDINATOR]
    handlers.has_coordinated = has_coordinated
    assert end(client, found, True).error_code == 0
    assert committed(root) == {0: (7, "at 7")}


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"producer_id": 5}, ErrorCode.INVALID_REQUEST),
        ({"producer_epoch": 5}, ErrorCode.INVALID_REQUEST),
        ({"enable2_pc": True}, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ],
)
def test_a_request_that_contradicts_itself_is_refused(client, fields, code):
    assert init(client, **fields).error_code == code


def test_a_timeout_that_the_cluster_does_not_allow_is_refused(client):
    for timeout_ms in (0, -5, 10**8):
        found = client.ask(
            "InitProducerId", 4, transactional_id="x", transaction_timeout_ms=timeout_ms
        )
        assert found.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT


def end(client, found, committed):
    return client.ask(
        "EndTxn",
        5,
        transactional_id="x",
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        committed=committed,
    )


@pytest.mark.parametrize("committed", [True, False])
def test_the_end_of_a_transaction_raises_the_epoch_and_may_be_repeated(
    gateway, client, root, committed
):
    found = init(client)
    begin(gateway, found, 0, 1)
    for _ in range(2):
        after = end(client, found, committed)
        assert (after.error_code, after.producer_id) == (0, found.producer_id)
        assert after.producer_epoch == found.producer_epoch + 1
    state = "CompleteCommit" if committed else "CompleteAbort"
    assert Admin(root).describe_transactions(["x"])["x"].state == state
    other = end(client, found, not committed)
    assert other.error_code in (ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE)


def produce_in(client, found, partition=0, topic="t"):
    """Append two records in the transaction of a producer; return their first offset."""
    batch = client_batch(
        0,
        2,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        base_sequence=0,
        is_transactional=True,
    )
    answer = produce(
        client, batch, partition=partition, version=12, topic=topic, transactional_id="x"
    )
    assert answer.error_code == 0
    return answer.base_offset


def committed_rows(client, offset, isolation_level=1):
    return rows_of(fetch(client, offset, topic="t", isolation_level=isolation_level))


def test_a_committed_transaction_of_this_gateway_is_read_from_memory(
    gateway, client, root, monkeypatch
):
    found = init(client)
    assert fetch(client, 0, topic="t", isolation_level=1).last_stable_offset == 0
    assert produce_in(client, found) == 0
    with monkeypatch.context() as opens_nothing:

        def refuse(*arguments):
            raise AssertionError("the log is opened, or read")

        opens_nothing.setattr(gateway.cluster, "partition_log", refuse)
        opens_nothing.setattr(PartitionLogs, "read", refuse)
        waiting = fetch(client, 0, topic="t", isolation_level=1)
        assert (waiting.last_stable_offset, waiting.high_watermark) == (0, 2)
        assert len(committed_rows(client, 0, isolation_level=0)) == 2
        assert end(client, found, True).error_code == 0
        answer = fetch(client, 0, topic="t", isolation_level=1)
        assert (answer.last_stable_offset, answer.high_watermark) == (3, 3)
        assert [offset for offset, _ in rows_of(answer)] == [0, 1]
        assert next_offset_of(answer) == 3
    log = partition_log(root, "t")
    assert len(markers_in(log)) == 1
    assert Admin(root).describe_transactions(["x"])["x"].state == "CompleteCommit"


def test_an_aborted_transaction_is_not_read_by_committed_readers(client, root):
    found = init(client)
    produce_in(client, found)
    found = end(client, found, False)
    assert produce_in(client, found) == 3
    found = end(client, found, True)
    assert [offset for offset, _ in committed_rows(client, 0)] == [3, 4]
    assert [offset for offset, _ in committed_rows(client, 0, isolation_level=0)][:2] == [0, 1]


def test_a_transaction_that_another_process_ends_is_read_from_the_log(gateway, client, root):
    """This gateway does not know its outcome."""
    found = init(client)
    produce_in(client, found)
    other = Transactions(Cluster(root))
    producer = ProducerIdAndEpoch(found.producer_id, found.producer_epoch)
    following = other.end("x", producer, is_committed=False)
    assert produce_in(client, following) == 3
    assert end(client, following, True).error_code == 0
    assert [offset for offset, _ in committed_rows(client, 0)] == [3, 4]


def test_nothing_can_be_committed_and_nothing_is_aborted_without_harm(client):
    found = init(client)
    assert end(client, found, True).error_code == ErrorCode.INVALID_TXN_STATE
    assert end(client, found, False).error_code == 0


def test_a_late_end_of_nothing_does_not_abort_the_next_transaction(
    gateway, client, root, monkeypatch
):
    """The abort of nothing leaves the epoch as it is: a copy of it names the next transaction."""
    found = init(client)
    assert end(client, found, False).error_code == 0
    begin(gateway, found, 0)
    with monkeypatch.context() as late:
        late.setattr(gateway.server.gateway, "has_coordinated", lambda *_: False)
        for committed in (False, True):
            assert end(client, found, committed).error_code == ErrorCode.NOT_COORDINATOR
    assert end(client, found, True).error_code == 0
    assert Admin(root).describe_transactions(["x"])["x"].state == "CompleteCommit"


def test_a_fenced_producer_ends_nothing(gateway, client, root):
    found = init(client)
    begin(gateway, found, 0)
    init(client)
    assert end(client, found, True).error_code in (
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.TRANSACTION_ABORTABLE,
    )


def test_transactions_are_listed_and_described(gateway, client, root):
    begin_transaction(root, "mine", TopicPartition("t", 0))
    listed = client.ask("ListTransactions", 2)
    assert [
        (each.transactional_id, each.transaction_state) for each in listed.transaction_states
    ] == [("mine", "Ongoing")]
    filters = {"state_filters": ["Empty", "Nonsense"]}
    answer = client.ask("ListTransactions", 2, **filters)
    assert (answer.unknown_state_filters, answer.transaction_states) == (["Nonsense"], [])
    answer = client.ask("ListTransactions", 2, transactional_id_pattern="(")
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    known, unknown = client.ask(
        "DescribeTransactions", 0, transactional_ids=["mine", "none"]
    ).transaction_states
    assert (known.transaction_state, known.error_code) == ("Ongoing", 0)
    assert [(each.topic, each.partitions) for each in known.topics] == [("t", [0])]
    assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_producers_of_partitions_are_described(client, root):
    with Producer(root, enable_idempotence=True) as producer:
        producer.send("t", b"a", partition=0).result(30)
    (topic,) = client.ask(
        "DescribeProducers", 0, topics=[_Topic(name="t", partition_indexes=[0, 1, 9])]
    ).topics
    first, second, unknown = topic.partitions
    assert [each.last_sequence for each in first.active_producers] == [0]
    assert [each.coordinator_epoch for each in first.active_producers] == [-1]
    assert first.active_producers[0].current_txn_start_offset == -1
    assert (second.error_code, second.active_producers) == (0, [])
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_producer_has_the_coordinator_epoch_of_its_marker(client, root):
    def described():
        wanted = [_Topic(name="t", partition_indexes=[0])]
        (topic,) = client.ask("DescribeProducers", 0, topics=wanted).topics
        (found,) = topic.partitions[0].active_producers
        return found.coordinator_epoch, found.current_txn_start_offset

    with Producer(root, transactional_id="x") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"a", partition=0).result(30)
        assert described() == (-1, 0)
        producer.commit_transaction()
        assert described() == (0, -1)


_Markers = message_class("WriteTxnMarkersRequest")


def write_markers(client, producer, *partitions, topic="t", version=2, **fields):
    """Return the error of each partition."""
    topics = [_Markers.WritableTxnMarkerTopic(name=topic, partition_indexes=list(partitions))]
    marker = _Markers.WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        topics=topics,
        **fields,
    )
    (found,) = client.ask("WriteTxnMarkers", version, markers=[marker]).markers
    assert found.producer_id == producer.producer_id
    (answer,) = found.topics
    assert [each.partition_index for each in answer.partitions] == list(partitions)
    return [each.error_code for each in answer.partitions]


def outcomes(root, number):
    return [each.is_committed for each in markers_in(partition_log(root, "t", number))]


@pytest.mark.parametrize("version", [1, 2])
def test_an_administrator_aborts_a_transaction_in_all_of_its_partitions(client, root, version):
    partitions = [TopicPartition("t", number) for number in range(2)]
    coordinator, producer = begin_transaction(root, "x", *partitions)
    assert write_markers(client, producer, 0, version=version) == [0]
    assert outcomes(root, 0) == outcomes(root, 1) == [False]
    with pytest.raises(TransactionAbortableError):
        coordinator.commit(producer)


def test_an_administrator_ends_a_transaction_that_hangs(client, root):
    _, producer = begin_transaction(root, "x", TopicPartition("t", 0))
    forget_producer(Cluster(root).store, producer.producer_id)
    assert write_markers(client, producer, 0) == [0]
    assert outcomes(root, 0) == [False]


def test_markers_that_the_transactions_state_contradicts_are_refused(client, root):
    coordinator, producer = begin_transaction(root, "x", TopicPartition("t", 0))
    assert write_markers(client, producer, 0, transaction_result=True) == [
        ErrorCode.INVALID_REQUEST
    ]
    other = replace(producer, producer_epoch=producer.producer_epoch + 1)
    assert write_markers(client, other, 0) == [ErrorCode.INVALID_TXN_STATE]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert write_markers(client, producer, 1, 7) == [ErrorCode.INVALID_TXN_STATE, unknown]
    assert write_markers(client, producer, 0, topic="u") == [unknown]
    assert outcomes(root, 0) == []
    coordinator.commit(producer)
    assert write_markers(client, producer, 0) == [ErrorCode.INVALID_TXN_STATE]
    assert outcomes(root, 0) == [True]


# --- offsets -------------------------------------------------------------------------------------

_Offsets = message_class("TxnOffsetCommitRequest")


def commit_offsets(client, found, offsets, *, group="g", topic="t", **fields):
    """Send offsets of partitions; return the error of each."""
    partitions = [
        _Offsets.TxnOffsetCommitRequestPartition(
            partition_index=number, committed_offset=offset, committed_metadata=f"at {offset}"
        )
        for number, offset in offsets.items()
    ]
    answer = client.ask(
        "TxnOffsetCommit",
        5,
        transactional_id="x",
        group_id=group,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        topics=[_Offsets.TxnOffsetCommitRequestTopic(name=topic, partitions=partitions)],
        **fields,
    )
    (topic_answer,) = answer.topics
    return [each.error_code for each in topic_answer.partitions]


def committed(root, group="g"):
    found = Admin(root).list_group_offsets(group)
    return {tp.partition: (each.offset, each.metadata) for tp, each in found.items()}


def test_offsets_of_other_partitions_are_stable_while_a_transaction_is_open(client, root):
    """A member of a group that copies by transactions does not wait for those of others."""
    Admin(root).alter_group_offsets("g", {TopicPartition("t", 0): OffsetAndMetadata(3, "")})
    found = init(client)
    assert commit_offsets(client, found, {1: 7}) == [0]

    def fetch(*numbers):
        fetched = message_class("OffsetFetchRequest")
        topics = [
            fetched.OffsetFetchRequestTopics(name="t", partition_indexes=list(numbers)),
        ]
        group = fetched.OffsetFetchRequestGroup(group_id="g", topics=topics)
        (answer,) = client.ask("OffsetFetch", 8, groups=[group], require_stable=True).groups
        (topic,) = answer.topics
        return [(each.error_code, each.committed_offset) for each in topic.partitions]

    unstable = ErrorCode.UNSTABLE_OFFSET_COMMIT, -1
    assert fetch(0) == [(0, 3)]
    assert fetch(1) == [unstable]
    assert fetch(0, 1) == [unstable] * 2
    assert end(client, found, True).error_code == 0
    assert fetch(0, 1) == [(0, 3), (0, 7)]


@pytest.mark.parametrize("is_committed", [True, False])
def test_offsets_are_committed_with_the_transaction_or_not_at_all(client, root, is_committed):
    found = init(client)
    assert commit_offsets(client, found, {0: 5, 1: 7}) == [0, 0]
    assert commit_offsets(client, found, {0: 6}) == [0]  # a later one takes its place
    assert commit_offsets(client, found, {0: 6}) == [0]
    assert committed(root) == {}
    for _ in range(2):
        assert end(client, found, is_committed).error_code == 0
    assert committed(root) == ({0: (6, "at 6"), 1: (7, "at 7")} if is_committed else {})


def test_the_gateway_that_ends_a_transaction_need_not_be_the_one_that_got_its_offsets(
    gateway, client, root, two_coordinators
):
    found = init(client)
    assert commit_offsets(client, found, {0: 5}) == [0]
    with running_gateway(root) as other, other.client() as asking:
        assert end(asking, found, True).error_code == 0
    assert committed(root) == {0: (5, "at 5")}


def test_a_transaction_of_records_and_offsets_of_two_groups(gateway, client, root):
    found = init(client)
    begin(gateway, found, 0)
    assert commit_offsets(client, found, {0: 5}) == [0]
    assert commit_offsets(client, found, {0: 3}, group="h") == [0]
    after = end(client, found, True)
    assert (committed(root), committed(root, "h")) == ({0: (5, "at 5")}, {0: (3, "at 3")})
    assert commit_offsets(client, after, {0: 9}) == [0]
    end(client, after, False)
    assert committed(root) == {0: (5, "at 5")}


def test_a_member_of_the_consumer_protocol_commits_with_its_epoch(client, root):
    joined = client.ask(
        "ConsumerGroupHeartbeat",
        1,
        group_id="g",
        member_id="a",
        rebalance_timeout_ms=1000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    epoch = joined.member_epoch
    found = init(client)
    refused = commit_offsets(client, found, {0: 5}, generation_id=epoch + 1, member_id="a")
    assert refused == [ErrorCode.ILLEGAL_GENERATION]
    assert commit_offsets(client, found, {0: 5}, generation_id=epoch, member_id="a") == [0]
    end(client, found, True)
    assert committed(root) == {0: (5, "at 5")}


def test_offsets_that_are_not_possible_are_refused(client, root):
    found = init(client)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert commit_offsets(client, found, {0: 5, 9: 5}) == [0, unknown]
    assert commit_offsets(client, found, {0: -5}) == [ErrorCode.OFFSET_OUT_OF_RANGE]
    assert commit_offsets(client, found, {0: 5}, topic="none") == [unknown]
    assert commit_offsets(client, found, {0: 5}, group="") == [ErrorCode.INVALID_GROUP_ID]
    refused = commit_offsets(client, found, {0: 5}, generation_id=3, member_id="nobody")
    assert refused == [ErrorCode.ILLEGAL_GENERATION]
    init(client)
    assert commit_offsets(client, found, {0: 5}) == [ErrorCode.INVALID_PRODUCER_EPOCH]
