"""Simulations of groups find no violation, and find one without each safety rule."""

import re
from collections import Counter

import pytest
from typer.testing import CliRunner

from tests.simulation.__main__ import app
from tests.simulation.groups.rules import GROUP_RULES
from tests.simulation.groups.simulation import GroupSimulation
from tests.simulation.simulation import SimulationFailedError

SEEDS = (1, 2, 6, 8, 12, 17, 27)
"""Seeds that together have every kind of event. `test_many_seeds` runs others."""

SEEDS_PER_RULE = 600
RARE = {
    "a change whose answer was lost is looked for",
    "positions are read after the fence",
    "a removed member does not come back",
}
"""Rules whose absence shows only in one of hundreds of seeds: they have tests elsewhere."""

FIRST_SEED = {
    "a transaction's offsets are sent by the owner": 101,
    "a transaction's offsets never replace newer ones": 233,
    "a new owner waits for transactions": 103,
}
"""Where the search begins for rules that few seeds miss, so that the test is quick."""

FAILING = "a change is appended where it was decided"


def fails(seed, rule):
    try:
        GroupSimulation(seed, GROUP_RULES[rule]).run()
    except SimulationFailedError:
        return True
    return False


@pytest.fixture(scope="module")
def results():
    """By seed, the result of its simulation."""
    return {seed: GroupSimulation(seed).run() for seed in SEEDS}


def test_no_seed_breaks_a_guarantee(results):
    assert sum(result.records for result in results.values()) > 8 * len(SEEDS), "groups do change"


@pytest.mark.long
@pytest.mark.parametrize("rule", [rule for rule in GROUP_RULES if rule not in RARE])
def test_the_simulation_fails_without_the_rule_that(rule):
    first = FIRST_SEED.get(rule, 0)
    seeds = [*range(first, SEEDS_PER_RULE), *range(first)]
    assert any(fails(seed, rule) for seed in seeds), f"nobody misses: {rule}"


def test_one_seed_runs_the_same_way_each_time():
    first, second = GroupSimulation(5).run(), GroupSimulation(5).run()
    assert list(map(str, first.trace)) == list(map(str, second.trace))
    assert list(map(str, first.trace)) != list(map(str, GroupSimulation(6).run().trace))


@pytest.fixture(scope="module")
def happened(results):
    """The number of trace lines of each kind, without their numbers."""
    texts: Counter[str] = Counter()
    for result in results.values():
        for entry in result.trace:
            texts[re.sub(r"[0-9-]+", "#", entry.text)] += 1
    return texts


@pytest.mark.parametrize(
    "what",
    [
        r"crashes",
        r"comes up again",
        r"never comes back",
        r"is fenced",
        r"is not a member any more",
        r"joined: #",
        r"begins topic# at #",
        r"grows topic# to #",
        r"sends offsets in generation #",
        r"commits a transaction",
        r"leaves a transaction open",
        r"UnstableOffsetCommitError: .*",
        r"deletes topic#",
        r"offsets version #: generation #",
        r"CommitFailedError: .*",
        r"UnknownOutcomeError: offsets: no answer",
        r"put_if_absent #\.log: exists",
        r"put_if_absent #\.log: gets no answer",
        r"put_if_absent #\.start: done",
        r"delete #\.log: done",
        r"put [a-z]#: a late copy takes effect",
    ],
)
def test_each_kind_of_event_happens(happened, what):
    assert any(re.fullmatch(what, text) for text in happened), what


class TestCommandLine:
    def run(self, *arguments):
        return CliRunner().invoke(app, ["--of", "groups", *arguments])

    def test_runs_many_and_tells_how_fast(self):
        result = self.run("--seeds", "5", "--jobs", "1")
        assert result.exit_code == 0
        assert re.search(r"5 seeds from 0 in .* seeds/s; .* 0 failures", result.stdout)

    def test_replays_a_seed_step_by_step(self):
        result = self.run("--seed", "5")
        assert result.exit_code == 0
        assert result.stdout.splitlines()[:-1] == list(map(str, GroupSimulation(5).run().trace))

    def test_prints_what_fails_with_its_seed(self):
        seed = str(next(seed for seed in range(50) if fails(seed, FAILING)))
        result = self.run("--seeds", "1", "--first", seed, "--jobs", "1", "--rule", FAILING)
        assert result.exit_code == 1
        assert f"seed {seed}: " in result.stdout
        assert self.run("--seed", seed, "--rule", FAILING).exit_code == 1

    def test_lists_the_rules_and_refuses_others(self):
        assert self.run("--rules").stdout.splitlines() == list(GROUP_RULES)
        assert self.run("--rule", "be nice").exit_code == 2
        assert self.run("--of", "weather").exit_code == 2
