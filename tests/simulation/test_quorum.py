"""Simulations of a quorum of roots find no violation, and find one without each safety rule."""

import re
from collections import Counter

import pytest

from tests.simulation.quorum.rules import QUORUM_RULES
from tests.simulation.quorum.simulation import QuorumSimulation
from tests.simulation.simulation import SimulationFailedError

SEEDS = (5, 6, 8, 9, 11, 14, 22, 24, 31, 32)
"""Seeds that together have every kind of event. `test_many_seeds` runs others."""

SEEDS_PER_RULE = 60
RARE = {
    "the highest vote is adopted",
    "objects are deleted only beside the file",
    "members that do not agree are asked again",
    "a list is on a majority of the members before",
}
"""Rules whose absence shows only in one of many hundreds of seeds.

`tests/storage/quorum/test_rare_rules.py` has a situation for each.
"""

FIRST_SEEDS = {
    "only all claims are a choice": 440,
    "a proposal that may have been chosen is adopted": 35,
    "a proposal that all may have claimed is adopted": 118,
    "earlier ballots are closed": 674,
    "a put is done when a majority holds the file": 86,
    "a root without its id does not count": 33,
    "a file is shown when a majority holds it": 44,
    "a newer list of the members is noticed": 752,
    "decisions are finished before the members change": 1,
}
"""The first seed that found a violation when this was written; it saves time."""


def fails(seed, rule):
    try:
        QuorumSimulation(seed, QUORUM_RULES[rule]).run()
    except SimulationFailedError:
        return True
    return False


@pytest.fixture(scope="module")
def results():
    """By seed, the result of its simulation."""
    return {seed: QuorumSimulation(seed).run() for seed in SEEDS}


def test_no_seed_breaks_a_guarantee(results):
    assert sum(result.records for result in results.values()) > 3 * len(SEEDS), "names are taken"


@pytest.mark.long
@pytest.mark.parametrize("rule", [rule for rule in QUORUM_RULES if rule not in RARE])
def test_the_simulation_fails_without_the_rule_that(rule):
    first = FIRST_SEEDS.get(rule, 0)
    seeds = range(first, first + SEEDS_PER_RULE)
    assert any(fails(seed, rule) for seed in seeds), f"nobody misses: {rule}"


@pytest.fixture(scope="module")
def traces(results):
    """By seed, the lines of its trace; in 115 a root is down for good."""
    return {seed: [str(entry) for entry in result.trace] for seed, result in results.items()}


def test_one_seed_runs_the_same_way_each_time(traces):
    assert [str(entry) for entry in QuorumSimulation(5).run().trace] == traces[5]
    assert traces[5] != traces[6]


@pytest.mark.parametrize(
    "what",
    [
        r"crashes",
        r"log-#/# is put: .*",
        r"log-#/# is taken",
        r"has a producer id",
        r"memory://quorum-# is (down|up|wiped)",
        r"memory://quorum-# is down for good",
        r"members #: .*",
        r"put_if_absent #\.#\.claim: gets no answer",
        r"put_if_absent #\.#\.vote: exists",
        r"put_if_absent #: a late copy takes effect",
        r"delete #\.#\.claim: done",
        r"UnknownOutcomeError: .*",
        r"StorageUnavailableError: .*has lost its id.*",
    ],
)
def test_each_kind_of_event_happens(traces, what):
    texts = Counter(
        re.sub(r"[0-9]+", "#", line.split("  ")[-1].strip())
        for trace in traces.values()
        for line in trace
    )
    assert any(re.fullmatch(what, text) for text in texts), what
