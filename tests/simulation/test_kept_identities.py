"""Simulations of clients that keep their identity find no violation, and one without each rule."""

import re

import pytest

from tests.simulation.simulation import SimulationFailedError
from tests.simulation.transactions.kept_identities import KeptIdentitySimulation
from tests.simulation.transactions.kept_identity_rules import KEPT_IDENTITY_RULES

SEEDS = (2, *range(6, 12))

FIRST_SEEDS = {
    "a sequence goes on across transactions": 28,
    "a partition remembers the runs of earlier epochs": 28,
    "a new owner ends the identity of the client before it": 14,
    "an abort by others ends the client's identity": 30,
    "an abort after a commit is that of a transaction that has not begun": 33,
}
"""The first seed that found a violation when this was written; it saves time."""


@pytest.mark.long
@pytest.mark.parametrize("rule", sorted(KEPT_IDENTITY_RULES))
def test_the_simulation_fails_without_the_rule_that(rule):
    first = FIRST_SEEDS.get(rule, 0)
    assert any(fails(seed, rule) for seed in range(first, first + 150)), f"nobody misses: {rule}"


def fails(seed, rule):
    try:
        KeptIdentitySimulation(seed, KEPT_IDENTITY_RULES[rule]).run()
    except SimulationFailedError:
        return True
    return False


@pytest.fixture(scope="module")
def results():
    return [KeptIdentitySimulation(seed).run() for seed in SEEDS]


def test_no_seed_breaks_a_guarantee(results):
    assert sum(result.records for result in results) > len(SEEDS), "transactions are decided"


@pytest.mark.parametrize(
    "what",
    [
        r"crashes",
        r"committed",
        r"aborted",
        r"is fenced: .*",
        r"late batch: acknowledged",
        r"late batch: .*Error",
        r"late end: done",
        r"no request of its transaction arrives",
        r"the connection did not know the transaction",
    ],
)
def test_each_kind_of_event_happens(results, what):
    assert any(re.fullmatch(what, each.text) for result in results for each in result.trace)
