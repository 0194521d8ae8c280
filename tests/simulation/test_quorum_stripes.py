"""Simulations of stripes on a quorum of roots hold, and fail without rules of either."""

import pytest

from tests.simulation.quorum.rules import QUORUM_RULES
from tests.simulation.simulation import fails, texts_of
from tests.simulation.stripes.on_quorum import QuorumStripesSimulation
from tests.simulation.stripes.rules import STRIPES_RULES

SEEDS = (*range(8), 13)
"""Seeds that together have every kind of event. `test_many_seeds` runs others."""
SEEDS_PER_RULE = 60

OF_STRIPES = {
    name: rule
    for name, rule in STRIPES_RULES.items()
    if name
    not in {
        # Few seeds have a process that stands still for so long, between so many requests.
        "a success is final within half the delay",
        "what was observed counts for half the delay",
        "an object is opened again by its append id",
        "a poll that another thread began earlier does not count",
    }
}
OF_QUORUM = {
    name: QUORUM_RULES[name]
    for name in (
        "a ballot has one owner",
        "a vote stands on a majority",
        "the file is looked for after the votes",
        "votes of others are no proof",
        "a file is shown when a majority holds it",
        "a put is done when a majority holds the file",
    )
}
"""Those without which a few seeds fail; `test_quorum` has simulations made for the rest."""


@pytest.mark.long
@pytest.mark.parametrize("rule", [*OF_STRIPES, *OF_QUORUM])
def test_the_simulation_fails_without_the_rule_that(rule):
    variant = {**OF_STRIPES, **OF_QUORUM}[rule]
    assert any(fails(QuorumStripesSimulation(seed, variant)) for seed in range(SEEDS_PER_RULE))


@pytest.fixture(scope="module")
def texts():
    """The trace lines of some seeds, without their numbers."""
    return texts_of(QuorumStripesSimulation(seed) for seed in SEEDS)


@pytest.mark.parametrize(
    "what",
    [
        "append b'p#.#:#:#': at # to #",
        "append b'p#.#:#:#': at # to # found",
        "append b't#.#:#:#': at # to #",
        "read # from # to #",
        "takes home: TakenHome(number=#, objects=#, partitions=#, size_bytes=#, has_more=False)",
        "put_if_absent #.stripe.#.claim: done",
        "put_if_absent #.stripe.#.claim: exists",
        "put_if_absent #.stripe.#.vote: done",
        "put_if_absent #.stripe: exists",
        "put_if_absent #.home: done",
        "delete #.stripe: done",
        "memory://quorum# is down",
        "memory://quorum# is up",
        "memory://quorum# is wiped",
        "memory://quorum# is down for good",
        "crashes",
    ],
)
def test_everything_holds_while_each_of_these_happens(texts, what):
    assert what in texts
