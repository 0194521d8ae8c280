"""Simulations of the prototype of stripes find no violation, and one without each safety rule."""

import re
from collections import Counter

import pytest

from tests.simulation import simulate_many
from tests.simulation.log.simulation import SimulationFailedError
from tests.simulation.stripes.rules import STRIPES_RULES
from tests.simulation.stripes.simulation import simulate_stripes

SEEDS = 100
SEEDS_PER_RULE = 300


def fails(seed, rule):
    try:
        simulate_stripes(seed, STRIPES_RULES[rule])
    except SimulationFailedError:
        return True
    return False


def test_no_seed_breaks_a_guarantee():
    all_totals = list(simulate_many(range(SEEDS), of="stripes"))
    assert [failed.args[0] for totals in all_totals for failed in totals.failures] == []
    assert sum(totals.records for totals in all_totals) > 10 * SEEDS


@pytest.mark.long
@pytest.mark.parametrize("rule", STRIPES_RULES)
def test_the_simulation_fails_without_the_rule_that(rule):
    assert any(fails(seed, rule) for seed in range(SEEDS_PER_RULE)), f"nobody misses: {rule}"


@pytest.fixture(scope="module")
def traces():
    return {seed: [str(entry) for entry in simulate_stripes(seed).trace] for seed in range(30)}


def test_one_seed_runs_the_same_way_each_time(traces):
    assert [str(entry) for entry in simulate_stripes(5).trace] == traces[5]
    assert traces[5] != traces[6]


@pytest.mark.parametrize(
    "what",
    [
        r"crashes",
        r"#, sequence #: #",
        r"#, sequence #: Refusal.FENCED",
        r"put_if_absent #\.stripe: exists",
        r"put_if_absent #\.stripe: gets no answer",
        r"put_if_absent #\.stripe: a late copy takes effect",
        r"put_if_absent #-#\.log: done",
        r"put_if_absent #\.home: done",
        r"delete #\.stripe: done",
        r"delete #\.home: done",
    ],
)
def test_each_kind_of_event_happens(traces, what):
    texts = Counter(
        re.sub(r"[0-9]+", "#", line.split("  ")[-1].strip())
        for trace in traces.values()
        for line in trace
    )
    assert any(re.fullmatch(what, text) for text in texts), what
