"""Simulations of offsets that Kafka's clients commit with transactions, with and without rules."""

import re
from collections import Counter
from dataclasses import replace

import pytest

from tests.simulation import simulate_many
from tests.simulation.gateway_transactions.rules import GATEWAY_TRANSACTIONS_RULES
from tests.simulation.gateway_transactions.simulation import GatewayTransactionsSimulation
from tests.simulation.simulation import SimulationFailedError

SEEDS = 4
SEEDS_PER_RULE = 300

RARE = {"a decided transaction never sets back a later one"}
"""Rules whose absence shows only in one of hundreds of seeds: members that also commit without a
transaction show it soon (`tests/simulation/test_groups.py`)."""

FIRST_SEED = {
    "offsets of an aborted transaction are dropped": 4,
    "a member of the present generation sends offsets": 7,
    "a member begins after undecided transactions": 10,
    "a producer of an older epoch sends and decides nothing": 13,
}
"""The first seed of the search, for rules that few seeds miss, so that the test is quick."""


def fails(seed, rule):
    try:
        GatewayTransactionsSimulation(seed, GATEWAY_TRANSACTIONS_RULES[rule]).run()
    except SimulationFailedError:
        return True
    return False


def test_no_seed_breaks_a_guarantee():
    all_totals = list(simulate_many(range(SEEDS), of="gateway-transactions"))
    assert [failed.args[0] for totals in all_totals for failed in totals.failures] == []
    assert sum(totals.records for totals in all_totals) > 5 * SEEDS, "transactions are committed"


@pytest.mark.long
@pytest.mark.parametrize("rule", [rule for rule in GATEWAY_TRANSACTIONS_RULES if rule not in RARE])
def test_the_simulation_fails_without_the_rule_that(rule):
    first = FIRST_SEED.get(rule, 0)
    seeds = [*range(first, SEEDS_PER_RULE), *range(first)]
    assert any(fails(seed, rule) for seed in seeds), f"nobody misses: {rule}"


@pytest.mark.parametrize("commit", [0.01, 0.0])
def test_members_that_commit_seldom_are_waited_for_and_others_fail(commit):
    simulation = GatewayTransactionsSimulation(24)
    simulation.world.profile = replace(simulation.world.profile, commit=commit)
    if commit:
        simulation.run()
    else:
        with pytest.raises(SimulationFailedError, match="no transaction is committed"):
            simulation.run()


def test_one_seed_runs_the_same_way_each_time():
    first, second = GatewayTransactionsSimulation(5).run(), GatewayTransactionsSimulation(5).run()
    assert list(map(str, first.trace)) == list(map(str, second.trace))


@pytest.mark.long
def test_each_kind_of_event_happens():
    texts: Counter[str] = Counter()
    profiles = set()
    for seed in range(30):
        simulation = GatewayTransactionsSimulation(seed)
        profiles.add((simulation.profile.is_classic, simulation.profile.keeps_identity))
        for entry in simulation.run().trace:
            texts[re.sub(r"[0-9]+", "#", entry.text)] += 1
    assert len(profiles) == 4
    for what in (
        r"crashes",
        r"is fenced",
        r"sends offsets in epoch #",
        r"commits",
        r"aborts",
        r"leaves a transaction open",
        r"stands still in a transaction",
        r"cannot end: ProducerFencedError",
        r"txn#: initialize, Empty #",
        r"txn#: commit, PrepareCommit #",
        r"txn#: abort, PrepareAbort #",
    ):
        assert any(re.fullmatch(what, text) for text in texts), what
