"""Deterministic simulation: the shipped log on simulated storage, with all chance from a seed.

Actors (writers of several kinds, followers, seekers, mergers, retention, cleaners, a vandal) run
the shipped code as coroutines. Each call of the store is a step. A scheduler draws from the seed
which step comes next, and which calls are slow, fail, lose their answer or take effect again much
later; it also pauses and crashes processes. Every result that an actor gets is checked at once
against a model of the log.

`LogSimulation` runs one seed of a partition's log, `simulate_many` runs many seeds of any subject,
and ``python -m tests.simulation --help`` does both from a shell. `RULES` has variants of the log
in which one safety rule is left out; tests check that the simulator finds what goes wrong then.
Needs greenlet (``pip install 'spark-log[dev]'``).
"""

from tests.simulation.log.rules import RULES, SOUND, Variant
from tests.simulation.log.simulation import LogSimulation
from tests.simulation.runner import SimulationTotals, simulate_many
from tests.simulation.simulation import SimulationFailedError, SimulationResult

__all__ = [
    "RULES",
    "SOUND",
    "LogSimulation",
    "SimulationFailedError",
    "SimulationResult",
    "SimulationTotals",
    "Variant",
    "simulate_many",
]
