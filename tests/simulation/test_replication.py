"""Simulations of replication find no violation, and find one without each rule of the protocol."""

import re

import pytest

from tests.simulation.replication.rules import REPLICATION_RULES
from tests.simulation.replication.simulation import ReplicationSimulation
from tests.simulation.simulation import SimulationFailedError

SEEDS = (0, 1, 9, 18)
"""Seeds that together have every kind of event. `test_simulation_replay` runs others."""

SEEDS_PER_RULE = 60

RARE = {
    "a leader epoch is that of the segment that has the offset",
    "a leader without its files leaves, and no follower",
    "a new leader's barrier is put behind its copies as a follower",
    "a reader reads the last replica, also a joining one",
    "a replica outside of the chain gets committed records",
    "a replica that ends before the log start was emptied",
    "a replica is listed again before it is read in a new state",
    "an append is acknowledged by a recent state",
    "a replica joins until every writer knows it",
    "a writer whose merge misses files lists the log",
    "an append is looked for again in a new leader epoch",
    "joining is completed in the epoch of its barrier",
    "records are deleted without a replica that was emptied",
    "the first put into a log needs its root",
    "a copy of the leader's log needs its root",
}
"""Rules whose absence shows in one of hundreds of seeds.

`tests/replication/test_rare_rules.py` has a situation for each.
"""

FIRST_SEEDS = {
    "a diverged replica gets a new directory": 29,
    "a reader reads the last replica": 1,
    "a reader sees nothing that was written with too few in sync": 11,
    "a reader shows nothing of a newer epoch": 11,
    "a reader waits for the barrier on the last replica": 23,
    "a replica is a prefix of the leader before a put": 2,
    "a replica is compared again when it is listed again": 512,
    "a replica is in sync when the barrier stands on it": 7,
    "a writer that finds the log newer reads the metadata": 19,
    "nobody appends before the barrier": 24,
    "nothing is acknowledged without the joining replicas": 4,
    "only committed records are merged": 14,
    "puts follow the order of the chain": 1,
    "the first one that is left leads": 4,
    "replicas before the new leader leave": 4,
}
"""The first seed that found a violation when this was written; it saves time."""


def fails(seed, rule):
    try:
        ReplicationSimulation(seed, REPLICATION_RULES[rule]).run()
    except SimulationFailedError:
        return True
    return False


@pytest.mark.long
@pytest.mark.parametrize("rule", [rule for rule in REPLICATION_RULES if rule not in RARE])
def test_the_simulation_fails_without_the_rule_that(rule):
    first = FIRST_SEEDS.get(rule, 0)
    seeds = range(first, first + SEEDS_PER_RULE)
    assert any(fails(seed, rule) for seed in seeds), f"nobody misses: {rule}"


@pytest.fixture(scope="module")
def results():
    """The results of some seeds, each with the faults that it has drawn."""
    return [ReplicationSimulation(seed).run() for seed in SEEDS]


def test_no_seed_breaks_a_guarantee(results):
    assert sum(result.records for result in results) > len(SEEDS), "records are acknowledged"


@pytest.mark.parametrize(
    "what",
    [
        r"append .*: at #, acks=-#",
        r"append .*: at #, acks=#",
        r"append .*: NotEnoughReplicasError",
        r"append .* is refused: LogEndOffsetMismatchError",
        r"has read # to #",
        r"observe: #",
        r"RecoveryReport\(broker_id=#, is_in_sync=True, .*",
        r"suspects #: .*",
        r"# stays out: .*",
        r"broker # is down",
        r"memory://broker# answers (NotFound|Authorization|StorageFull|InvalidRoot)Error",
        r"broker # is up again",
        r"broker # becomes slow",
        r"broker # loses all files",
        r"broker # is replaced",
        r"crashes",
        r"broker#: put_if_absent #\.log: gets no answer",
        r"broker#: put_if_absent #\.log: a late copy takes effect",
        r"broker#: put_if_absent #-#\.#\.log: done",
        r"broker#: list flights-#\.#: # files",
    ],
)
def test_each_kind_of_event_happens(results, what):
    texts = {re.sub(r"[0-9]+", "#", entry.text) for result in results for entry in result.trace}
    assert any(re.fullmatch(what, text) for text in texts), what
