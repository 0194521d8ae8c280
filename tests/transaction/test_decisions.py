"""Decisions about a transactional id, without storage."""

from dataclasses import replace

import pytest

from spark_log.errors import (
    ConcurrentTransactionsError,
    CorruptRecordError,
    InvalidTxnStateError,
    ProducerFencedError,
    TransactionAbortableError,
)
from spark_log.record import MAX_PRODUCER_EPOCH, ProducerIdAndEpoch
from spark_log.transaction import decisions
from spark_log.transaction.state import (
    LAST_EPOCH,
    TransactionDecision,
    TransactionOffset,
    TransactionState,
)
from tests.transaction.support import (
    OWNER,
    P0,
    P1,
    P2,
    after,
    completed,
    initialized,
    joined,
    ongoing,
)

NEXT = ProducerIdAndEpoch(1, 1)


def committed(state, *counting, offsets=(), batch_id=None):
    return after(state, decisions.commit(state, state.owner, counting, offsets, batch_id))


def expired(state):
    return after(state, decisions.expire(state, state.transaction))


def at_last_epoch(state):
    """The same with the owner and all other producers in the last epoch of their ids."""
    producers = dict.fromkeys(state.producers, LAST_EPOCH)
    return replace(
        state, producers=producers, owner=replace(state.owner, producer_epoch=LAST_EPOCH)
    )


class TestInitialize:
    def test_the_first_owner_has_the_new_producer_id(self):
        state = initialized()
        assert (state.owner, state.state, state.timeout_ms) == (OWNER, "Empty", 1000)

    def test_another_one_has_the_next_epoch_and_fences_the_one_before(self):
        state = initialized()
        state = after(state, decisions.initialize(state, 2000))
        assert (state.owner, state.timeout_ms) == (NEXT, 2000)
        for call in (
            lambda: decisions.register(state, OWNER, [P0]),
            lambda: decisions.join(state, OWNER, 5),
            lambda: decisions.commit(state, OWNER, [], batch_id=0),
            lambda: decisions.abort(state, OWNER),
        ):
            with pytest.raises(ProducerFencedError) as caught:
                call()
            assert (caught.value.producer_id, caught.value.producer_epoch) == (1, 0)

    def test_waits_until_a_transaction_is_complete(self):
        state = ongoing()
        for each in (state, expired(state), committed(state, OWNER)):
            with pytest.raises(ConcurrentTransactionsError, match=r"Ongoing|Prepare"):
                decisions.initialize(each, 1000)
        done = completed(expired(state))
        state = after(done, decisions.initialize(done, 1000))
        assert (state.state, state.participants) == ("Empty", {})

    def test_by_one_that_was_replaced_is_fenced(self):
        state = initialized()
        state = after(state, decisions.initialize(state, 1000, expected=OWNER))
        assert decisions.initialize(state, 1000, expected=OWNER) is None, "it may be repeated"
        used = after(state, decisions.register(state, state.owner, [P0]))
        for each in (used, after(state, decisions.initialize(state, 1000))):
            with pytest.raises(ProducerFencedError):
                decisions.initialize(each, 1000, expected=OWNER)

    def test_an_id_whose_epochs_are_used_up_is_replaced(self):
        state = at_last_epoch(initialized())
        assert state.needs_producer_id
        for not_new in (None, 1):
            with pytest.raises(InvalidTxnStateError, match="allocate another"):
                decisions.initialize(state, 1000, not_new)
        state = after(state, decisions.initialize(state, 1000, 7))
        assert (state.owner, state.used_up_through) == (ProducerIdAndEpoch(7, 0), 1)
        assert not state.is_new(1), "it would have its epochs again"


class TestRegister:
    def test_the_first_registration_of_the_owner_begins_a_transaction(self):
        state = ongoing(P0)
        assert (state.state, state.transaction) == ("Ongoing", 1)
        state = after(state, decisions.register(state, OWNER, [P0, P1], ["g"]))
        assert state.participants[1].partitions == {P0, P1}
        assert state.participants[1].groups == {"g"}
        assert state.transaction == 1

    def test_what_is_registered_is_not_registered_again(self):
        state = ongoing(P0, P1)
        assert decisions.register(state, OWNER, [P1]) is None

    def test_is_refused_once_the_transaction_is_decided(self):
        state, late = joined(ongoing(P0), 5, P1)
        for decided in (committed(state, OWNER), expired(state)):
            for each in (decided, completed(decided)):
                with pytest.raises(ProducerFencedError):
                    decisions.register(each, late, [P2])

    def test_of_an_older_epoch_is_refused_in_a_later_transaction(self):
        state, late = joined(ongoing(P0), 5, P1)
        state = completed(committed(state, OWNER))
        state = after(state, decisions.register(state, NEXT, [P0]))
        state, again = joined(state, 5, P1)
        assert again == ProducerIdAndEpoch(5, 1)
        for old in (late, OWNER):
            with pytest.raises(ProducerFencedError):
                decisions.register(state, old, [P2])

    def test_waits_until_the_markers_of_the_transaction_before_are_put(self):
        state = committed(ongoing(), OWNER)
        for call in (
            lambda: decisions.register(state, NEXT, [P0]),
            lambda: decisions.join(state, NEXT, 5),
            lambda: decisions.commit(state, NEXT, [], batch_id=0),
        ):
            with pytest.raises(ConcurrentTransactionsError, match="PrepareCommit"):
                call()
        state = completed(state)
        assert after(state, decisions.register(state, NEXT, [P0])).transaction == 2

    def test_the_owner_may_abort_what_others_aborted_and_go_on(self):
        state = expired(ongoing())
        with pytest.raises(TransactionAbortableError, match="abort"):
            decisions.register(state, OWNER, [P1])
        assert decisions.abort(state, OWNER) is None
        state = completed(state)
        assert after(state, decisions.register(state, state.owner, [P1])).state == "Ongoing"

    def test_with_a_used_up_epoch_asks_to_initialize(self):
        state = at_last_epoch(initialized())
        state = after(state, decisions.register(state, state.owner, [P0]))
        state = completed(expired(state))
        assert state.owner.producer_epoch == MAX_PRODUCER_EPOCH
        with pytest.raises(InvalidTxnStateError, match="initialize"):
            decisions.register(state, state.owner, [P0])


class TestJoin:
    def test_begins_a_transaction_too(self):
        state, task = joined(initialized(), 5, P0, groups=["g"])
        assert (state.state, state.transaction, task) == ("Ongoing", 1, ProducerIdAndEpoch(5, 0))
        assert state.participants[5].partitions == {P0}
        assert state.participants[5].groups == {"g"}

    def test_each_participant_has_an_id_of_its_own(self):
        state, _ = joined(ongoing(), 5)
        for taken in (5, 1):
            with pytest.raises(InvalidTxnStateError, match="in use"):
                decisions.join(state, OWNER, taken)
        assert state.free_producer_id() is None

    def test_an_id_is_taken_again_by_the_next_transaction(self):
        state, _ = joined(ongoing(), 5)
        state = completed(committed(state, OWNER))
        assert state.free_producer_id() == 5
        state, task = joined(state, 5)
        assert task == ProducerIdAndEpoch(5, 1)

    def test_an_id_that_did_not_take_part_keeps_its_epoch(self):
        state, _ = joined(ongoing(), 5)
        state = completed(committed(state, OWNER))
        state = after(state, decisions.register(state, NEXT, [P0]))
        state = completed(committed(state, NEXT))
        assert state.producers == {5: 1}

    def test_an_id_whose_epochs_are_used_up_never_comes_back(self):
        state, _ = joined(at_last_epoch(initialized()), 5)
        state = at_last_epoch(state)
        state = replace(state, participants={})
        state, task = joined(state, 5)
        assert task.producer_epoch == LAST_EPOCH
        decided = completed(expired(state))
        assert (decided.producers, decided.used_up_through) == ({}, 5)
        fresh = after(decided, decisions.initialize(decided, 1000, 9))
        for used in (5, 4):
            with pytest.raises(InvalidTxnStateError, match="used up"):
                decisions.join(fresh, fresh.owner, used)
        assert joined(fresh, 6)[1] == ProducerIdAndEpoch(6, 0)


class TestCommit:
    def test_names_who_counts_and_raises_every_epoch(self):
        state, counts = joined(ongoing(), 5, P1)
        state, late = joined(state, 6, P2)
        state = committed(state, counts)
        assert state.state is TransactionState.PREPARE_COMMIT
        assert state.decision == TransactionDecision(OWNER, frozenset([5]))
        assert state.owner == NEXT
        assert state.producers == {5: 1, 6: 1}
        assert state.participants[6].producer == late, "their markers are put by this"

    def test_twice_is_once(self):
        state = ongoing()
        decided = committed(state, OWNER)
        assert decisions.commit(decided, OWNER, [OWNER]) is None
        assert decisions.commit(completed(decided), OWNER, [OWNER]) is None

    def test_again_with_something_else_is_refused(self):
        decided = committed(ongoing(), OWNER)
        with pytest.raises(InvalidTxnStateError, match="committed already"):
            decisions.commit(decided, OWNER, [])

    def test_of_what_others_aborted_is_refused(self):
        state = expired(ongoing())
        for each in (state, completed(state)):
            with pytest.raises(TransactionAbortableError):
                decisions.commit(each, OWNER, [OWNER])

    def test_who_counts_is_a_participant(self):
        state, task = joined(ongoing(), 5)
        for other in (replace(task, producer_epoch=1), ProducerIdAndEpoch(6, 0)):
            with pytest.raises(InvalidTxnStateError, match="no participant"):
                decisions.commit(state, OWNER, [OWNER, other])

    def test_offsets_are_of_groups_that_a_counting_participant_registered(self):
        state, task = joined(ongoing(), 5, groups=["g"])
        offset = TransactionOffset("g", "topic", "a-topic", 0, 7)
        with pytest.raises(InvalidTxnStateError, match="'g' is not registered"):
            decisions.commit(state, OWNER, [OWNER], [offset])
        state = committed(state, task, offsets=[offset])
        assert state.decision.offsets == (offset,)

    def test_without_a_transaction_is_refused(self):
        with pytest.raises(InvalidTxnStateError, match="register"):
            decisions.commit(initialized(), OWNER, [])

    def test_a_micro_batch_without_records_is_committed_too(self):
        state = committed(initialized(), batch_id=0)
        assert (state.transaction, state.batch_id, state.owner) == (1, 0, NEXT)

    def test_a_micro_batch_is_committed_once(self):
        state = completed(committed(ongoing(), OWNER, batch_id=4))
        state = completed(committed(after(state, decisions.register(state, NEXT, [P0]))))
        assert state.batch_id == 4, "a transaction without one keeps it"
        for old in (3, 4):
            with pytest.raises(InvalidTxnStateError, match="not above the last, 4"):
                decisions.commit(state, state.owner, [], batch_id=old)

    def test_an_aborted_micro_batch_may_be_committed_later(self):
        state = completed(expired(ongoing()))
        assert committed(state, batch_id=0).batch_id == 0


class TestAbort:
    def test_nobody_counts_and_every_epoch_is_raised(self):
        state, _ = joined(ongoing(), 5)
        state = after(state, decisions.abort(state, OWNER))
        assert (state.state, state.decision) == ("PrepareAbort", TransactionDecision(OWNER))
        assert (state.owner, state.producers) == (NEXT, {5: 1})

    def test_twice_is_once_and_of_nothing_is_nothing(self):
        state = ongoing()
        aborted = after(state, decisions.abort(state, OWNER))
        assert decisions.abort(aborted, OWNER) is None
        assert decisions.abort(completed(aborted), NEXT) is None
        assert decisions.abort(initialized(), OWNER) is None

    def test_of_what_is_committed_is_refused(self):
        with pytest.raises(InvalidTxnStateError, match="committed"):
            decisions.abort(committed(ongoing(), OWNER), OWNER)


class TestExpire:
    def test_aborts_the_transaction_that_was_seen(self):
        state = expired(ongoing())
        assert (state.state, state.owner) == ("PrepareAbort", NEXT)

    def test_leaves_decided_and_later_transactions_alone(self):
        state = ongoing()
        assert decisions.expire(committed(state, OWNER), 1) is None
        state = completed(expired(state))
        assert decisions.expire(state, 1) is None
        state = after(state, decisions.register(state, NEXT, [P0]))
        assert decisions.expire(state, 1) is None


class TestComplete:
    def test_keeps_the_decision(self):
        for decided, name in (
            (committed(ongoing(), OWNER), "CompleteCommit"),
            (expired(ongoing()), "CompleteAbort"),
        ):
            state = completed(decided)
            assert (state.state, state.decision) == (name, decided.decision)

    def test_twice_is_once(self):
        state = completed(expired(ongoing()))
        assert decisions.complete(state, 1) is None
        state = after(state, decisions.register(state, NEXT, [P0]))
        assert decisions.complete(state, 1) is None, "a later one goes on"
        assert decisions.complete(expired(state), 1) is None, "its markers may be missing"

    def test_what_is_not_decided_is_not_completed(self):
        for number in (1, 2):
            with pytest.raises(InvalidTxnStateError, match="not decided"):
                decisions.complete(ongoing(), number)


def offset(number, *, group="g", partition=0):
    return TransactionOffset(group, "t", "A" * 22, partition, number)


def sent(state, *offsets, producer=None):
    found = decisions.send_offsets(state, producer or state.owner, offsets)
    return state if found is None else after(state, found)


class TestSendOffsets:
    def test_begins_a_transaction_and_registers_the_groups(self):
        state = sent(initialized(), offset(5), offset(6, group="h"))
        assert state.is_ongoing
        assert state.participants[1].groups == {"g", "h"}
        assert state.participants[1].offsets == (offset(5), offset(6, group="h"))

    def test_keeps_registrations_and_registrations_keep_offsets(self):
        state = sent(
            after(initialized(), decisions.register(initialized(), OWNER, [P0])), offset(5)
        )
        state = after(state, decisions.register(state, OWNER, [P1]))
        assert state.participants[1].partitions == {P0, P1}
        assert state.participants[1].offsets == (offset(5),)

    def test_a_later_offset_takes_the_place_of_an_earlier_one_and_a_repeat_changes_nothing(self):
        state = sent(initialized(), offset(5), offset(1, partition=1))
        state = sent(state, offset(3))
        assert state.participants[1].offsets == (offset(3), offset(1, partition=1))
        assert decisions.send_offsets(state, OWNER, [offset(3)]) is None

    def test_offsets_are_committed_with_those_of_the_commit_and_a_repeat_is_the_same(self):
        state = sent(initialized(), offset(5), offset(1, partition=1))
        decided = committed(state, OWNER, offsets=[offset(9)])
        assert decided.decision.offsets == (offset(9), offset(1, partition=1))
        again = decisions.commit(decided, OWNER, [OWNER], [offset(9)])
        assert again is None

    def test_offsets_of_an_aborted_transaction_and_of_others_that_do_not_count_are_not(self):
        state = sent(initialized(), offset(5))
        aborted = after(state, decisions.abort(state, OWNER))
        assert aborted.decision.offsets == ()
        done = completed(aborted)
        begun = after(done, decisions.register(done, NEXT, [P0]))
        assert begun.participants[1].offsets == ()
        assert committed(begun, NEXT).decision.offsets == ()

    def test_a_fenced_producer_sends_nothing(self):
        state = after(initialized(), decisions.initialize(initialized(), 1000))
        with pytest.raises(ProducerFencedError):
            decisions.send_offsets(state, OWNER, [offset(5)])

    def test_records_without_offsets_are_read_by_older_versions_and_those_with_are_not(self):
        assert ongoing().to_record("x").stored_version == 0
        record = sent(ongoing(), offset(5)).to_record("x")
        assert record.stored_version == 1
        assert record.model_validate_json(record.model_dump_json()) == record

    def test_what_was_sent_is_not_forgotten(self):
        state = sent(ongoing(), offset(5))
        present = state.participants[1]
        lost = replace(
            state, participants={1: replace(present, offsets=(), part=None)}, revision=99
        )
        with pytest.raises(CorruptRecordError, match="is forgotten"):
            state.replay(lost.to_record("register"))
