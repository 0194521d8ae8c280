"""`Admin` on transactions: what is open, who has it, and how it is ended."""

from datetime import UTC, datetime

import pytest

from spark_log import AbortTransactionSpec, Admin, NewTopic, TopicPartition
from spark_log.admin.tables import (
    PRODUCERS_SCHEMA,
    TRANSACTIONS_SCHEMA,
    producers_table,
    transactions_table,
)
from spark_log.cluster import Cluster
from spark_log.errors import (
    InvalidConfigurationError,
    InvalidTxnStateError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionalIdNotFoundError,
)
from spark_log.record import ProducerAppend, ProducerIdAndEpoch
from spark_log.transaction import TransactionStateLog, decisions
from spark_log.transaction.producers import forget_producer
from tests.cli.support import begin_transaction, partition_log
from tests.record.samples import numbered
from tests.transaction.support import markers_in

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)


@pytest.fixture
def admin(root):
    admin = Admin(root)
    admin.create_topics([NewTopic("flights", 2)])
    return admin


def spec(producer, partition=P0):
    return AbortTransactionSpec(partition, producer.producer_id, producer.producer_epoch)


def outcomes(root, number):
    return [each.is_committed for each in markers_in(partition_log(root, "flights", number))]


def late_record(root, producer):
    """A record of a transaction that was complete before, put by a process that had slept."""
    append = ProducerAppend(producer.producer_id, producer.producer_epoch, 0, is_transactional=True)
    return partition_log(root, "flights", 1).append(numbered(0, 1), producer=append)


class TestLists:
    def test_ids_are_listed_with_the_state_of_their_newest_transaction(self, admin, root):
        assert admin.list_transactions() == []
        coordinator, producer = begin_transaction(root, "b", P0)
        begin_transaction(root, "a", P1)
        coordinator.commit(producer)
        listed = admin.list_transactions()
        assert [(each.transactional_id, each.state) for each in listed] == [
            ("a", "Ongoing"),
            ("b", "CompleteCommit"),
        ]
        assert listed[1].producer_id == producer.producer_id

    def test_filters(self, admin, root):
        coordinator, producer = begin_transaction(root, "orders-1", P0)
        begin_transaction(root, "orders-2", P1)
        coordinator.commit(producer)

        def ids(**filters):
            return [each.transactional_id for each in admin.list_transactions(**filters)]

        assert ids(state_filters=["ongoing"]) == ["orders-2"]
        assert ids(state_filters=["Ongoing", "CompleteCommit"]) == ["orders-1", "orders-2"]
        assert ids(producer_id_filters=[producer.producer_id]) == ["orders-1"]
        assert ids(duration_filter_ms=-1) == ["orders-1", "orders-2"], "ended ones, too"
        assert ids(duration_filter_ms=-1, state_filters=["Ongoing"]) == ["orders-2"]
        assert ids(duration_filter_ms=3_600_000) == []
        assert ids(transactional_id_pattern="orders-[13]") == ["orders-1"]
        assert ids(transactional_id_pattern="orders") == []
        with pytest.raises(InvalidConfigurationError, match="'Sleeping' is no state"):
            ids(state_filters=["Sleeping"])
        with pytest.raises(InvalidConfigurationError, match="no regular expression"):
            ids(transactional_id_pattern="(")


class TestDescribes:
    def test_a_transaction_has_its_partitions_and_its_begin(self, admin, root):
        before = datetime.now(UTC)
        _, producer = begin_transaction(root, "orders", P0, P1)
        described = admin.describe_transactions(["orders"])["orders"]
        assert (described.producer_id, described.producer_epoch) == (producer.producer_id, 0)
        assert (described.state, described.transaction_timeout_ms) == ("Ongoing", 60_000)
        assert described.topic_partitions == {P0, P1}
        assert described.participants == (producer.producer_id,)
        assert described.transaction_start_time_ms >= int(before.timestamp() * 1000)

    def test_of_a_complete_one_nothing_is_open_and_its_begin_is_known(self, admin, root):
        coordinator, producer = begin_transaction(root, "orders", P0)
        began_ms = admin.describe_transactions(["orders"])["orders"].transaction_start_time_ms
        coordinator.abort(producer)
        described = admin.describe_transactions(["orders"])["orders"]
        assert (described.state, described.topic_partitions) == ("CompleteAbort", frozenset())
        assert described.transaction_start_time_ms == began_ms
        coordinator.initialize(60_000)
        assert admin.describe_transactions(["orders"])["orders"].transaction_start_time_ms == -1
        assert admin.list_transactions(duration_filter_ms=-1) == []

    def test_partitions_of_a_deleted_topic_are_left_out(self, admin, root):
        begin_transaction(root, "orders", P0)
        admin.delete_topics(["flights"])
        assert admin.describe_transactions(["orders"])["orders"].topic_partitions == frozenset()

    def test_an_unknown_id_is_told(self, admin):
        with pytest.raises(TransactionalIdNotFoundError, match="'nobody'"):
            admin.describe_transactions(["nobody"])

    def test_producers_have_what_they_have_open(self, admin, root):
        coordinator, producer = begin_transaction(root, "orders", P0)
        (found,) = admin.describe_producers([P0])[P0].active_producers
        assert (found.current_transaction_start_offset, found.transactional_id) == (0, "orders")
        coordinator.commit(producer)
        (found,) = admin.describe_producers([P0])[P0].active_producers
        assert (found.current_transaction_start_offset, found.transactional_id) == (-1, None)

    def test_answers_are_arrow_tables(self, admin, root):
        _, producer = begin_transaction(root, "orders", P1)
        table = transactions_table(admin.describe_transactions(["orders"]))
        assert table.schema == TRANSACTIONS_SCHEMA
        (row,) = table.to_pylist()
        assert row["topic_partitions"] == [{"topic": "flights", "partition": 1}]
        assert (row["batch_id"], row["state"]) == (None, "Ongoing")
        table = producers_table(admin.describe_producers([P0, P1]))
        assert table.schema == PRODUCERS_SCHEMA
        (row,) = table.to_pylist()
        assert (row["partition"], row["producer_id"]) == (1, producer.producer_id)


class TestAborts:
    def test_one_that_is_ongoing_is_aborted_in_all_partitions(self, admin, root):
        coordinator, producer = begin_transaction(root, "orders", P0, P1)
        admin.abort_transaction(spec(producer))
        assert outcomes(root, 0) == outcomes(root, 1) == [False]
        with pytest.raises(TransactionAbortableError):
            coordinator.commit(producer)
        coordinator.abort(producer)

    def test_one_that_is_committed_is_not_aborted(self, admin, root):
        _, producer = begin_transaction(root, "orders", P0)
        cluster = Cluster(root)
        log = TransactionStateLog(cluster.store, "orders", cluster.clock)
        log.commit(lambda state: decisions.commit(state, producer, [producer]))
        with pytest.raises(InvalidTxnStateError, match="committed; it cannot be aborted"):
            admin.abort_transaction(spec(producer))
        assert outcomes(root, 0) == [True]

    def test_what_is_not_open_is_told(self, admin, root):
        coordinator, producer = begin_transaction(root, "orders", P0)
        with pytest.raises(InvalidTxnStateError, match="has no open transaction"):
            admin.abort_transaction(spec(producer, P1))
        with pytest.raises(InvalidTxnStateError, match="of epoch 3"):
            admin.abort_transaction(AbortTransactionSpec(P0, producer.producer_id, 3))
        coordinator.commit(producer)
        with pytest.raises(InvalidTxnStateError):
            admin.abort_transaction(spec(producer))

    def test_a_fenced_producer_may_not_go_on(self, admin, root):
        coordinator, producer = begin_transaction(root, "orders", P0)
        fenced = admin.fence_producers(["orders", "new"])
        assert fenced["orders"] == ProducerIdAndEpoch(producer.producer_id, 2)
        assert fenced["new"].producer_epoch == 0
        assert outcomes(root, 0) == [False]
        with pytest.raises(ProducerFencedError):
            coordinator.commit(producer)


class TestHanging:
    @pytest.mark.partition_logs_only("objects have the time of a listing")
    def test_a_late_record_of_a_complete_transaction_hangs_until_it_is_aborted(self, admin, root):
        coordinator, producer = begin_transaction(root, "orders", P0)
        coordinator.commit(producer)
        assert admin.find_hanging_transactions([P0, P1]) == []
        late_record(root, producer)
        (found,) = admin.find_hanging_transactions([P0, P1])
        assert (found.topic_partition, found.producer_id) == (P1, producer.producer_id)
        assert (found.start_offset, found.transactional_id) == (0, "orders")
        assert found.last_timestamp > 0
        admin.abort_transaction(spec(producer, P1))
        assert outcomes(root, 1) == [False]
        assert admin.find_hanging_transactions([P0, P1]) == []

    def test_what_its_producer_or_an_observer_will_end_does_not_hang(self, admin, root):
        _, producer = begin_transaction(root, "orders", P0)
        assert admin.find_hanging_transactions([P0]) == []
        cluster = Cluster(root)
        log = TransactionStateLog(cluster.store, "orders", cluster.clock)
        log.commit(lambda state: decisions.commit(state, producer, [producer]))
        assert admin.find_hanging_transactions([P0]) == []

    def test_one_of_an_expired_id_hangs(self, admin, root):
        _, producer = begin_transaction(root, "orders", P0)
        forget_producer(Cluster(root).store, producer.producer_id)
        (found,) = admin.find_hanging_transactions()
        assert found.transactional_id is None
        admin.abort_transaction(spec(producer))
        assert outcomes(root, 0) == [False]
