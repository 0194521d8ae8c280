"""Many seeds of each simulation find no violation; each one's own tests run a few of them."""

import os

import pytest

from tests.simulation import simulate_many
from tests.simulation.runner import SUBJECTS

SEEDS = 40
MORE_SEEDS = {"log": 200}
"""Those whose seeds are quick."""


@pytest.mark.long
@pytest.mark.parametrize("of", SUBJECTS)
def test_no_seed_breaks_a_guarantee(of):
    seeds = MORE_SEEDS.get(of, SEEDS)
    all_totals = list(simulate_many(range(seeds), of=of, jobs=os.cpu_count() or 1))
    assert [failed.args[0] for totals in all_totals for failed in totals.failures] == []
    assert sum(totals.seeds for totals in all_totals) == seeds
    assert sum(totals.records for totals in all_totals) > seeds, "something is written"
