"""The state of a transactional id: replay, and what a damaged log cannot make of it."""

from dataclasses import replace

import pytest

from spark_log.errors import CorruptRecordError
from spark_log.transaction import decisions
from spark_log.transaction.records import TransactionRecord, from_json
from spark_log.transaction.state import (
    Participant,
    TransactionDecision,
    TransactionMetadata,
    TransactionOffset,
    TransactionState,
)
from tests.transaction.support import (
    OWNER,
    P0,
    P1,
    after,
    completed,
    initialized,
    joined,
    ongoing,
)


def corrupt(before, state):
    """What is wrong with a state that follows another one."""
    state = replace(state, revision=before.revision + 1)
    with pytest.raises(CorruptRecordError) as caught:
        before.replay(state.to_record("x"))
    return caught.value.message


def decided():
    state, _ = joined(ongoing(P0, groups=["g"]), 5, P1)
    offset = TransactionOffset("g", "topic", "a-topic", 0, 7, 2, "note")
    return after(state, decisions.commit(state, OWNER, [OWNER], [offset], 3))


def test_a_record_read_back_makes_the_same_state():
    state = decided()
    assert TransactionMetadata("t").replay(from_json(state.to_record("x").to_json())) == state
    assert state.revision == 4


def test_records_between_may_be_left_out():
    state = ongoing()
    later = decided()
    assert state.replay(later.to_record("x")) == later


class TestReplayRefuses:
    def test_a_record_of_another_transactional_id(self):
        with pytest.raises(CorruptRecordError, match="of 'other'"):
            TransactionMetadata("t").replay(initialized("other").to_record("x"))

    def test_an_older_record(self):
        state = ongoing()
        with pytest.raises(CorruptRecordError, match="older"):
            state.replay(initialized().to_record("x"))
        assert "older" in corrupt(state, replace(state, transaction=0))

    def test_a_state_that_does_not_exist(self):
        record = initialized().to_record("x").model_copy(update={"state": "Dead"})
        with pytest.raises(CorruptRecordError, match="'Dead'"):
            TransactionMetadata("t").replay(record)

    def test_an_epoch_that_goes_back(self):
        state = decided()
        assert "goes back" in corrupt(state, replace(state, owner=OWNER))
        assert "goes back" in corrupt(state, replace(state, producers={5: 0}))

    def test_a_producer_that_is_forgotten_or_comes_back(self):
        state = decided()
        assert "forgotten" in corrupt(state, replace(state, producers={}))
        state = replace(state, used_up_through=9)
        assert "comes back" in corrupt(state, replace(state, producers={5: 1, 8: 0}))
        assert "are forgotten" in corrupt(state, replace(state, used_up_through=8))

    def test_another_decision(self):
        state = decided()
        aborted = replace(
            state,
            state=TransactionState.PREPARE_ABORT,
            decision=TransactionDecision(OWNER),
            batch_id=3,
        )
        assert "a decision is changed" in corrupt(state, aborted)
        other = replace(state.decision, counting=frozenset([5]))
        assert "a decision is changed" in corrupt(state, replace(state, decision=other))

    def test_a_decision_that_is_taken_back(self):
        state = decided()
        undecided = replace(state, state=TransactionState.ONGOING, decision=None)
        assert "Ongoing follows PrepareCommit" in corrupt(state, undecided)
        assert "PrepareCommit follows" in corrupt(completed(state), state)

    def test_a_state_without_its_decision(self):
        state = decided()
        assert "the decision is None" in corrupt(state, replace(state, decision=None))

    def test_an_abort_in_which_somebody_counts(self):
        state = ongoing()
        wrong = replace(
            state,
            state=TransactionState.PREPARE_ABORT,
            decision=TransactionDecision(OWNER, frozenset([1])),
        )
        assert "participants count" in corrupt(state, wrong)

    def test_a_decision_for_somebody_who_is_no_participant(self):
        state = ongoing()
        wrong = replace(
            state,
            state=TransactionState.PREPARE_COMMIT,
            decision=TransactionDecision(OWNER, frozenset([9])),
        )
        assert "no participant" in corrupt(state, wrong)

    def test_a_registration_that_is_forgotten(self):
        state = ongoing(P0, P1)
        fewer = {1: Participant(OWNER, frozenset([P0]))}
        assert "registered is forgotten" in corrupt(state, replace(state, participants=fewer))
        assert "registered is forgotten" in corrupt(state, replace(state, participants={}))

    def test_a_micro_batch_that_is_forgotten(self):
        state = completed(decided())
        assert "micro-batch 3" in corrupt(state, replace(state, batch_id=-1))

    @pytest.mark.parametrize("value", [b"", b"[]", b'{"type":"GroupRecord","version":0,"data":{}}'])
    def test_what_is_no_record(self, value):
        with pytest.raises(CorruptRecordError):
            from_json(value)


def test_a_newer_version_asks_for_an_upgrade():
    assert TransactionRecord.version == 2
    with pytest.raises(CorruptRecordError, match="upgrade"):
        from_json(b'{"type":"TransactionRecord","version":3,"data":{}}')


def test_a_used_up_producer_may_be_left_out_of_later_records():
    state = replace(decided(), producers={5: 32_766}, used_up_through=0)
    later = replace(state, revision=9, producers={}, used_up_through=5)
    assert state.replay(later.to_record("x")).producers == {}
