"""Every safety rule of DESIGN.md, sections 5 to 7, is missed when it is left out."""

import pytest

from spark_log.testing.simulation import RULES, SimulationFailedError, simulate

SEEDS = 3000
"""Within so many seeds each is caught; most take a few."""


RARE = {
    "a listing that took too long is made again",
    "a range is read of a file that is still the same",
    "a start marker is removed after the delay",
    "an appender merges what it knew lately",
    "what was passed at once was looked at lately",
}
"""Missed in one of ten thousand seeds or fewer: for `make simulate ARGS='--rule …'`, not a test."""


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule not in RARE])
def test_the_simulation_fails_without_the_rule_that(rule):
    assert any(fails(seed, RULES[rule]) for seed in range(SEEDS)), f"nobody misses: {rule}"


def fails(seed, variant):
    try:
        simulate(seed, variant)
    except SimulationFailedError:
        return True
    return False
