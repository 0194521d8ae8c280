"""Simulations of stripes find no violation, and find one without each of its rules."""

import pytest

from tests.simulation.simulation import fails, texts_of
from tests.simulation.stripes.requests import count_requests
from tests.simulation.stripes.rules import STRIPES_RULES
from tests.simulation.stripes.simulation import StripesSimulation

SEEDS = (*range(12), 13, 16, 19, 21, 30, 36, 40)
"""Seeds that together have every kind of event. `test_many_seeds` runs others."""

SEEDS_PER_RULE = 120

RARE = {"an object is opened again by its append id"}
"""Rules that few seeds miss, each with a test in tests/log/stripe."""


@pytest.mark.long
@pytest.mark.parametrize("rule", [rule for rule in STRIPES_RULES if rule not in RARE])
def test_the_simulation_fails_without_the_rule_that(rule):
    assert any(
        fails(StripesSimulation(seed, STRIPES_RULES[rule])) for seed in range(SEEDS_PER_RULE)
    )


@pytest.mark.parametrize(
    ("writers", "puts", "reads"), [(1, 1.0, 0.05), (2, 1.1, 2.2), (4, 1.3, 4.6)]
)
def test_the_requests_of_writers_that_share_a_stripe_stay_within(writers, puts, reads):
    """The reads grow with the writers, the puts hardly (ADR 76)."""
    found = count_requests(writers, objects=40)
    assert found.puts <= puts
    assert found.reads <= reads
    assert found.lists == writers


@pytest.fixture(scope="module")
def texts():
    """The trace lines of some seeds, without their numbers."""
    return texts_of(StripesSimulation(seed) for seed in SEEDS)


@pytest.mark.parametrize(
    "what",
    [
        "append b'p#.#:#:#': at # to #",
        "append b'p#.#:#:#': at # to # found",
        "append b'p#.#:#:#': UnknownOutcomeError",
        "append b'p#.#:#:#': InvalidProducerEpochError",
        "append b'p#.#:#:#': StorageError",
        "append b'w#:#': at # to #",
        "append b'w#:#': at # to # found",
        "append b'w#:#': UnknownOutcomeError",
        "append b't#.#:#:#': at # to #",
        "append b't#.#:#:#': InvalidProducerEpochError",
        "marker of #: at # to #",
        "marker of #: exists",
        "append b'w#:#': LogEndOffsetMismatchError",
        "read # from # to #",
        "scan # from # to #",
        "observe #: # to #",
        "# ends at #",
        "# transactions of # are open",
        "takes home: TakenHome(number=#, objects=#, partitions=#, size_bytes=#, has_more=False)",
        "takes home: TakenHome(number=#, objects=#, partitions=#, size_bytes=#, has_more=True)",
        "put_if_absent #.stripe: exists",
        "put_if_absent #.stripe: gets no answer",
        "put_if_absent #.stripe: is lost on its way",
        "put_if_absent #.stripe: a late copy takes effect",
        "put_if_absent #.stripe: is sent again by the client: exists",
        "put_if_absent #.home: exists",
        "delete #.stripe: done",
        "delete #.home: done",
        "delete #.#.log: done",
        "crashes",
    ],
)
def test_everything_holds_while_each_of_these_happens(texts, what):
    assert what in texts
