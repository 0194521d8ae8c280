"""Simulations of topic deletion find no violation, and find one without each safety rule."""

import re
from collections import Counter

import pytest

from tests.simulation.deletion.rules import DELETION_RULES
from tests.simulation.deletion.simulation import DeletionSimulation
from tests.simulation.simulation import SimulationFailedError

SEEDS = (1, 3, 11, 23, 27, 32)
"""Seeds that together have every kind of event. `test_many_seeds` runs others."""

SEEDS_PER_RULE = 30
RARE = {"metadata are looked at after the markers"}
"""Rules whose absence shows only in one of hundreds of seeds: `test_deletion` tests them."""


def fails(seed, rule):
    try:
        DeletionSimulation(seed, DELETION_RULES[rule]).run()
    except SimulationFailedError:
        return True
    return False


@pytest.fixture(scope="module")
def results():
    """By seed, the result of its simulation."""
    return {seed: DeletionSimulation(seed).run() for seed in SEEDS}


def test_no_seed_breaks_a_guarantee(results):
    assert sum(result.records for result in results.values()) > len(SEEDS), "topics are made"


@pytest.mark.long
@pytest.mark.parametrize("rule", [rule for rule in DELETION_RULES if rule not in RARE])
def test_the_simulation_fails_without_the_rule_that(rule):
    assert any(fails(seed, rule) for seed in range(SEEDS_PER_RULE)), f"nobody misses: {rule}"


def test_one_seed_runs_the_same_way_each_time():
    first, second = DeletionSimulation(5).run(), DeletionSimulation(5).run()
    assert list(map(str, first.trace)) == list(map(str, second.trace))


@pytest.fixture(scope="module")
def happened(results):
    """The number of trace lines of each kind, without names."""
    texts: Counter[str] = Counter()
    for result in results.values():
        for entry in result.trace:
            text = re.sub(r"\b[ab]\.[A-Za-z]{22}\b", "T", entry.text)
            texts[entry.actor.split(" ")[0] + ": " + re.sub(r"[0-9]+", "#", text)] += 1
    return texts


@pytest.mark.parametrize(
    "what",
    [
        "founder: crashes",
        "cleaner: crashes",
        "founder: deleted [ab]",
        "founder: put T: done",
        "founder: remove #.log: done",
        "cleaner: remove #.log: done",
        "cleaner: removed # files of T",
        "appender: append b'a#/#/#' to T-#",
        "cleaner: put_if_absent #-#.#.log: done",
        ": put_if_absent #.log: a late copy takes effect",
        "cleaner: list __deleted_topics: # files(, # wrong)?",
        "(cleaner|founder|appender): its clock is set -?[#.e+]+ days off",
        "cleaner: does not clean: its clock is too far off",
    ],
)
def test_each_kind_of_event_happens(happened, what):
    assert any(re.fullmatch(what, text) for text in happened), what
