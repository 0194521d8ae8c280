"""A seed runs the same way in every process, whatever ran there before; see `Scheduler`."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pytest

from tests.simulation import SimulationFailedError
from tests.simulation.runner import SUBJECTS

SEEDS = range(1)
TRACES = """
import json, sys
from tests.simulation.runner import SUBJECTS

def trace(of, seed):
    return list(map(str, SUBJECTS[of].run(seed, None).trace))

seeds, subjects = json.loads(sys.argv[1]), json.loads(sys.argv[2])
print(json.dumps({of: {seed: trace(of, seed) for seed in seeds} for of in subjects}))
"""
PATCHED_SEEDS = {"deletion": range(4, 8), "transactions": range(19, 20)}
"""Seeds in which two actors run the replaced code at once."""


def traces(seeds, subjects, hash_seed):
    command = [sys.executable, "-c", TRACES, json.dumps(list(seeds)), json.dumps(list(subjects))]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(command, env=environment, capture_output=True, check=True)
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def in_two_processes():
    """Traces of two processes, which take subjects and seeds in opposite orders."""
    return traces(SEEDS, SUBJECTS, "1"), traces(reversed(SEEDS), reversed(SUBJECTS), "2")


def what_modules_and_classes_have():
    found: dict[tuple[str, ...], object] = {}
    for module_name, module in list(sys.modules.items()):
        if module_name.split(".")[0] in ("spark_log", "uuid"):
            for name, value in vars(module).items():
                found[module_name, name] = value
                if isinstance(value, type):
                    found |= {(module_name, name, each): it for each, it in vars(value).items()}
    return found


@pytest.mark.long
@pytest.mark.parametrize("of", SUBJECTS)
def test_neither_hashes_nor_what_ran_before_change_a_trace(in_two_processes, of):
    first, second = in_two_processes
    for seed in map(str, SEEDS):
        assert second[of][seed] == first[of][seed]


@pytest.mark.long
@pytest.mark.parametrize("of", SUBJECTS)
def test_a_rule_that_was_left_out_holds_again_afterwards(of):
    """A patch that stays would change every simulation that follows in the process."""
    subject = SUBJECTS[of]
    subject.run(0, None)  # what is imported and filled on first use
    before = what_modules_and_classes_have()
    rules: Mapping[str, Any] = subject.rules
    for rule, variant in rules.items():
        for seed in PATCHED_SEEDS.get(of, range(1)) if variant.patches else ():
            with suppress(SimulationFailedError):
                subject.run(seed, rule)
    after = what_modules_and_classes_have()
    assert [name for name in before if after.get(name) is not before[name]] == []


@pytest.mark.parametrize("of", SUBJECTS)
def test_no_private_name_is_replaced(of):
    """A private name may change at any time: a simulation gives a class or a public rule."""
    subject = SUBJECTS[of]
    rules: Mapping[str, Any] = subject.rules
    patches = [*subject.simulation(0).patches]
    patches += [patch for variant in rules.values() for patch in variant.patches]
    assert [name for _, name, _ in patches if name.startswith("_")] == []
