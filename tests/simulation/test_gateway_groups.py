"""Simulations of a group of Kafka's clients find no violation, and find one without each rule."""

import re
from collections import Counter

import pytest

from tests.simulation import simulate_many
from tests.simulation.gateway_groups.rules import GATEWAY_GROUP_RULES
from tests.simulation.gateway_groups.simulation import GatewayGroupSimulation
from tests.simulation.simulation import SimulationFailedError

SEEDS = 5
SEEDS_PER_RULE = 400
FIRST_SEED = {"a new coordinator raises the fence": 329}
"""The first seed of the search, for rules that few seeds miss, so that the test is quick."""


def fails(seed, rule):
    try:
        GatewayGroupSimulation(seed, GATEWAY_GROUP_RULES[rule]).run()
    except SimulationFailedError:
        return True
    return False


def test_no_seed_breaks_a_guarantee():
    all_totals = list(simulate_many(range(SEEDS), of="gateway-groups"))
    assert [failed.args[0] for totals in all_totals for failed in totals.failures] == []
    assert sum(totals.records for totals in all_totals) > 3 * SEEDS, "groups do change"


@pytest.mark.long
@pytest.mark.parametrize("rule", GATEWAY_GROUP_RULES)
def test_the_simulation_fails_without_the_rule_that(rule):
    first = FIRST_SEED.get(rule, 0)
    seeds = [*range(first, SEEDS_PER_RULE), *range(first)]
    assert any(fails(seed, rule) for seed in seeds), f"nobody misses: {rule}"


def test_one_seed_runs_the_same_way_each_time():
    first, second = GatewayGroupSimulation(5).run(), GatewayGroupSimulation(5).run()
    assert list(map(str, first.trace)) == list(map(str, second.trace))


@pytest.mark.long
def test_each_kind_of_event_happens():
    texts: Counter[str] = Counter()
    for seed in range(40):
        for entry in GatewayGroupSimulation(seed).run().trace:
            texts[re.sub(r"[0-9-]+", "#", entry.text)] += 1
    for what in (
        r"crashes",
        r"comes up again",
        r"generation # by join: CompletingRebalance",
        r"generation # by join: PreparingRebalance",
        r"generation # by sync: Stable",
        r"generation # by leave: .*",
        r"generation # by expire: .*",
        r"begins topic# at # in generation #",
        r"write: has lost the group",
        r"check: has lost the group",
        r"load: the storage does not answer",
        r"write: the storage does not answer",
        r"put_if_absent #\.log: exists",
        r"put_if_absent #\.log: gets no answer",
    ):
        assert any(re.fullmatch(what, text) for text in texts), what
