"""Scenarios of kafka-topics."""

from __future__ import annotations

from tests.gateway.suites.kafka_tools.tools import Tools

_TOOL = "kafka-topics"


def create_and_describe(tools: Tools) -> None:
    topic = tools.topic(partitions=3, retention_ms=60000, cleanup_policy="compact")
    tools.run(_TOOL, "--describe", "--topic", topic)


def create_without_a_size(tools: Tools) -> None:
    topic = f"{tools.prefix}-a"
    tools.run(_TOOL, "--create", "--topic", topic)
    tools.run(_TOOL, "--describe", "--topic", topic)


def create_with_a_replica_assignment(tools: Tools) -> None:
    topic = f"{tools.prefix}-a"
    tools.run(_TOOL, "--create", "--topic", topic, "--replica-assignment", "1,1")
    tools.run(_TOOL, "--describe", "--topic", topic)
    new = f"{tools.prefix}-b"
    for assignment in ("7", "1,7", "1:7"):
        tools.run(_TOOL, "--create", "--topic", new, "--replica-assignment", assignment, status=1)
    both = ("--replica-assignment", "1", "--partitions", 2)
    tools.run(_TOOL, "--create", "--topic", new, *both, status=1)


def create_an_existing_topic(tools: Tools) -> None:
    topic = tools.topic(partitions=2)
    tools.run(_TOOL, "--create", "--topic", topic, status=1)
    tools.run(_TOOL, "--create", "--topic", topic, "--if-not-exists")
    tools.run(_TOOL, "--describe", "--topic", topic)


def create_with_an_invalid_name(tools: Tools) -> None:
    for name in ("bad name!", "..", ".", "ä", "x" * 250):
        tools.run(_TOOL, "--create", "--topic", name, status=1)


def create_with_a_name_that_collides(tools: Tools) -> None:
    tools.run(_TOOL, "--create", "--topic", f"{tools.prefix}.b_c")
    tools.run(_TOOL, "--create", "--topic", f"{tools.prefix}.b.c", status=1)


def create_with_a_bad_config(tools: Tools) -> None:
    for config in (
        "retention.ms=abc",
        "retention.ms=-2",
        "cleanup.policy=shred",
        "no.such.config=1",
        "min.insync.replicas=0",
        "message.timestamp.type=Birthday",
        "segment.bytes=5",
        "max.message.bytes",
    ):
        tools.run(_TOOL, "--create", "--topic", f"{tools.prefix}-a", "--config", config, status=1)
    tools.run(_TOOL, "--describe", "--topic", f"{tools.prefix}-a", status=1)


def create_with_too_few_brokers(tools: Tools) -> None:
    topic = f"{tools.prefix}-a"
    tools.run(_TOOL, "--create", "--topic", topic, "--replication-factor", 3, status=1)
    for size in (("--partitions", 0), ("--partitions", -3), ("--replication-factor", 0)):
        tools.run(_TOOL, "--create", "--topic", topic, *size, status=1)


def list_by_name(tools: Tools) -> None:
    for name in ("b", "a", "c"):
        tools.topic(name)
    tools.run(_TOOL, "--list", "--topic", f"{tools.prefix}-.*")
    tools.run(_TOOL, "--list", "--topic", f"{tools.prefix}-[ab]")
    tools.run(_TOOL, "--list", "--exclude-internal", only=f"^{tools.prefix}-")
    tools.run(_TOOL, "--list", "--topic", f"{tools.prefix}-nothing")


def describe_several(tools: Tools) -> None:
    tools.topic("b", 2)
    tools.topic("a", min_insync_replicas=2)
    tools.run(_TOOL, "--describe", "--topic", f"{tools.prefix}-.*", is_sorted=True)
    tools.run(_TOOL, "--describe", only=rf"Topic: {tools.prefix}-", is_sorted=True)
    pages = ("--partition-size-limit-per-response", 1)
    tools.run(_TOOL, "--describe", "--topic", f"{tools.prefix}-b", *pages)


def describe_what_needs_attention(tools: Tools) -> None:
    tools.topic("a", min_insync_replicas=2)
    tools.topic("b")
    tools.topic("c", retention_ms=1000)
    for only in (
        "--under-replicated-partitions",
        "--unavailable-partitions",
        "--under-min-isr-partitions",
        "--at-min-isr-partitions",
    ):
        tools.run(_TOOL, "--describe", only, "--topic", f"{tools.prefix}-.*", is_sorted=True)
    overrides = ("--topics-with-overrides", "--topic", f"{tools.prefix}-[ac]")
    tools.run(_TOOL, "--describe", *overrides, is_sorted=True)


def describe_an_unknown_topic(tools: Tools) -> None:
    topic = f"{tools.prefix}-nothing"
    tools.run(_TOOL, "--describe", "--topic", topic, status=1)
    tools.run(_TOOL, "--describe", "--topic", topic, "--if-exists")
    tools.run(_TOOL, "--describe", "--topic-id", "AAAAAAAAAAAAAAAAAAAAAQ", status=1)
    tools.run(_TOOL, "--describe", "--topic-id", "x", status=1)


def describe_by_id(tools: Tools) -> None:
    topic = tools.topic(partitions=2)
    described = tools.run(_TOOL, "--describe", "--topic", topic)
    topic_id = described.partition("TopicId: ")[2].split()[0]
    tools.run(_TOOL, "--describe", "--topic-id", topic_id)


def more_partitions(tools: Tools) -> None:
    topic = tools.topic(partitions=3)
    tools.run(_TOOL, "--alter", "--topic", topic, "--partitions", 5)
    tools.run(_TOOL, "--describe", "--topic", topic)
    for partitions in (5, 2, 0):
        tools.run(_TOOL, "--alter", "--topic", topic, "--partitions", partitions, status=1)
    tools.run(_TOOL, "--alter", "--topic", topic, status=1)
    tools.run(_TOOL, "--describe", "--topic", topic)


def more_partitions_with_an_assignment(tools: Tools) -> None:
    topic = tools.topic()

    def alter(partitions: int, assignment: str, status: int = 0) -> None:
        given = ("--partitions", partitions, "--replica-assignment", assignment)
        tools.run(_TOOL, "--alter", "--topic", topic, *given, status=status)

    alter(3, "1,1,1")
    alter(4, "1,1,1,9", status=1)
    alter(4, "1,1,1,1:1", status=1)
    alter(5, "1,1,1,1", status=1)
    tools.run(_TOOL, "--describe", "--topic", topic)


def more_partitions_of_an_unknown_topic(tools: Tools) -> None:
    size = ("--topic", f"{tools.prefix}-nothing", "--partitions", 5)
    tools.run(_TOOL, "--alter", *size, status=1)
    tools.run(_TOOL, "--alter", *size, "--if-exists")


def delete(tools: Tools) -> None:
    topic = tools.topic()
    tools.run(_TOOL, "--delete", "--topic", topic)
    tools.run(_TOOL, "--delete", "--topic", topic, status=1)
    tools.run(_TOOL, "--delete", "--topic", topic, "--if-exists")
    tools.run(_TOOL, "--describe", "--topic", topic, status=1)


def delete_several_and_create_again(tools: Tools) -> None:
    topic = tools.topic("a")
    tools.topic("b")
    tools.produce(topic, "old")
    tools.run(_TOOL, "--delete", "--topic", f"{tools.prefix}-.*")
    tools.run(_TOOL, "--list", "--topic", f"{tools.prefix}-.*")
    tools.topic("a")
    tools.run("kafka-get-offsets", "--topic", topic)


def wrong_usage(tools: Tools) -> None:
    tools.run(_TOOL, status=1)
    tools.run(_TOOL, "--create", status=1)
    tools.run(_TOOL, "--create", "--list", status=1)
    tools.run(_TOOL, "--delete", status=1)
    tools.run(_TOOL, "--list", "--partitions", 1, status=1)


SCENARIOS = {
    _TOOL: (
        create_and_describe,
        create_without_a_size,
        create_with_a_replica_assignment,
        create_an_existing_topic,
        create_with_an_invalid_name,
        create_with_a_name_that_collides,
        create_with_a_bad_config,
        create_with_too_few_brokers,
        list_by_name,
        describe_several,
        describe_what_needs_attention,
        describe_an_unknown_topic,
        describe_by_id,
        more_partitions,
        more_partitions_with_an_assignment,
        more_partitions_of_an_unknown_topic,
        delete,
        delete_several_and_create_again,
        wrong_usage,
    )
}
"""Scenarios by their tool."""
