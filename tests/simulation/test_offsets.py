"""Simulations of the offsets table find no violation, and find one without each safety rule."""

import re
from collections import Counter

import pytest

from tests.simulation.offsets.rules import OFFSETS_RULES
from tests.simulation.offsets.simulation import OffsetsSimulation
from tests.simulation.simulation import SimulationFailedError

SEEDS = (3, 5, 6, 8, 10, 15)
"""Seeds that together have every kind of event. `test_many_seeds` runs others."""

SEEDS_PER_RULE = 80
RARE = {
    "no version names a file that was written long ago",
    "a commit during maintenance is not forgotten",
}
"""Rules whose absence shows only in one of hundreds of seeds: `tests.coordinator` tests them."""

FIRST_SEEDS = {
    "a missing name is the end only where nothing was freed": 175,
    "a put into a freed name is no append": 125,
    "the newest checkpoint is read": 449,
    "a lost answer is unknown": 28,
    "nothing is decided by a process's own clock": 7,
    "stamps are held against the storage's time": 13,
    "a read that failed is made again": 184,
    "a commit of an older generation is refused": 69,
}
"""The first seed that found a violation when this was written; it saves time."""


def fails(seed, rule):
    try:
        OffsetsSimulation(seed, OFFSETS_RULES[rule]).run()
    except SimulationFailedError:
        return True
    return False


@pytest.fixture(scope="module")
def results():
    """By seed, the result of its simulation."""
    return {seed: OffsetsSimulation(seed).run() for seed in SEEDS}


def test_no_seed_breaks_a_guarantee(results):
    assert sum(result.records for result in results.values()) > 10 * len(SEEDS), "versions are made"


@pytest.mark.long
@pytest.mark.parametrize("rule", [rule for rule in OFFSETS_RULES if rule not in RARE])
def test_the_simulation_fails_without_the_rule_that(rule):
    first = FIRST_SEEDS.get(rule, 0)
    seeds = range(first, first + SEEDS_PER_RULE)
    assert any(fails(seed, rule) for seed in seeds), f"nobody misses: {rule}"


@pytest.fixture(scope="module")
def traces(results):
    """By seed, the lines of its trace, with all faults."""
    return {seed: [str(entry) for entry in result.trace] for seed, result in results.items()}


def test_one_seed_runs_the_same_way_each_time(traces):
    assert [str(entry) for entry in OffsetsSimulation(5).run().trace] == traces[5]
    assert traces[5] != traces[6]


@pytest.mark.parametrize(
    "what",
    [
        r"crashes",
        r"does nothing for a while",
        r"g#: # acknowledged",
        r"frees everything before version #",
        r"put_if_absent #\.json: exists",
        r"put_if_absent #\.json: gets no answer",
        r"put_if_absent part-.*: done",
        r"put #\.checkpoint\.parquet: done",
        r"delete #\.json: done",
        r"delete commit-.*: done",
        r"delete #\.checkpoint\.parquet: done",
        r"UnknownOutcomeError: .*",
        r"ClockSkewError: .*|put _tidied\.json: done",
    ],
)
def test_each_kind_of_event_happens(traces, what):
    texts = Counter(
        re.sub(r"[0-9]+", "#", line.split("  ")[-1].strip())
        for trace in traces.values()
        for line in trace
    )
    assert any(re.fullmatch(what, text) for text in texts), what
