"""A simulation finds a violation without each safety rule of docs/protocol."""

import pytest

from tests.simulation import RULES, LogSimulation, SimulationFailedError

SEEDS = 3000
"""Maximum number of seeds until a violation is found; for most rules a few are enough."""


RARE = {
    "a listing that took too long is made again",
    "a range is read of a file that is still the same",
    "a start marker is removed after the delay",
    "an appender merges only by a recent listing",
    "segments are passed at once only after a recent listing",
}
"""Rules whose absence shows in one of 10,000 seeds: for `make simulate ARGS='--rule …'`."""


FIRST_SEED = {
    "a listing with a hole is repeated": 1486,
    "a name is freed after the delay": 215,
    "an appender frees names after the delay": 497,
    "a merge from memory keeps batch headers": 257,
    "a fenced producer looks up its lost append": 269,
}
"""Where the search begins for rules that few seeds miss, so that the test is quick."""


@pytest.mark.long
@pytest.mark.parametrize("rule", [rule for rule in RULES if rule not in RARE])
def test_the_simulation_fails_without_the_rule_that(rule):
    first = FIRST_SEED.get(rule, 0)
    seeds = range(first, first + SEEDS)
    assert any(fails(seed, RULES[rule]) for seed in seeds), f"nobody misses: {rule}"


def fails(seed, variant):
    try:
        LogSimulation(seed, variant).run()
    except SimulationFailedError:
        return True
    return False
