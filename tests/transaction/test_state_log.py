"""The state log of a transactional id on storage: races, lost answers, freed names."""

from contextlib import suppress

import pytest

from spark_log.config import TopicConfig
from spark_log.errors import (
    LogTruncatedError,
    ProducerFencedError,
    TransactionAbortableError,
    UnknownOutcomeError,
)
from spark_log.record import ProducerIdAndEpoch
from spark_log.transaction import decisions
from spark_log.transaction.state import TransactionMetadata
from spark_log.transaction.state_log import TransactionStateLog
from tests.log.support import HookedStore, done_but, failing
from tests.transaction.support import OWNER, P0, P1

LOST = UnknownOutcomeError("no answer")


@pytest.fixture
def store(memory_store):
    return HookedStore(memory_store)


@pytest.fixture
def log(store, clock):
    log = TransactionStateLog(store, "orders", clock)
    log.commit(lambda state: decisions.initialize(state, 1000, 1))
    return log


def begin(state):
    return decisions.register(state, OWNER, [P0])


def commit(state):
    return decisions.commit(state, OWNER, [OWNER])


def abort(state):
    return decisions.expire(state, 1)


def files(store):
    return [file.name for file in store.inner.list(TransactionStateLog.directory_of("orders"))]


def test_a_change_is_seen_by_all(store, log, clock):
    log.commit(begin)
    other = TransactionStateLog(store, "orders", clock)
    assert (other.replay(), other.state) == (1, log.state)


@pytest.mark.parametrize("before", [[], [begin], [begin, commit]])
def test_start_up_costs_a_listing_and_the_newest_segment(memory_store, clock, before):
    store = HookedStore(memory_store, is_mapped=False)
    log = TransactionStateLog(store, "orders", clock)
    log.commit(lambda state: decisions.initialize(state, 1000, 1))
    for change in before:
        log.commit(change)
    other = TransactionStateLog(store, "orders", clock)
    store.calls.clear()
    assert (other.replay(), other.state) == (1, log.state)
    assert [name for name, _ in store.calls] == ["list", "open_buffer"]
    store.calls.clear()
    assert other.replay() == 0
    assert [name for name, _ in store.calls] == ["read_tail"], "the next name"


def test_a_record_of_another_process_is_read_once_and_appended_behind_without_a_listing(
    memory_store, clock
):
    log = TransactionStateLog(memory_store, "orders", clock)
    log.commit(lambda state: decisions.initialize(state, 1000, 1))
    store = HookedStore(memory_store, is_mapped=False)
    other = TransactionStateLog(store, "orders", clock)
    other.replay()
    log.commit(begin)
    store.calls.clear()
    assert (other.replay(), other.state) == (1, log.state)
    assert [name for name, _ in store.calls] == ["read_tail", "read_tail"], "it, and the next name"
    store.calls.clear()
    other.commit(commit)
    assert store.called("list") == []
    assert [path.rpartition("/")[2] for path in store.called("put_if_absent")] == [
        "00000000000000000002.log"
    ]
    log.replay()
    assert log.state == other.state


def test_an_append_long_after_a_read_lists_the_log(memory_store, clock):
    log = TransactionStateLog(memory_store, "orders", clock)
    log.commit(lambda state: decisions.initialize(state, 1000, 1))
    store = HookedStore(memory_store, is_mapped=False)
    other = TransactionStateLog(store, "orders", clock)
    other.replay()
    log.commit(begin)
    other.replay()
    clock.advance_ms(60_000)  # file.delete.delay.ms
    store.calls.clear()
    other.commit(commit)
    assert store.called("list")


@pytest.mark.parametrize(("first", "second"), [(commit, abort), (abort, commit)])
def test_of_two_deciders_one_wins_and_the_other_decides_again(store, log, clock, first, second):
    log.commit(begin)
    other = TransactionStateLog(store, "orders", clock)
    seen = []

    def slow(state):
        seen.append(str(state.state))
        if not seen[1:]:
            other.commit(first)
        return second(state)

    with suppress(TransactionAbortableError):
        log.commit(slow)
    assert seen == ["Ongoing", "PrepareCommit" if first is commit else "PrepareAbort"]
    assert log.state == other.state


def test_a_registration_that_a_decision_overtook_is_refused(store, log, clock):
    log.commit(begin)
    other = TransactionStateLog(store, "orders", clock)
    overtaken: list[TransactionMetadata] = []

    def slow(state):
        if not overtaken:
            overtaken.append(other.commit(commit))
        return decisions.register(state, OWNER, [P1])

    with pytest.raises(ProducerFencedError):
        log.commit(slow)
    assert log.state == overtaken[0]


def test_a_decision_whose_answer_was_lost_is_looked_for(store, log):
    log.commit(begin)
    decided = []

    def decide(state):
        decided.append(str(state.state))
        return commit(state)

    store.once("put_if_absent", done_but(LOST))
    assert log.commit(decide).state == "PrepareCommit"
    assert decided == ["Ongoing"], "it was found, and not made again"
    store.once("put_if_absent", failing(LOST))
    assert log.commit(lambda state: decisions.complete(state, 1)).state == "CompleteCommit"


def test_a_late_reader_reads_one_record(store, log, clock):
    for _ in range(20):
        log.commit(lambda state: decisions.initialize(state, 1000))
    store.calls.clear()
    late = TransactionStateLog(store, "orders", clock)
    assert (late.replay(), late.state) == (1, log.state)
    assert len(store.called("open_buffer")) <= 6


def test_a_long_log_stays_small(store, clock):
    config = TopicConfig.parse({"file.delete.delay.ms": 1000})
    log = TransactionStateLog(store, "orders", clock, config)
    most = 0
    for _ in range(300):
        log.commit(lambda state: decisions.initialize(state, 1000, 1))
        clock.advance_ms(100)
        most = max(most, len(files(store)))
    assert most < 2 * log.trim_every + 30
    late = TransactionStateLog(store, "orders", clock)
    late.replay()
    assert late.state.owner == ProducerIdAndEpoch(1, 299)


def test_a_change_on_an_old_state_does_not_take_a_name_that_was_freed(store, clock):
    """A change is first tried on the state as it is known, without a look at the log."""
    config = TopicConfig.parse({"file.delete.delay.ms": 1000})
    slept = TransactionStateLog(store, "orders", clock, config)
    slept.commit(lambda state: decisions.initialize(state, 1000, 1))
    other = TransactionStateLog(store, "orders", clock, config)
    for _ in range(3 * other.trim_every):
        other.commit(lambda state: decisions.initialize(state, 1000))
        clock.advance_ms(100)
    assert "00000000000000000001.log" not in files(store), "the name is free"
    with pytest.raises(ProducerFencedError):
        slept.commit(begin)
    assert slept.state == other.state
    assert "00000000000000000001.log" not in files(store)


def test_a_log_that_was_removed_is_not_begun_again(store, log, clock, memory_store):
    memory_store.delete_directory(TransactionStateLog.directory_of("orders"))
    with pytest.raises(LogTruncatedError):
        TransactionStateLog(store, "orders", clock).commit(
            lambda state: decisions.initialize(state, 1000, 2)
        )


def test_each_transactional_id_has_its_own_directory():
    names = {TransactionStateLog.directory_of(each) for each in ("a", "a/b", "..", "producers", "")}
    assert len(names) == 5
    assert all(name.count("/") == 2 for name in names)
