"""Simulations of the log find no violation, repeat exactly by seed, and inject faults."""

import os
import pickle
import re
import subprocess
import sys
from collections import Counter
from unittest import mock

import pytest
from typer.testing import CliRunner

from spark_log.log.rewrite import merge_recent
from tests.simulation import RULES, LogSimulation, SimulationFailedError, simulate_many
from tests.simulation.__main__ import app
from tests.simulation.log.profile import draw_profile

SEEDS = 40
FAILING = "look before putting again"


def lines(result):
    return [str(entry) for entry in result.trace]


def failure(rule=FAILING):
    for seed in range(100):
        try:
            LogSimulation(seed, RULES[rule]).run()
        except SimulationFailedError as error:
            return error
    raise AssertionError("a hundred seeds held without the rule")


class _SeveralWriters(LogSimulation):
    """A simulation in which no writer appends alone."""

    draw_profile = staticmethod(draw_profile)


class TestManySeeds:
    def test_everything_holds(self):
        all_totals = list(simulate_many(range(SEEDS)))
        failures = [failed.args[0] for totals in all_totals for failed in totals.failures]
        assert failures == []
        assert sum(totals.seeds for totals in all_totals) == SEEDS
        assert sum(totals.records for totals in all_totals) > 10 * SEEDS, "logs are not empty"

    def test_a_tail_that_is_freed_before_its_last_header_is_read_is_no_error_to_a_reader(self):
        """On an object store, the end of a segment may take one more read."""
        assert _SeveralWriters(21328).run().trace

    def test_many_merges_take_their_records_from_memory(self):
        merges = mock.Mock(wraps=merge_recent)
        with mock.patch("spark_log.log.rewrite.merge_recent", merges):
            for seed in range(30):
                LogSimulation(seed).run()
        assert merges.call_count >= 10


class TestOneSeed:
    def test_runs_the_same_way_each_time(self):
        first, second = LogSimulation(3).run(), LogSimulation(3).run()
        assert lines(first) == lines(second)
        assert lines(first) != lines(LogSimulation(4).run())

    def test_runs_the_same_way_whatever_other_chance_there_is(self, monkeypatch):
        """Hash seeds and the append ids, which come from the system, change no step."""
        program = (
            "from tests.simulation import LogSimulation\n"
            "for seed in range(5):\n"
            "    print(*LogSimulation(seed).run().trace, sep='\\n')\n"
        )
        outputs = {
            subprocess.run(
                [sys.executable, "-c", program],
                env={**os.environ, "PYTHONHASHSEED": hash_seed},
                capture_output=True,
                check=True,
            ).stdout
            for hash_seed in ("1", "2")
        }
        assert len(outputs) == 1
        taken = iter(range(10**6))
        monkeypatch.setattr(os, "urandom", lambda count: next(taken).to_bytes(count, "big"))
        assert [line for seed in range(5) for line in lines(LogSimulation(seed).run())] == (
            outputs.pop().decode().splitlines()
        )

    def test_that_fails_fails_again_in_the_same_way(self):
        first = failure()
        with pytest.raises(SimulationFailedError) as second:
            LogSimulation(first.seed, RULES[FAILING]).run()
        assert second.value.reason == first.reason
        assert lines(second.value) == lines(first)

    def test_that_fails_tells_so_across_processes(self):
        first = failure()
        second = pickle.loads(pickle.dumps(first))
        assert (str(second), second.seed, second.profile) == (str(first), first.seed, first.profile)
        assert lines(second) == lines(first)


@pytest.fixture(scope="module")
def happened():
    """The number of trace lines of each kind in some seeds, without their numbers."""
    texts: Counter[str] = Counter()
    for seed in (13, 15, 20, 54, 112, 139):  # they have every kind together
        for entry in LogSimulation(seed).run().trace:
            texts[re.sub(r"[0-9-]+", "#", entry.text)] += 1
    return texts


class TestWhatHappens:
    """A simulation without this fault would prove little."""

    @pytest.mark.parametrize(
        "what",
        [
            r"crashes",
            r"comes up again",
            r"put_if_absent #\.log: exists",
            r"put_if_absent #\.log: fails",
            r"put_if_absent #\.log: is lost on its way",
            r"put_if_absent #\.log: gets no answer",
            r"put_if_absent #\.log: is sent again by the client: exists",
            r"put_if_absent #\.log: a late copy takes effect",
            r"put_if_absent #\.#\.log: done",
            r"put_if_absent #\.start: done",
            r"delete #\.log: done",
            r"delete #\.#\.log: done",
            r"delete #\.start: done",
            r"delete #\.log: a late copy takes effect",
            r"put #\.snapshot: done",
            r"list flights#: # files, # wrong",
            r"open #\.log: is not there",
            r"damages #\.index",
            r"damages #\.timeindex",
            r"damages #\.snapshot",
            r"append b'w#/#\.#': at # to #",
            r"append b'w#/#\.#': unknown",
            r"append b'c#/#\.#': the end is #",
            r"append b'p#\.#/#\.#': fenced by #",
            r"append b'p#\.#/#\.#': # is next",
            r"append b'p#\.#/#\.#': is given up",
            r"append b'gap before p#\.#/# in step #\.#': OutOfOrderSequenceError",
            r"append b'gap before p#\.#/# in step #\.#': InvalidProducerEpochError",
            r"producer # had expired",
            r"read #\.log: done",
            r"read_tail #\.#\.log: done",
            r"poll #: goes on at #",
            r"scan #: out of range",
            r"offset for time #: \(#, #\)",
            r"offset for time #: None",
        ],
    )
    def test_each_of_these_does(self, happened, what):
        assert any(re.fullmatch(what, text) for text in happened), what


class TestCommandLine:
    def run(self, *arguments):
        return CliRunner().invoke(app, arguments)

    def test_replays_a_seed_step_by_step(self):
        result = self.run("--seed", "3")
        assert result.exit_code == 0
        assert result.stdout.splitlines()[:-1] == lines(LogSimulation(3).run())

    def test_runs_many_and_tells_how_fast(self):
        result = self.run("--seeds", "20", "--jobs", "1")
        assert result.exit_code == 0
        assert re.search(r"20 seeds from 0 in .* seeds/s; .* 0 failures", result.stdout)

    def test_prints_seed_and_trace_of_what_fails(self):
        first = failure()
        seed = str(first.seed)
        result = self.run("--first", seed, "--seeds", "1", "--rule", FAILING, "--lines", "5")
        assert result.exit_code == 1
        assert f"seed {seed}: {first.reason}" in result.stdout
        assert str(first.trace[-5]) in result.stdout
        assert str(first.trace[-6]) not in result.stdout
        replayed = self.run("--seed", seed, "--rule", FAILING)
        assert replayed.exit_code == 1
        assert str(first.trace[0]) in replayed.stdout

    def test_lists_the_rules(self):
        assert self.run("--rules").stdout.splitlines() == list(RULES)

    def test_refuses_a_rule_that_is_none(self):
        assert self.run("--rule", "be nice").exit_code == 2
