"""On a terminal of 80 columns no table cuts off a name or a number, however long the names are."""

import sys

import pytest

from spark_log import Admin, NewTopic, OffsetAndMetadata, TopicPartition
from spark_log.cluster import Cluster
from spark_log.coordinator.group.coordinator import GroupCoordinator
from tests.cli.support import append

TOPIC = "a-topic-of-a-team-with-a-name-that-has-more-than-sixty-letters-in-it"
GROUP = "a-group-of-another-team-with-a-name-that-has-more-than-sixty-letters"
COUNT = 12_345


@pytest.fixture(autouse=True)
def names(root, monkeypatch):
    """Long names of a topic, a group, a member and a client."""
    Admin(root).create_topics([NewTopic(TOPIC, topic_configs={"retention.ms": "-1"})])
    append(root, TOPIC, *[b"x"] * COUNT)
    GroupCoordinator(Cluster(root), GROUP).join([TOPIC], client_id="client-1234", instance_id="i-1")
    offsets = {TopicPartition(TOPIC, 0): OffsetAndMetadata(1)}
    Admin(root).alter_group_offsets("g", offsets)
    Admin(root).alter_client_quotas({GROUP: {"producer_byte_rate": COUNT}})
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("topics describe", [TOPIC, "12,345"]),
        ("configs describe --all", [TOPIC, "index.interval.bytes", "retention.ms"]),
        ("configs describe --entity-type clients", [GROUP, "12345"]),
        ("offsets list", [TOPIC, "12,345"]),
        ("log-dirs", [TOPIC, "12,345"]),
        ("groups describe --all-groups", [TOPIC, GROUP, "12,345", "12,344", "client-1234"]),
        ("groups describe --all-groups --members --verbose", [GROUP, "i-1", f"{TOPIC}(0)"]),
        ("groups describe --all-groups --state", [GROUP, "Stable"]),
        (f"groups delete-offsets g --topic {TOPIC}", [TOPIC, "deleted"]),
        (f"groups reset-offsets g --to-latest --topic {TOPIC} --dry-run", [TOPIC, "12,345"]),
        (f"delete-records {TOPIC} --before-offset 12345 --yes", [TOPIC, "12,345"]),
        ("clean --all-topics --dry-run", [TOPIC]),
    ],
)
def test_a_table_is_whole(shell, root, command, shown, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    outcome = shell(*command.split())
    assert outcome.status == 0
    assert [text for text in shown if text not in outcome.out] == []
    assert "…" not in outcome.out
    for line in outcome.lines:
        # A name, a path or Kafka's line about a topic may be longer: the terminal breaks it.
        is_long = line.startswith("Topic: ") or any(
            name in line for name in (TOPIC, GROUP, str(root))
        )
        assert len(line) <= 80 or is_long
