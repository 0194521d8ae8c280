"""Any sequence of decisions by jobs with several attempts, zombies and observers.

Every call is made on the state of some moment, as by a process that has read the log up to there.
Its record is appended only if nothing came in between (the conditional append); otherwise it is
decided again.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from spark_log.errors import ConcurrentTransactionsError, TransactionError
from spark_log.record import MAX_PRODUCER_EPOCH
from spark_log.transaction import decisions
from spark_log.transaction.records import from_json
from spark_log.transaction.state import (
    LAST_EPOCH,
    TopicIdPartition,
    TransactionMetadata,
    TransactionState,
)

picks = st.integers(0, 5)
FIRST = LAST_EPOCH
"""Epochs are skipped to the last one, so that ids are used up."""


class TransactionMachine(RuleBasedStateMachine):
    """The log as a list of records and of the states after them.

    The model is what was acknowledged: who is an owner or a participant of which transaction, what
    each has registered, and how each transaction ended.
    """

    def __init__(self):
        super().__init__()
        self.records: list[bytes] = []
        self.states = [TransactionMetadata("t")]
        self.owners = []
        self.participants = {}
        self.registered = {}
        self.outcomes = {}
        self.raced = 0
        self.ids = 0

    @property
    def state(self):
        return self.states[-1]

    def append(self, decide, lag=0):
        """Commit like `StateLog`, from a state that may be some records old."""
        for at in (max(0, len(self.states) - 1 - lag), len(self.states) - 1):
            try:
                record = decide(self.states[at])
            except TransactionError:
                if at == len(self.states) - 1:
                    raise
                self.raced += 1
                continue
            if at < len(self.states) - 1:
                self.raced += 1
                continue
            if record is None:
                return False
            value = record.to_json()
            self.states.append(self.state.replay(from_json(value)))
            self.records.append(value)
            return True
        raise AssertionError("not reached")

    def attempt(self, decide, lag=0):
        """Do the same; whether it was made."""
        try:
            return self.append(decide, lag)
        except TransactionError:
            return False

    def new_id(self):
        self.ids += 1
        return self.ids

    # --- jobs ------------------------------------------------------------------------------------

    @rule(lag=picks)
    def initialize(self, lag):
        new = self.new_id()
        if self.attempt(lambda state: decisions.initialize(state, 1000, new), lag):
            self.owners.append(self.state.owner)

    @precondition(lambda self: self.state.owner is not None and not self.is_busy)
    @rule()
    def skip_epochs(self):
        """Let epochs pass, as many transactions would."""
        if self.state.needs_producer_id:
            return
        record = decisions.initialize(self.state, 1000)
        assert record is not None
        owner = record.owner
        assert owner is not None
        jump = record.model_copy(
            update={
                "owner": owner.model_copy(
                    update={"producer_epoch": max(FIRST, owner.producer_epoch)}
                ),
                "producers": tuple((each, max(FIRST, epoch)) for each, epoch in record.producers),
            }
        )
        self.states.append(self.state.replay(jump))
        self.records.append(jump.to_json())
        self.owners.append(self.state.owner)

    @property
    def is_busy(self):
        return self.state.is_open

    @precondition(lambda self: self.owners)
    @rule(which=picks, partition=picks, lag=picks, old_id=st.none() | st.integers(1, 8))
    def join(self, which, partition, lag, old_id):
        """A task of the newest or of an older owner; it may have kept a producer id for long."""
        owner = self.owners[-1 - which % len(self.owners)]
        new = self.new_id()
        chosen: list[int] = []

        def decide(state):
            free = state.free_producer_id()
            chosen[:] = [old_id or (new if free is None else free)]
            return decisions.join(state, owner, chosen[0], [TopicIdPartition("t", partition)])

        if self.attempt(decide, lag):
            assert owner == self.states[-2].owner
            participant = self.state.participants[chosen[0]].producer
            self.on_participant(participant, partition)

    @precondition(lambda self: self.owners)
    @rule(which=picks, partition=picks, lag=picks)
    def register_as_owner(self, which, partition, lag):
        owner = self.owners[-1 - which % len(self.owners)]
        self.register(owner, partition, lag, is_owner=True)

    @precondition(lambda self: self.participants)
    @rule(which=st.integers(0, 20), partition=picks, lag=picks)
    def register_as_participant(self, which, partition, lag):
        """A task attempt, which may have been thought dead for long."""
        producers = list(self.participants)
        self.register(producers[which % len(producers)], partition, lag, is_owner=False)

    def register(self, producer, partition, lag, is_owner):
        was_ongoing = self.state.is_ongoing
        number = self.state.transaction
        found = TopicIdPartition("t", partition)
        try:
            is_made = self.append(lambda s: decisions.register(s, producer, [found]), lag)
        except TransactionError:
            joined = self.participants.get(producer)
            assert joined is None or not was_ongoing or joined != number
            return
        if is_made and self.participants.get(producer) != self.state.transaction:
            assert is_owner, "a fenced participant registers nothing"
            assert producer == self.states[-2].owner
            self.on_participant(producer, partition)
        assert self.participants[producer] == self.state.transaction
        assert self.state.is_ongoing
        self.registered[producer].add(partition)

    def on_participant(self, producer, partition):
        assert producer not in self.participants, "an epoch is used once"
        assert producer.producer_epoch <= LAST_EPOCH
        self.participants[producer] = self.state.transaction
        self.registered[producer] = {partition}

    # --- deciders --------------------------------------------------------------------------------

    @precondition(lambda self: self.owners)
    @rule(which=picks, counting=st.sets(picks), lag=picks, is_batch=st.booleans())
    def commit(self, which, counting, lag, is_batch):
        owner = self.owners[-1 - which % len(self.owners)]
        present = [
            each.producer
            for at, each in enumerate(self.state.participants.values())
            if at in counting
        ]
        batch_id = self.state.transaction if is_batch else None
        if self.attempt(lambda s: decisions.commit(s, owner, present, batch_id=batch_id), lag):
            assert owner == self.states[-2].owner
            self.on_decided("commit")
            assert {self.participants[each] for each in present} <= {self.state.transaction}

    @precondition(lambda self: self.owners)
    @rule(which=picks, lag=picks)
    def abort(self, which, lag):
        owner = self.owners[-1 - which % len(self.owners)]
        if self.attempt(lambda state: decisions.abort(state, owner), lag):
            assert owner == self.states[-2].owner
            self.on_decided("abort")

    @rule(back=picks, lag=picks)
    def expire(self, back, lag):
        number = self.states[max(0, len(self.states) - 1 - back)].transaction
        if self.attempt(lambda state: decisions.expire(state, number), lag):
            assert self.state.transaction == number
            self.on_decided("abort")

    @rule(back=picks, lag=picks)
    def complete(self, back, lag):
        number = self.states[max(0, len(self.states) - 1 - back)].transaction
        if self.attempt(lambda state: decisions.complete(state, number), lag):
            assert number in self.outcomes

    @precondition(lambda self: self.is_busy)
    @rule()
    def finish(self):
        """What whoever wants to go on does."""
        number = self.state.transaction
        if self.attempt(lambda state: decisions.expire(state, number)):
            self.on_decided("abort")
        self.attempt(lambda state: decisions.complete(state, number))
        assert not self.is_busy

    def on_decided(self, outcome):
        number = self.state.transaction
        assert number not in self.outcomes, "a transaction is decided once"
        self.outcomes[number] = outcome
        self.owners.append(self.state.owner)

    # --- what always holds -----------------------------------------------------------------------

    @invariant()
    def nothing_that_was_acknowledged_is_forgotten(self):
        for producer, number in self.participants.items():
            if number == self.state.transaction and self.state.participants:
                found = self.state.participants[producer.producer_id]
                assert found.producer == producer
                assert {each.partition for each in found.partitions} == self.registered[producer]

    @invariant()
    def the_outcome_is_that_of_the_decision(self):
        outcome = self.outcomes.get(self.state.transaction)
        if self.state.state is not TransactionState.EMPTY:
            assert self.state.is_committed == (outcome == "commit")
            assert self.state.is_aborted == (outcome == "abort")

    @invariant()
    def epochs_of_ended_transactions_are_raised(self):
        """So a marker stands under an epoch in which its transaction has no records."""
        for producer, number in self.participants.items():
            if number in self.outcomes:
                owner = self.state.owner
                epoch = self.state.producers.get(producer.producer_id, MAX_PRODUCER_EPOCH)
                if producer.producer_id == owner.producer_id:
                    epoch = owner.producer_epoch
                assert epoch > producer.producer_epoch

    @invariant()
    def a_transaction_begins_when_the_one_before_is_complete(self):
        if len(self.states) > 1 and self.states[-2].transaction < self.state.transaction:
            before = self.states[-2]
            assert not before.is_open

    @invariant()
    def whoever_is_busy_is_waited_for(self):
        if self.is_busy:
            try:
                decisions.initialize(self.state, 1000, self.ids + 1)
            except ConcurrentTransactionsError:
                return
            raise AssertionError("an owner began before the transaction was complete")

    def teardown(self):
        """Replaying a prefix, or its last record alone, gives the state of that moment."""
        state = TransactionMetadata("t")
        for record, expected in zip(self.records, self.states[1:], strict=True):
            state = state.replay(from_json(record))
            assert state == expected
            assert TransactionMetadata("t").replay(from_json(record)) == expected


TestTransactions = TransactionMachine.TestCase
TestTransactions.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
