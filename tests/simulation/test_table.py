"""Simulations of a topic's table find no violation, and find one without each safety rule."""

import re
from collections import Counter
from itertools import pairwise

import pytest
from typer.testing import CliRunner

from tests.simulation.__main__ import app
from tests.simulation.simulation import SimulationFailedError
from tests.simulation.table.profile import CHANGING
from tests.simulation.table.rules import TABLE_RULES
from tests.simulation.table.simulation import TableSimulation
from tests.simulation.test_table_scenarios import SCENES

SEEDS = (1, 7, 9, 11, 13, 14, 17, 20)
"""Seeds that together have every kind of event. `test_many_seeds` runs others."""

SEEDS_PER_RULE = 300
FIRST_SEED = {
    "only a later compaction replaces one": 50,
    "replaced files stay for their time": 71,
}
"""First seed of the search for each rule that few seeds miss, so that the test is quick."""

RARE = {
    "nothing spent is added",
    "a version that changes the setting adds no file",
    "a name is freed only if no next version could add it",
    "the version is read after the name was spent",
    "no compaction names an end below an earlier one",
    "replaced files go by the storage's time",
    "a log with Parquet files is asked for its table",
    "the log is listed after the version was read",
    "after a compaction that named no end the log's end is named",
    "tombstones behind the table's end stay",
    "tombstones stay for their time behind the table's end",
}
"""Rules whose absence shows only in one of hundreds of seeds: for the command line. Each has a
course of events in ``test_table_scenarios.py`` that fails without it."""


def fails(seed, rule):
    try:
        TableSimulation(seed, TABLE_RULES[rule]).run()
    except SimulationFailedError:
        return True
    return False


@pytest.fixture(scope="module")
def simulations():
    found = []
    for seed in SEEDS:
        found.append(TableSimulation(seed))  # one after the other: they share a disk
        found[-1].run()
    return found


def test_no_seed_breaks_a_guarantee(simulations):
    assert sum(each.records for each in simulations) > len(SEEDS), "versions are made"


@pytest.mark.long
@pytest.mark.parametrize("rule", [rule for rule in TABLE_RULES if rule not in RARE])
def test_the_simulation_fails_without_the_rule_that(rule):
    first = FIRST_SEED.get(rule, 0)
    seeds = range(first, first + SEEDS_PER_RULE)
    assert any(fails(seed, rule) for seed in seeds), f"nobody misses: {rule}"


def test_one_seed_runs_the_same_way_each_time():
    first, second = TableSimulation(5).run(), TableSimulation(5).run()
    assert list(map(str, first.trace)) == list(map(str, second.trace))
    assert list(map(str, first.trace)) != list(map(str, TableSimulation(6).run().trace))


@pytest.fixture(scope="module")
def happened(simulations):
    """The number of trace lines of each kind, without their numbers."""
    texts = (entry.text for each in simulations for entry in each.scheduler.trace)
    return Counter(re.sub(r"[0-9]+", "#", text) for text in texts)


@pytest.mark.parametrize(
    "what",
    [
        r"crashes",
        r"stands still",
        r"sets none",
        r"sets compact",
        r"committed version #: delete, # files from # to #",
        r"committed version #: compact, # files from # to #",
        r"committed version #: none, # files from # to #",
        r"put_if_absent #\.json: exists",
        r"put_if_absent #\.json: gets no answer",
        r"compact # to #: # to #, # tombstones removed",
        r"merged into #-#\.#\.log",
        r"merged into #-#\.#\.parquet",
        r"put _last_checkpoint: done",
        r"delete #\.json: done",
        r"put_if_absent #-#\.start: done",
        r"delete #-#\.#\.log: done",
        r"delete #-#\.#\.parquet: done",
        r"read version #: # files",
        r"read both: # rows from # to #",
        r"list flights-#: # files, # wrong",
    ],
)
def test_each_kind_of_event_happens(happened, what):
    assert any(re.fullmatch(what, text) for text in happened), what


def test_each_policy_has_versions_with_files(simulations):
    found = {
        (each.profile.policy, table.is_compacted)
        for each in simulations
        for table in each.world.table.versions
        if table.files
    }
    assert {("delete", False), ("compact", True), (CHANGING, True), (CHANGING, False)} <= found


def test_ends_starts_and_files_change(simulations):
    versions = [each.world.table.versions for each in simulations]
    pairs = [pair for each in versions for pair in pairwise(each)]
    assert sum(before.end < after.end for before, after in pairs) > 10
    assert sum(before.start < after.start for before, after in pairs) > 5
    assert sum(bool(set(before.files) - set(after.files)) for before, after in pairs) > 10


def test_each_rare_rule_has_a_course_of_events():
    assert set(SCENES) >= RARE


class TestCommandLine:
    def run(self, *arguments):
        return CliRunner().invoke(app, ["--of", "table", *arguments])

    def test_runs_many(self):
        result = self.run("--seeds", "2", "--jobs", "1")
        assert result.exit_code == 0, result.output
        assert re.search(r"2 seeds from 0 in .* versions; 0 failures", result.stdout)

    def test_lists_the_rules(self):
        assert self.run("--rules").stdout.splitlines() == list(TABLE_RULES)
