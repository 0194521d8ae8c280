"""The checks of a campaign's workloads: each is given what must not happen, and finds it."""

import json
from types import SimpleNamespace

import pytest

pytest.importorskip("confluent_kafka")
pytest.importorskip("kafka")

from spark_log import TopicPartition
from spark_log.testing.history import Outcome, Send
from tests.gateway.campaign.workloads.debezium import DebeziumSource
from tests.gateway.campaign.workloads.go_transactions import _operations
from tests.gateway.campaign.workloads.streams import WordCount


def made(kind, **state):
    found = kind(SimpleNamespace(), SimpleNamespace(), lambda line: None)
    vars(found).update(state)
    return found


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        ([0, 1, 2], []),
        ([0, 2], ["number 1 is in [0, 2]"]),
        ([0, 1, 1, 2], ["number 2 is in [0, 1, 1, 2]"]),
        ([0, 2, 1], ["number 1 is in [0, 2, 1]"]),
        ([0, 1], ["number 2 is in [0, 1]"]),
    ],
    ids=["all", "one is lost", "one is there twice", "the order", "the last is lost"],
)
def test_each_version_of_a_row_is_there_once_in_order(versions, expected):
    found = made(DebeziumSource, _last={7: 2}, _versions={7: versions}).findings()
    assert [each.rpartition("and ")[2] for each in found] == expected


@pytest.mark.parametrize("counts", [["1"], ["1", "2", "2"], ["1", "3"], ["1", "2", "3"]])
def test_a_word_count_is_exact(counts):
    pairs = [("w1", each) for each in counts]
    assert made(WordCount, _lines=["w1", "w1"], _found=pairs).findings()
    exact = [("w1", "1"), ("w1", "2")]
    assert not made(WordCount, _lines=["w1", "w1"], _found=exact).findings()


def line(number, state, at_ns, *, offset=None):
    send = {"topic": "deals", "partition": 1, "value": f"v{number}"}
    sends = [send | ({} if offset is None else {"offset": offset})]
    return {"number": number, "state": state, "at_ns": at_ns, "sends": sends}


def test_the_lines_of_a_producer_in_go_become_a_history():
    lines = [
        *(line(1, "begun", 10), line(1, "committing", 20), line(1, "committed", 30, offset=5)),
        *(line(2, "begun", 40), line(2, "aborted", 50)),
        *(line(3, "begun", 60), line(3, "committing", 70), line(3, "unknown", 80)),
        *(line(4, "begun", 90), line(4, "committing", 95)),
        line(5, "begun", 99),
    ]
    found = list(_operations("go", iter(json.loads(json.dumps(each)) for each in lines)))
    assert [each.outcome for each in found] == [
        Outcome.COMMITTED,
        Outcome.ABORTED,
        Outcome.UNKNOWN,
        Outcome.UNKNOWN,
        Outcome.ABORTED,  # it was killed before it began to commit
    ]
    assert found[0].actions == [Send(TopicPartition("deals", 1), "v1", 5)]
    assert (found[0].invoked, found[0].end_invoked, found[0].completed) == (10, 20, 30)
    assert all(each.is_transaction for each in found)
