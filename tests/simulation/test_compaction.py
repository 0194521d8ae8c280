"""Simulations of compacted logs find no violation, and find one without each safety rule."""

import re
from collections import Counter
from importlib import import_module

import pytest
from typer.testing import CliRunner

from tests.simulation.__main__ import app
from tests.simulation.compaction.rules import COMPACTION_RULES
from tests.simulation.compaction.simulation import CompactionSimulation
from tests.simulation.simulation import SimulationFailedError

SEEDS = (1, 3, 8, 13, 14, 15, 16, 17, 19)
"""Seeds that together have every kind of event. `test_many_seeds` runs others."""

SEEDS_PER_RULE = 300
RARE = {
    "the highest generation counts, not the widest": (
        "test_compactor.py::TestTombstones::test_a_late_merge_restores_no_deleted_record"
    ),
    "a compaction takes the generation after its listing": (
        "test_compaction_edges.py::TestTwoThatLookedAtTheSame::test_the_other_compaction_gives_up"
    ),
    "only segments of the newest compaction are clean": (
        "test_compactor.py::TestTombstones::test_tombstones_wait_for_an_older_compaction"
    ),
    "between two compactions the delay passes": (
        "test_compactor.py::TestTombstones::test_tombstones_wait_for_earlier_listings"
    ),
    "tombstones stay where anything is dirty before them": (
        "test_compactor.py::TestTombstones::test_tombstones_wait_for_an_older_compaction"
    ),
    "the last batch of a producer stays": (
        "test_compactor.py::TestProducers::test_the_last_batch_of_a_producer_is_kept_when_empty"
    ),
    "an append is known by the end of it that is left": (
        "test_compaction_edges.py::TestProducers::"
        "test_a_retry_of_an_append_of_several_batches_is_recognised"
    ),
    "a taken generation is shown until a higher one has stood": (
        "test_compaction_edges.py::test_generations_below_an_old_one_are_removed"
    ),
}
"""Rules whose absence shows only in one of hundreds of seeds: for the command line. Each has a test
in ``tests/log/clean`` that fails without it."""


def fails(seed, rule):
    try:
        CompactionSimulation(seed, COMPACTION_RULES[rule]).run()
    except SimulationFailedError:
        return True
    return False


@pytest.fixture(scope="module")
def results():
    """By seed, the result of its simulation."""
    return {seed: CompactionSimulation(seed).run() for seed in SEEDS}


def test_no_seed_breaks_a_guarantee(results):
    assert sum(result.records for result in results.values()) > 10 * len(SEEDS), "records"


@pytest.mark.long
@pytest.mark.parametrize("rule", [rule for rule in COMPACTION_RULES if rule not in RARE])
def test_the_simulation_fails_without_the_rule_that(rule):
    assert any(fails(seed, rule) for seed in range(SEEDS_PER_RULE)), f"nobody misses: {rule}"


def test_one_seed_runs_the_same_way_each_time():
    first, second = CompactionSimulation(5).run(), CompactionSimulation(5).run()
    assert list(map(str, first.trace)) == list(map(str, second.trace))
    assert list(map(str, first.trace)) != list(map(str, CompactionSimulation(6).run().trace))


def test_a_merged_segment_whose_first_part_a_compaction_replaces_is_no_damage():
    """A lookup of the latest timestamp with an older listing reported a wrong header."""
    assert CompactionSimulation(22757).run().trace


@pytest.fixture(scope="module")
def texts(results):
    """The texts of the traces."""
    return [entry.text for result in results.values() for entry in result.trace]


@pytest.fixture(scope="module")
def happened(texts):
    """The number of trace lines of each kind, without their numbers."""
    return Counter(re.sub(r"[0-9]+", "#", text) for text in texts)


@pytest.mark.parametrize(
    "what",
    [
        r"crashes",
        r"compact # to #: # to #, # tombstones removed",
        r"remove_expired_tombstones # to #: # to #, # tombstones removed",
        r"merged into #-#\.#\.log",
        r"cleaned: .*",
        r"put_if_absent #\.generation: exists",
        r"put_if_absent #\.generation: a late copy takes effect",
        r"put_if_absent #-#\.#\.log: a late copy takes effect",
        r"put_if_absent #-#\.start: done",
        r"delete #-#\.#\.log: done",
        r"delete #\.generation: done",
        r"list .*, # wrong",
        r"sleeps past the delay",
        r"append b'p.*': at # to #",
    ],
)
def test_each_kind_of_event_happens(happened, what):
    assert any(re.fullmatch(what, text) for text in happened), what


def test_tombstones_are_removed_and_records_left_out(texts):
    found = (re.search(r"(\d+) tombstones removed", text) for text in texts)
    assert sum(int(each[1]) for each in found if each) > 5


@pytest.mark.parametrize("name", RARE.values())
def test_each_rare_rule_has_a_test(name):
    file, *path = name.split("::")
    found = import_module(f"tests.log.clean.{file.removesuffix('.py')}")
    for each in path:
        found = getattr(found, each)
    assert callable(found)


class TestCommandLine:
    def run(self, *arguments):
        return CliRunner().invoke(app, ["--of", "compaction", *arguments])

    def test_runs_many(self):
        result = self.run("--seeds", "5", "--jobs", "1")
        assert result.exit_code == 0, result.output
        assert re.search(r"5 seeds from 0 in .* seeds/s; .* 0 failures", result.stdout)

    def test_lists_the_rules(self):
        assert self.run("--rules").stdout.splitlines() == list(COMPACTION_RULES)
