"""Simulations of a group of the consumer protocol find nothing, and find each rule's absence."""

import re
from collections import Counter

import pytest

from tests.simulation import simulate_many
from tests.simulation.consumer_protocol.rules import CONSUMER_PROTOCOL_RULES
from tests.simulation.consumer_protocol.simulation import ConsumerProtocolSimulation
from tests.simulation.simulation import SimulationFailedError

SEEDS = 12
SEEDS_PER_RULE = 400

RARE = {
    "a partition to revoke comes back after its release",
    "a member that joins again has a new epoch",
    "a partition that a member may be about to take is not released",
    "a gateway writes before it tells what it has not given",
}
"""Rules whose absence shows only in one of hundreds of seeds: they have tests elsewhere
(`tests/coordinator/group/test_consumer_decisions.py`,
`tests/gateway/groups/test_consumer_groups.py`,
`tests/gateway/groups/test_consumer_statements.py`)."""

FIRST_SEED = {
    "a gateway that loads a group raises the fence": 116,
    "the log is read before a member is fenced": 110,
    "a release with everything else is confirmed": 57,
}
"""The first seed of the search, for rules that few seeds miss, so that the test is quick."""


def fails(seed, rule):
    try:
        ConsumerProtocolSimulation(seed, CONSUMER_PROTOCOL_RULES[rule]).run()
    except SimulationFailedError:
        return True
    return False


def test_no_seed_breaks_a_guarantee():
    all_totals = list(simulate_many(range(SEEDS), of="consumer-protocol"))
    assert [failed.args[0] for totals in all_totals for failed in totals.failures] == []
    assert sum(totals.records for totals in all_totals) > 10 * SEEDS, "groups do change"


@pytest.mark.long
@pytest.mark.parametrize("rule", [rule for rule in CONSUMER_PROTOCOL_RULES if rule not in RARE])
def test_the_simulation_fails_without_the_rule_that(rule):
    first = FIRST_SEED.get(rule, 0)
    seeds = [*range(first, SEEDS_PER_RULE), *range(first)]
    assert any(fails(seed, rule) for seed in seeds), f"nobody misses: {rule}"


def test_one_seed_runs_the_same_way_each_time():
    first, second = ConsumerProtocolSimulation(5).run(), ConsumerProtocolSimulation(5).run()
    assert list(map(str, first.trace)) == list(map(str, second.trace))


@pytest.mark.long
def test_each_kind_of_event_happens():
    texts: Counter[str] = Counter()
    for seed in range(40):
        for entry in ConsumerProtocolSimulation(seed).run().trace:
            texts[re.sub(r"[0-9]+", "#", entry.text)] += 1
    for what in (
        r"crashes",
        r"comes up again",
        r"stands still",
        r"is fenced",
        r"leaves",
        r"generation # by (join|leave|expire|release|topics): .*",
        r"begins [tu]-# at #, epoch #",
        r"revokes .*",
        r"[tu] has # partitions",
        r"put_if_absent #\.log: exists",
        r"put_if_absent #\.log: gets no answer",
    ):
        assert any(re.fullmatch(what, text) for text in texts), what
    kinds = {text.split()[3] for text in texts if text.startswith("generation # by")}
    assert kinds >= {"join:", "leave:", "expire:", "release:", "topics:"}
