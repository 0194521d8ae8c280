"""Simulations of group commit find no violation, and find one without each of its rules."""

import re

import pytest

from tests.simulation.batches.replicated import ReplicatedBatchesSimulation
from tests.simulation.batches.rules import BATCHES_RULES, REPLICATED_BATCHES_RULES
from tests.simulation.batches.simulation import BatchesSimulation
from tests.simulation.simulation import SimulationFailedError

SEEDS = 40
SEEDS_PER_RULE = 300

FIRST_SEEDS = {
    "a fenced batch is searched for by its segment": 876,
    "no other leader gets a batch without a producer": 134,
    "the leader epoch is checked again when the log is listed again": 48,
}
"""The first seed that found a violation when this was written; it saves time."""


def fails(simulation, seed, variant):
    try:
        simulation(seed, variant).run()
    except SimulationFailedError:
        return True
    return False


@pytest.mark.long
@pytest.mark.parametrize("rule", BATCHES_RULES)
def test_the_simulation_of_one_log_fails_without_the_rule_that(rule):
    first = FIRST_SEEDS.get(rule, 0)
    seeds = range(first, first + SEEDS_PER_RULE)
    assert any(fails(BatchesSimulation, seed, BATCHES_RULES[rule]) for seed in seeds)


@pytest.mark.long
@pytest.mark.parametrize("rule", REPLICATED_BATCHES_RULES)
def test_the_simulation_of_replicas_fails_without_the_rule_that(rule):
    first, variant = FIRST_SEEDS.get(rule, 0), REPLICATED_BATCHES_RULES[rule]
    seeds = range(first, first + SEEDS_PER_RULE)
    assert any(fails(ReplicatedBatchesSimulation, seed, variant) for seed in seeds)


def test_batches_of_replicas_survive_a_change_of_the_leader():
    """Seed 48 lists the log again between the check of the leader epoch and the put."""
    assert ReplicatedBatchesSimulation(48).run().records


@pytest.fixture(scope="module")
def texts():
    """The trace lines of some seeds, without their numbers."""
    traces = [BatchesSimulation(seed).run().trace for seed in (*range(SEEDS), 49)]
    return {re.sub(r"[0-9-]+", "#", entry.text) for trace in traces for entry in trace}


@pytest.mark.parametrize(
    "what",
    [
        "append b'c#.#/#.#': at # to #",
        "append b'c#.#/#.#': at # to # found",
        "append b'c#.#/#.#': UnknownOutcomeError",
        "append b'c#.#/#.#': InvalidProducerEpochError",
        "append b'c#.#/#.#': OutOfOrderSequenceError",
        "append b'gap c#/#': OutOfOrderSequenceError",
        "put_if_absent #.log: exists",
        "put_if_absent #.log: gets no answer",
        "put_if_absent #.log: a late copy takes effect",
        "crashes",
    ],
)
def test_everything_holds_while_each_of_these_happens(texts, what):
    assert what in texts
