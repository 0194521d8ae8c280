"""Simulations of changes of stripes find no violation, and find one without each of their rules."""

import pytest

from tests.simulation.simulation import fails, texts_of
from tests.simulation.stripe_changes.rules import STRIPE_CHANGES_RULES
from tests.simulation.stripe_changes.simulation import StripeChangesSimulation

SEEDS = 12
SEEDS_PER_RULE = 40


@pytest.mark.long
@pytest.mark.parametrize("rule", STRIPE_CHANGES_RULES)
def test_the_simulation_fails_without_the_rule_that(rule):
    assert any(
        fails(StripeChangesSimulation(seed, STRIPE_CHANGES_RULES[rule]))
        for seed in range(SEEDS_PER_RULE)
    )


@pytest.mark.long
def test_no_seed_finds_a_violation():
    for seed in range(100, 250):
        StripeChangesSimulation(seed).run()


@pytest.fixture(scope="module")
def texts():
    """The trace lines of some seeds, without their numbers."""
    return texts_of(StripeChangesSimulation(seed) for seed in range(SEEDS))


@pytest.mark.parametrize(
    "what",
    [
        "has stripes range(#, #)",
        "knows stripes range(#, #)",
        "a change fails: UnknownOutcomeError",
        "append b'p#.#:#:#': at # to #",
        "append b'p#.#:#:#': at # to # found",
        "append b'p#.#:#:#': StorageError",
        "append b't#.#:#:#': at # to #",
        "marker of #: at # to #",
        "marker of #: exists",
        "read # from # to #",
        "scan # from # to #",
        "put_if_absent #.home: done",
        "put_if_absent #.stripe: exists",
        "put_if_absent #.stripe: gets no answer",
        "delete #.stripe: done",
        "delete #.home: done",
        "delete #.log: done",
        "crashes",
    ],
)
def test_everything_holds_while_each_of_these_happens(texts, what):
    assert what in texts
