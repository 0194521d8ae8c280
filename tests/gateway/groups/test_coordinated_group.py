"""One group with its log and its fence, beside other processes, and after a crash."""

import pytest

from spark_log.config import ClusterConfig
from spark_log.coordinator.group.classic import ClassicMember
from spark_log.coordinator.group.group import Member, PendingOffsets
from spark_log.coordinator.group.group_decisions import join as native_join
from spark_log.coordinator.group.group_decisions import send_offsets
from spark_log.coordinator.group.group_log import GroupLog
from spark_log.errors import IllegalGenerationError, StorageError
from spark_log.gateway.groups import CoordinatedGroup, GroupLostError, JoinRequest, MemberIdentity
from spark_log.gateway.groups import classic_decisions as decisions
from spark_log.gateway.groups.coordinated_group import ForeignMembersError
from spark_log.record import ProducerIdAndEpoch
from spark_log.types import OffsetAndMetadata, TopicPartition
from tests.gateway.groups.driver import LIMITS, MOST_EXPIRIES, PROTOCOLS


class Table:
    """An offsets table that has a fence alone."""

    def __init__(self):
        self.value = 0
        self.is_failing = False
        self.committed = {}

    def generation(self, group):
        return self.value

    def fence(self, group, generation):
        if self.is_failing:
            raise StorageError("the table does not answer")
        if generation < self.value:
            raise IllegalGenerationError("old", generation=generation, current=self.value)
        self.value = generation

    def commit(self, group, offsets, *, generation=0, member_id="", check=None):
        self.fence(group, generation)
        self.committed.update(offsets)


class Process:
    """A gateway with the group in memory."""

    def __init__(self, store, clock, table):
        self.features: list[str] = []
        log = GroupLog(store, "g", clock)
        finalize = lambda: self.features.append("finalized")  # noqa: E731
        self.group = CoordinatedGroup(log, table, "g", finalize_feature=finalize)
        self.load()

    def load(self):
        self.state = self.group.load().state

    def apply(self, decision):
        if decision.change is not None:
            decision = self.group.write(decision, self.state)
        self.state = decision.state
        return dict(decision.answers)

    def join(self, name="", generation_begins=True):
        member = ClassicMember(name, None, "c", "/h", 60_000, 10_000, PROTOCOLS)
        request = JoinRequest(member, "consumer", False, True)
        self.apply(decisions.join(self.state, request, 1, f"{name}new", LIMITS))
        if generation_begins:
            self.begin()
        return next(iter(self.state.classic.members))

    def begin(self):
        for _ in range(MOST_EXPIRIES):
            if self.state.classic.state != "PreparingRebalance":
                return
            self.apply(decisions.expire(self.state, ("join", ""), LIMITS))
        raise AssertionError(f"the group waits for members after {MOST_EXPIRIES} timeouts")

    def sync(self, name):
        identity = MemberIdentity(name)
        return self.apply(
            decisions.sync(
                self.state, identity, self.state.generation, (None, None), {name: b"a"}, 2
            )
        )[2]

    def stable(self):
        name = self.join()
        self.sync(name)
        return name


@pytest.fixture
def table():
    return Table()


@pytest.fixture
def store(memory_store):
    return memory_store


@pytest.fixture
def open_process(store, clock, table):
    return lambda: Process(store, clock, table)


def test_an_assignment_is_answered_after_the_fence(open_process, table):
    process = open_process()
    name = process.join()
    assert table.value == 0
    assert process.sync(name).assignment == b"a"
    assert table.value == 1
    assert process.features == ["finalized"]


def test_an_assignment_without_its_fence_is_not_answered(open_process, table):
    process = open_process()
    name = process.join()
    table.is_failing = True
    with pytest.raises(StorageError):
        process.sync(name)
    assert process.state.classic.state == "CompletingRebalance", "it has to be loaded again"


def test_a_new_coordinator_raises_the_fence_that_the_dead_one_did_not(open_process, table):
    dead = open_process()
    name = dead.join()
    table.is_failing = True
    with pytest.raises(StorageError):
        dead.sync(name)  # the log has the assignment, and the table no fence
    table.is_failing = False
    assert table.value == 0
    successor = open_process()
    assert successor.state.classic.state == "Stable"
    assert table.value == 1
    assert successor.sync(name).assignment == b"a"


def test_of_two_coordinators_one_loses(open_process):
    first, second = open_process(), open_process()
    first.join()
    with pytest.raises(GroupLostError):
        second.join()
    second.load()
    assert second.state.generation == 1


def test_a_change_that_another_process_followed_is_lost(open_process, monkeypatch):
    """The answer to an append was lost, and the change is found below another one."""
    first, second = open_process(), open_process()
    log = first.group._log  # noqa: SLF001 - nothing public shows the moment after an append
    commit = log.commit

    def commit_and_stand_still(decide, **how):
        commit(decide, **how)
        second.load()
        name = next(iter(second.state.classic.members))
        second.apply(decisions.leave(second.state, [MemberIdentity(name)], 3, LIMITS))
        log.replay()

    first.join(generation_begins=False)
    monkeypatch.setattr(log, "commit", commit_and_stand_still)
    with pytest.raises(GroupLostError):
        first.begin()


def test_a_late_coordinator_loses_by_its_first_change_check_or_commit(open_process, table):
    late = open_process()
    name = late.stable()
    new = open_process()
    new.apply(decisions.leave(new.state, [MemberIdentity(name)], 3, LIMITS))
    new.stable()
    offsets = {TopicPartition("t", 0): OffsetAndMetadata(1)}
    with pytest.raises(IllegalGenerationError):
        late.group.commit(late.state, name, offsets)
    assert table.committed == {}
    with pytest.raises(GroupLostError):
        late.group.check(late.state)
    with pytest.raises(GroupLostError):
        late.apply(decisions.expire(late.state, ("session", name), LIMITS))


def test_a_commit_of_an_older_generation_that_this_gateway_knows_of(open_process):
    process = open_process()
    name = process.stable()
    before = process.state
    process.join(name, generation_begins=False)
    process.begin()
    process.sync(name)
    with pytest.raises(IllegalGenerationError):
        process.group.commit(before, name, {TopicPartition("t", 0): OffsetAndMetadata(1)})


def test_pending_offsets_of_a_transaction_are_no_loss(store, clock, open_process):
    process = open_process()
    name = process.stable()
    sent = PendingOffsets(
        "t", ProducerIdAndEpoch(1, 0), 1, name, frozenset({TopicPartition("t", 0)}), 0
    )
    other = GroupLog(store, "g", clock)
    other.commit(lambda group: send_offsets(group, sent))
    process.apply(decisions.expire(process.state, ("session", name), LIMITS))
    assert process.state.logged.pending_offsets == (sent,)
    assert process.state.classic.state == "Empty"


def test_a_group_of_this_packages_consumers_is_refused(store, clock, open_process):
    ours = Member("ours", topics=("t",))
    log = GroupLog(store, "g", clock)
    log.commit(lambda group: native_join(group, ours, {}, ClusterConfig()))
    with pytest.raises(ForeignMembersError):
        open_process()


def test_a_consumer_of_this_package_that_joins_an_empty_group_takes_it(store, clock, open_process):
    process = open_process()
    ours = Member("ours", topics=("t",))
    GroupLog(store, "g", clock).commit(lambda group: native_join(group, ours, {}, ClusterConfig()))
    with pytest.raises(GroupLostError):
        process.join()
