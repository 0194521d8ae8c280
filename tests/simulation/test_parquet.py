"""Simulations of logs with Parquet segments find no violation."""

import pytest

from tests.simulation.parquet import ParquetCompactionSimulation, ParquetLogSimulation


@pytest.mark.parametrize(
    ("simulation", "seeds"), [(ParquetLogSimulation, 20), (ParquetCompactionSimulation, 6)]
)
def test_everything_holds(simulation, seeds):
    noted = 0
    for seed in range(seeds):
        trace = simulation(seed).run().trace
        noted += sum(".parquet" in entry.text for entry in trace)
    assert noted > 5 * seeds, "there were Parquet segments"
