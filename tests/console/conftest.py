"""A root with records, groups and transactions, some with hostile names, and a client of it."""

import json

import pytest
from starlette.testclient import TestClient

from spark_log import Admin, NewTopic, OffsetAndMetadata, TopicPartition
from spark_log.cluster import Cluster
from spark_log.config import GatewayConfig
from spark_log.console import ConsoleSettings, create_app
from spark_log.coordinator import OffsetsTable
from spark_log.coordinator.group.coordinator import GroupCoordinator
from spark_log.gateway.registry import RegistryMember
from spark_log.metadata.topics.creation import topic_records
from tests.cli.conftest import folder, shell
from tests.cli.support import append, append_batches, begin_transaction
from tests.record.samples import record_batch, row

__all__ = ["folder", "shell"]

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>/&?#%2f{{7*7}}\x1b[2J\u202e"
TOPIC = f"t{EVIL}".replace("/", "&")  # no name has a slash
GROUP = f"g{EVIL}"
FAST = {"flush.on.append": False, "index.interval.bytes": 1}
TOKEN = "the-token-of-the-tests"
HOUR_MS = 3_600_000
DAY_MS = 1_370_044_800_000
"""2013-06-01, in milliseconds since the epoch."""


def flight(number):
    return json.dumps({"carrier": "UA" if number % 2 else "AA", "number": number}).encode()


@pytest.fixture(scope="package")
def root(tmp_path_factory):
    """A root for tests that change nothing.

    ``flights`` has two partitions of 30 records: number n is in partition n % 2, at offset n // 2,
    and n seconds after `DAY_MS`.
    """
    root = tmp_path_factory.mktemp("console") / "root"
    admin = Admin(root)
    admin.create_topics([NewTopic("flights", 2, topic_configs=FAST), NewTopic("empty")])
    for partition in (0, 1):
        rows = [
            row(
                flight(number),
                key=f"key-{number}".encode(),
                headers=[("trace", b"%d" % number), ("trace", b"again")],
                timestamp=(DAY_MS + number * 1000) * 1000,
            )
            for number in range(partition, 60, 2)
        ]
        for first in range(0, 30, 10):
            batch = record_batch(rows[first : first + 10])
            append_batches(root, "flights", batch, partition=partition)
    reports = {TopicPartition("flights", number): OffsetAndMetadata(10) for number in (0, 1)}
    admin.alter_group_offsets("reports", reports)
    cluster = Cluster(root)
    cluster.metadata.commit(lambda image: topic_records(NewTopic(TOPIC), "A" * 22, image))
    evil = EVIL.encode()
    append(root, TOPIC, evil, b"\xff\x00" + evil, None, key=evil, headers=[(EVIL, evil)])
    admin.alter_client_quotas({EVIL: {"producer_byte_rate": 5}})
    position = {TopicPartition(TOPIC, 0): OffsetAndMetadata(1, f"note{EVIL}")}
    GroupCoordinator(cluster, GROUP).join(
        [TOPIC], client_id=f"client{EVIL}", instance_id=f"instance{EVIL}"
    )
    OffsetsTable(cluster).commit(GROUP, position)
    begin_transaction(root, f"txn{EVIL}", TopicPartition(TOPIC, 0))
    for number in (1, 2):
        config = {"broker.rack": f"rack{EVIL}", "broker.session.timeout.ms": HOUR_MS}
        RegistryMember(
            cluster, GatewayConfig.parse(config), host=f"host{EVIL}", port=number, version=EVIL
        ).join()
    return root


@pytest.fixture
def clients():
    """Makes clients of consoles, which are closed after the test."""
    opened = []

    def client(root, host="127.0.0.1:8470", **settings):
        app = create_app(Cluster(root), Admin(root), ConsoleSettings(**settings))
        made = TestClient(app, base_url=f"http://{host}", follow_redirects=False)
        opened.append(made)
        return made.__enter__()

    yield client
    for each in opened:
        each.__exit__(None, None, None)


@pytest.fixture
def client(root, clients):
    """A client of a console that only reads."""
    return clients(root)


@pytest.fixture
def own_root(tmp_path):
    """A root for tests that change something: ``flights`` with 10 records, and a group at 4."""
    root = tmp_path / "root"
    admin = Admin(root)
    admin.create_topics([NewTopic("flights", topic_configs=FAST)])
    append(root, "flights", *(flight(number) for number in range(10)))
    admin.alter_group_offsets("reports", {TopicPartition("flights", 0): OffsetAndMetadata(4)})
    return root


def get(client, path, **query):
    """Return the JSON answer of a view."""
    answer = client.get(f"/api{path}", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()
