"""Tests that call the functions of confluent-kafka's ``integration_test.py``, which is a script.

They are copied to the client's own tests as ``test_integration.py``, so they import nothing of this
checkout; BROKERS in the environment has the gateways. The last two run the clients of Kafka's
system tests that the package has.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from typing import Any

import pytest
from tests.integration import (  # type: ignore[attr-defined] # the client's package of this name
    integration_test as script,
)

from confluent_kafka.admin import AdminClient, NewTopic

BROKERS = os.environ["BROKERS"]


@pytest.fixture(scope="module", autouse=True)
def topic() -> None:
    """Give the script a topic with its first records, which some of its functions read."""
    script.bootstrap_servers = BROKERS
    script.topic = f"test_{uuid.uuid4()}"
    (created,) = AdminClient({"bootstrap.servers": BROKERS}).create_topics(
        [NewTopic(script.topic, 4, 1)]
    ).values()
    created.result()
    script.verify_producer()


@pytest.fixture(scope="module")
def million_records() -> None:
    """Let the topic have as many records as the script's measurements read."""
    script.verify_producer_performance(with_dr_cb=False)


def test_producer() -> None:
    script.verify_producer()


def test_producer_performance() -> None:
    script.verify_producer_performance(with_dr_cb=True)


def test_consumer() -> None:
    script.verify_consumer()


def test_batch_consumer() -> None:
    script.verify_batch_consumer()


def test_consumer_performance(million_records: None) -> None:
    script.verify_consumer_performance()


def test_batch_consumer_performance(million_records: None) -> None:
    script.verify_batch_consumer_performance()


def test_stats_cb(million_records: None) -> None:
    script.verify_stats_cb()


def test_throttle_cb() -> None:
    script.verify_throttle_cb()


def test_admin() -> None:
    script.verify_admin()


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_verifiable_producer(acks: int) -> None:
    _, sent = _produce(1000, acks)
    assert len(sent) == 1000


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_verifiable_consumer(strategy: str) -> None:
    name, sent = _produce(1000, -1)
    options = ["--topic", name, "--group-id", f"group-{name}", "--max-messages", "1000"]
    events = _events(
        "consumer", *options, "--assignment-strategy", strategy, "-X", "auto.offset.reset=earliest"
    )
    consumed = [each for each in events if each["name"] == "records_consumed"]
    assert sum(each["count"] for each in consumed) == len(sent)
    committed = [each for each in events if each["name"] == "offsets_committed"]
    assert committed
    assert all(each["success"] for each in committed)


def _produce(count: int, acks: int) -> tuple[str, list[dict[str, Any]]]:
    """Return the name of a new topic, and the records that were acknowledged."""
    name = f"verifiable_{uuid.uuid4()}"
    events = _events(
        "producer", "--topic", name, "--max-messages", str(count), "--acks", str(acks)
    )
    assert not [each for each in events if each["name"] == "producer_send_error"]
    return name, [each for each in events if each["name"] == "producer_send_success"]


def _events(client: str, *options: str) -> list[dict[str, Any]]:
    """Return what a verifiable client tells, until it has ended."""
    module = f"confluent_kafka.kafkatest.verifiable_{client}"
    command = [sys.executable, "-m", module, "--broker-list", BROKERS, *options]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    return [json.loads(line) for line in told.splitlines() if line.startswith("{")]
