"""Simulations of transactions find no violation, and find one without each rule of the protocol."""

import re

import pytest

from tests.simulation.simulation import SimulationFailedError
from tests.simulation.transactions.rules import TRANSACTIONS_RULES
from tests.simulation.transactions.simulation import TransactionsSimulation

SEEDS = (0, 8, 50, 84)
"""Seeds that together have every kind of event. `test_simulation_replay` runs others."""

SEEDS_PER_RULE = 150

FIRST_SEEDS = {
    "a partition is registered before the put there": 8,
    "a registration is refused after the decision": 18,
    "a marker raises the epoch": 3,
    "no later marker is put where an earlier one is missing": 22,
    "no later record is put where an earlier marker is missing": 22,
    "participants that do not count are aborted": 15,
    "a decision is appended where it was made": 1,
    "a micro-batch is committed once": 70,
    "a producer id is recorded before it is used": 42,
}
"""The first seed that found a violation when this was written; it saves time."""


def fails(seed, rule):
    try:
        TransactionsSimulation(seed, TRANSACTIONS_RULES[rule]).run()
    except SimulationFailedError:
        return True
    return False


@pytest.mark.long
@pytest.mark.parametrize("rule", TRANSACTIONS_RULES)
def test_the_simulation_fails_without_the_rule_that(rule):
    first = FIRST_SEEDS.get(rule, 0)
    seeds = range(first, first + SEEDS_PER_RULE)
    assert any(fails(seed, rule) for seed in seeds), f"nobody misses: {rule}"


@pytest.fixture(scope="module")
def results():
    """The results of some seeds, each with the faults that it has drawn."""
    return [TransactionsSimulation(seed).run() for seed in SEEDS]


def test_no_seed_breaks_a_guarantee(results):
    assert sum(result.records for result in results) > len(SEEDS), "transactions are decided"


@pytest.mark.parametrize(
    "what",
    [
        r"crashes",
        r"initialized: .*",
        r"is fenced: ProducerFencedError",
        r"is fenced: InvalidProducerEpochError",
        r"leaves its transaction open",
        r"committed; next is .*",
        r"aborted; next is .*",
        r"commit is refused: ProducerFencedError",
        r"commit is refused: TransactionAbortableError",
        r"attempt # of .*",
        r"attempt # fails: ProducerFencedError",
        r"attempt # is done",
        r"has resolved .*",
        r"read # to # of #",
        r"(abort|finish|expire) (producer #|job)",
        r"dies before its checkpoint",
        r"# transactions are open before #",
        r"scan #: # records",
        r"damages #\.snapshot",
        r"put_if_absent #\.log: exists",
        r"put_if_absent #\.log: gets no answer",
        r"put_if_absent #\.log: a late copy takes effect",
        r"put_if_absent #-#\.#\.log: done",
        r"put_if_absent #\.generation: done",
        r"put_if_absent #-#\.start: done",
        r"delete #\.log: done",
    ],
)
def test_each_kind_of_event_happens(results, what):
    texts = {re.sub(r"[0-9]+", "#", entry.text) for result in results for entry in result.trace}
    assert any(re.fullmatch(what, text) for text in texts), what
