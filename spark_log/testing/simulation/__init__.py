"""Deterministic simulation: the real log, on simulated storage, at the mercy of a seed.

Actors (writers of every kind, followers, seekers, mergers, retention, cleaners, a vandal) run the
shipped code as coroutines. Each call on the store is a step; a scheduler that draws from the seed
orders the steps, and makes calls slow, fail, lose their answers, take effect again long after;
it stops processes and ends them. Whatever an actor is told is held against the truth at once.

`simulate` runs one seed, `simulate_many` many; ``python -m spark_log.testing.simulation --help``
does both from a shell. `RULES` are the safety rules, each of which can be left out, to see that
it is missed. Needs greenlet (``pip install 'spark-log[dev]'``).
"""

from spark_log.testing.simulation.log.rules import RULES, SOUND, Variant
from spark_log.testing.simulation.log.simulation import (
    SimulationFailedError,
    SimulationResult,
    simulate,
)
from spark_log.testing.simulation.runner import Tally, simulate_many

__all__ = [
    "RULES",
    "SOUND",
    "SimulationFailedError",
    "SimulationResult",
    "Tally",
    "Variant",
    "simulate",
    "simulate_many",
]
