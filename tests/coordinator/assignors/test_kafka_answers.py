"""Answers of Kafka 4.1 to random groups, recorded by benchmarks/assignors_vs_kafka.py --record."""

import json
from pathlib import Path

import pytest

from spark_log.coordinator.assignors import (
    Subscription,
    assignor,
    claims_in_force,
    cooperative_step,
)
from spark_log.types import TopicPartition

CASES = [
    json.loads(line)
    for line in (Path(__file__).parent / "kafka_answers.jsonl").read_text().splitlines()
]


@pytest.mark.parametrize("name", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_answers_are_kafkas(name):
    cases = [case for case in CASES if case["group"]["assignor"] == name]
    assert cases
    for case in cases:
        partitions, members = case["group"]["partitions"], case["group"]["members"]
        subscriptions = {
            member: Subscription(
                tuple(each["topics"]),
                frozenset(TopicPartition(*owned) for owned in each["owned"]),
                each["generation"],
                each["instance"],
            )
            for member, each in members.items()
        }
        answer = assignor(name).assign(partitions, subscriptions)
        if name == "cooperative-sticky":
            answer = cooperative_step(answer, claims_in_force(subscriptions))
        kafka = {m: [TopicPartition(*each) for each in got] for m, got in case["kafka"].items()}
        if name == "range":  # lists in the order of a hash map there
            kafka = {m: sorted(got) for m, got in kafka.items()}
        if name == "cooperative-sticky":
            kafka, answer = ({m: sorted(got) for m, got in a.items()} for a in (kafka, answer))
        assert answer == kafka, case
