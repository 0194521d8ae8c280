"""The states of a transactional producer: what each call may do, and which call was expected."""

import pytest

from spark_log import (
    IllegalStateError,
    InvalidTxnStateError,
    ProducerFencedError,
    StorageError,
    TransactionAbortableError,
    TransactionAbortedError,
)
from spark_log.producer.transaction.transaction_manager import State, TransactionManager
from spark_log.record import ProducerIdAndEpoch

PRODUCER = ProducerIdAndEpoch(7, 3)
NEXT = ProducerIdAndEpoch(7, 4)
FENCED = ProducerFencedError("another has taken over", transactional_id="id")

APPENDING = {State.IN_TRANSACTION, State.COMMITTING_TRANSACTION}

CALLS = {
    "init_transactions": {State.UNINITIALIZED},
    "begin_transaction": {State.READY},
    "send": {State.IN_TRANSACTION},
    "send_offsets_to_transaction": {State.IN_TRANSACTION},
    "commit_transaction": {State.IN_TRANSACTION},
    "abort_transaction": {State.IN_TRANSACTION, State.ABORTABLE_ERROR},
}
EXPECTED = {
    State.UNINITIALIZED: "call init_transactions first",
    State.INITIALIZING: "init_transactions has not ended: call it again",
    State.READY: "call begin_transaction first",
    State.IN_TRANSACTION: "call commit_transaction or abort_transaction",
    State.COMMITTING_TRANSACTION: "commit_transaction has not ended: call it again",
    State.ABORTING_TRANSACTION: "abort_transaction has not ended: call it again",
}


@pytest.fixture
def manager(clock):
    return TransactionManager("id", 1_000, clock)


def initialized(manager):
    manager.change(State.INITIALIZING)
    manager.end(PRODUCER)
    return manager


def begun(manager):
    initialized(manager).begin()
    return manager


def brought_to(manager, state):
    """Bring a new manager to a state, as calls and errors do."""
    if state is State.UNINITIALIZED:
        return manager
    if state is State.INITIALIZING:
        manager.change(state)
        return manager
    initialized(manager)
    if state is State.READY:
        return manager
    manager.begin()
    if state is State.ABORTABLE_ERROR:
        manager.fail(StorageError("no"))
    elif state is State.FATAL_ERROR:
        manager.fail(FENCED)
    elif state is not State.IN_TRANSACTION:
        manager.change(state)
    return manager


class TestCalls:
    @pytest.mark.parametrize("call", CALLS)
    @pytest.mark.parametrize("state", State)
    def test_each_is_possible_in_its_states_alone_and_the_error_names_what_was_expected(
        self, manager, state, call
    ):
        brought_to(manager, state)
        assert manager.state is state
        if state in CALLS[call]:
            manager.check(call, *CALLS[call])
        elif state is State.FATAL_ERROR:
            with pytest.raises(ProducerFencedError) as fenced:
                manager.check(call, *CALLS[call])
            assert fenced.value is FENCED
        elif state is State.ABORTABLE_ERROR:
            with pytest.raises(TransactionAbortableError, match="call abort_transaction") as failed:
                manager.check(call, *CALLS[call])
            assert failed.value.message.startswith(f"{call}: ")
            assert str(failed.value.__cause__) == "no"
        else:
            with pytest.raises(IllegalStateError, match=EXPECTED[state]) as refused:
                manager.check(call, *CALLS[call])
            assert refused.value.message.startswith(f"{call}: ")

    def test_a_change_that_kafka_does_not_know_is_a_mistake_of_this_package(self, manager):
        with pytest.raises(AssertionError, match="READY follows UNINITIALIZED"):
            manager.change(State.READY)
        begun(manager)
        with pytest.raises(AssertionError, match="INITIALIZING follows IN_TRANSACTION"):
            manager.change(State.INITIALIZING)


class TestFail:
    @pytest.mark.parametrize("state", State)
    def test_an_ordinary_error_makes_an_open_transaction_abortable_and_changes_nothing_else(
        self, manager, state
    ):
        brought_to(manager, state)
        assert manager.fail(StorageError("later")) == (state in APPENDING)
        expected = State.ABORTABLE_ERROR if state in APPENDING else state
        assert manager.state is expected

    @pytest.mark.parametrize("error", [FENCED, InvalidTxnStateError("no")])
    @pytest.mark.parametrize("state", State)
    def test_a_fenced_or_fatal_one_is_the_end_in_every_state(self, manager, state, error):
        brought_to(manager, state)
        assert manager.fail(error) == (state is not State.FATAL_ERROR)
        assert manager.state is State.FATAL_ERROR

    def test_the_first_error_stays_the_cause(self, manager):
        begun(manager)
        manager.fail(StorageError("first"))
        manager.fail(StorageError("second"))
        assert str(manager.error) == "first"


class TestAppends:
    @pytest.mark.parametrize("state", State)
    def test_are_made_while_a_transaction_is_open_or_is_being_committed(self, manager, state):
        brought_to(manager, state)
        if state in APPENDING:
            manager.check_can_append()
            return
        errors: dict[State, type[Exception]] = {
            State.ABORTABLE_ERROR: TransactionAbortableError,
            State.FATAL_ERROR: ProducerFencedError,
        }
        with pytest.raises(errors.get(state, TransactionAbortedError)):
            manager.check_can_append()

    def test_are_not_made_when_the_timeout_has_passed_since_the_begin(self, manager, clock):
        initialized(manager)
        clock.advance_ms(5_000)
        manager.begin()
        clock.advance_ms(999)
        manager.check_can_append()
        clock.advance_ms(1)
        with pytest.raises(TransactionAbortableError, match=r"transaction.timeout.ms \(1000\)"):
            manager.check_can_append()
        manager.change(State.COMMITTING_TRANSACTION)
        with pytest.raises(TransactionAbortableError):
            manager.check_can_append()

    def test_of_the_next_transaction_have_its_own_time_and_nothing_is_registered(
        self, manager, clock
    ):
        begun(manager)
        manager.is_begun, manager.partitions = True, frozenset({("id", 0)})
        clock.advance_ms(2_000)
        manager.change(State.ABORTING_TRANSACTION)
        manager.end(NEXT)
        assert (manager.producer, manager.is_begun, manager.partitions) == (NEXT, False, set())
        manager.begin()
        manager.check_can_append()
