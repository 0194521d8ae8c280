"""Scenarios of kafka-configs and kafka-client-metrics."""

from __future__ import annotations

import re

from spark_log.config import ClusterConfig, GatewayConfig
from tests.gateway.suites.kafka_tools.tools import Tools

_TOOL = "kafka-configs"


def topic_configs(tools: Tools) -> None:
    topic = ("--topic", tools.topic())
    tools.run(_TOOL, "--describe", *topic)
    changes = "retention.ms=60000,cleanup.policy=[compact,delete],max.message.bytes=2000000"
    tools.run(_TOOL, "--alter", *topic, "--add-config", changes)
    tools.run(_TOOL, "--describe", *topic)
    tools.run(_TOOL, "--alter", *topic, "--add-config", "retention.ms=70000")
    tools.run(_TOOL, "--alter", *topic, "--delete-config", "cleanup.policy,max.message.bytes")
    tools.run(_TOOL, "--describe", *topic)
    both = ("--add-config", "segment.ms=100000", "--delete-config", "retention.ms")
    tools.run(_TOOL, "--alter", *topic, *both)
    tools.run(_TOOL, "--describe", *topic)


def topic_configs_of_a_file(tools: Tools) -> None:
    topic = ("--topic", tools.topic())
    file = tools.file("configs", "retention.ms=60000\nmin.cleanable.dirty.ratio=0.1\n")
    tools.run(_TOOL, "--alter", *topic, "--add-config-file", file)
    tools.run(_TOOL, "--describe", *topic)


def all_topic_configs(tools: Tools) -> None:
    topic = tools.topic(compression_type="zstd")
    tools.run(_TOOL, "--describe", "--all", "--topic", topic, is_sorted=True)


def configs_of_all_topics(tools: Tools) -> None:
    tools.topic("a", retention_ms=1000)
    tools.topic("b")
    about = rf"topic {tools.prefix}"
    tools.run(_TOOL, "--describe", "--entity-type", "topics", only=about, is_sorted=True)


def bad_topic_configs(tools: Tools) -> None:
    topic = ("--topic", tools.topic())
    for config in (
        "retention.ms=abc",
        "retention.ms=-2",
        "cleanup.policy=shred",
        "no.such.config=1",
        "compression.type=rar",
        "min.insync.replicas=0",
        "retention.ms",
    ):
        tools.run(_TOOL, "--alter", *topic, "--add-config", config, status=1)
    for name in ("retention.ms", "no.such.config"):
        tools.run(_TOOL, "--alter", *topic, "--delete-config", name, status=1)
    tools.run(_TOOL, "--alter", *topic, status=1)
    tools.run(_TOOL, "--describe", *topic)


def configs_of_an_unknown_topic(tools: Tools) -> None:
    topic = ("--topic", f"{tools.prefix}-nothing")
    tools.run(_TOOL, "--describe", *topic)
    tools.run(_TOOL, "--describe", "--all", *topic, status=1)
    tools.run(_TOOL, "--alter", *topic, "--add-config", "retention.ms=1000", status=1)
    bad = ("--topic", "bad name!")
    tools.run(_TOOL, "--alter", *bad, "--add-config", "retention.ms=1000", status=1)


def all_broker_configs(tools: Tools) -> None:
    """Compare the configs that a gateway has; Kafka's brokers have more."""
    names = {*GatewayConfig.keys(), *ClusterConfig.keys(), "advertised.listeners"}
    shown = "|".join(map(re.escape, sorted(names)))
    only = rf"^  ({shown})="
    tools.run(_TOOL, "--describe", "--all", "--broker", "1", only=only, is_sorted=True)


def dynamic_broker_configs(tools: Tools) -> None:
    tools.run(_TOOL, "--describe", "--broker", "1")
    tools.run(_TOOL, "--describe", "--broker-defaults")
    tools.run(_TOOL, "--alter", "--broker", "1", "--add-config", "log.cleaner.threads=2")
    tools.run(_TOOL, "--describe", "--broker", "1")
    tools.run(_TOOL, "--alter", "--broker", "1", "--delete-config", "log.cleaner.threads")


def bad_broker_configs(tools: Tools) -> None:
    for config in ("broker.id=5", "num.io.threads=x"):
        tools.run(_TOOL, "--alter", "--broker", "1", "--add-config", config, status=1)
    tools.run(_TOOL, "--describe", "--broker", "one", status=1)
    tools.run(_TOOL, "--describe", "--broker", "77", says="doesn't exist")
    tools.run(_TOOL, "--describe", "--broker-logger", "77", says="doesn't exist")


def broker_loggers(tools: Tools) -> None:
    logger = ("--broker-logger", "1")
    tools.run(_TOOL, "--describe", *logger, only="kafka.server.KafkaApis|Dynamic")
    tools.run(_TOOL, "--alter", *logger, "--add-config", "no.such.logger=x", status=1)


def client_quotas(tools: Tools) -> None:
    client = ("--client", f"{tools.prefix}-client")
    tools.run(_TOOL, "--describe", *client)
    quotas = "producer_byte_rate=100000,consumer_byte_rate=200000"
    tools.run(_TOOL, "--alter", *client, "--add-config", quotas)
    tools.run(_TOOL, "--describe", *client)
    tools.run(_TOOL, "--alter", *client, "--delete-config", "producer_byte_rate")
    tools.run(_TOOL, "--describe", *client)
    tools.run(_TOOL, "--alter", *client, "--delete-config", "consumer_byte_rate")
    tools.run(_TOOL, "--describe", *client)


def default_client_quotas(tools: Tools) -> None:
    default = ("--client-defaults",)
    tools.run(_TOOL, "--alter", *default, "--add-config", "producer_byte_rate=1000000000")
    tools.run(_TOOL, "--describe", *default)
    tools.run(_TOOL, "--describe", "--entity-type", "clients")
    tools.run(_TOOL, "--alter", *default, "--delete-config", "producer_byte_rate")


def bad_client_quotas(tools: Tools) -> None:
    client = ("--client", f"{tools.prefix}-client")
    for config in ("no_such_quota=1", "producer_byte_rate=x", "producer_byte_rate=0"):
        tools.run(_TOOL, "--alter", *client, "--add-config", config, status=1)
    tools.run(_TOOL, "--alter", *client, "--delete-config", "consumer_byte_rate", status=1)


def quotas_of_users(tools: Tools) -> None:
    user = ("--user", f"{tools.prefix}-user")
    tools.run(_TOOL, "--alter", *user, "--add-config", "producer_byte_rate=100000")
    tools.run(_TOOL, "--describe", *user)
    tools.run(_TOOL, "--alter", *user, "--delete-config", "producer_byte_rate")


def quotas_of_addresses(tools: Tools) -> None:
    address = ("--ip", "10.0.0.1")
    tools.run(_TOOL, "--alter", *address, "--add-config", "connection_creation_rate=100")
    tools.run(_TOOL, "--describe", *address)
    tools.run(_TOOL, "--alter", *address, "--delete-config", "connection_creation_rate")


def scram_users(tools: Tools) -> None:
    user = ("--user", f"{tools.prefix}-user")
    secret = "SCRAM-SHA-256=[password=secret]"
    tools.run(_TOOL, "--alter", *user, "--add-config", secret)
    tools.run(_TOOL, "--describe", *user)
    tools.run(_TOOL, "--alter", *user, "--delete-config", "SCRAM-SHA-256")
    tools.run(_TOOL, "--describe", *user)


def group_configs(tools: Tools) -> None:
    group = ("--group", f"{tools.prefix}-group")
    tools.run(_TOOL, "--describe", *group)
    timeout = "consumer.session.timeout.ms=50000"
    tools.run(_TOOL, "--alter", *group, "--add-config", timeout)
    tools.run(_TOOL, "--describe", *group)
    tools.run(_TOOL, "--alter", *group, "--delete-config", "consumer.session.timeout.ms")
    tools.run(_TOOL, "--describe", *group)


def configs_of_client_metrics(tools: Tools) -> None:
    metrics = ("--client-metrics", f"{tools.prefix}-metrics")
    tools.run(_TOOL, "--alter", *metrics, "--add-config", "interval.ms=30000")
    tools.run(_TOOL, "--describe", *metrics)
    tools.run(_TOOL, "--alter", *metrics, "--delete-config", "interval.ms")


def wrong_usage(tools: Tools) -> None:
    tools.run(_TOOL, status=1)
    tools.run(_TOOL, "--describe", "--entity-type", "planets", status=1)
    tools.run(_TOOL, "--describe", status=1)
    topic = ("--topic", f"{tools.prefix}-nothing")
    tools.run(_TOOL, "--alter", *topic, status=1)
    tools.run(_TOOL, "--alter", "--describe", *topic, status=1)
    tools.run(_TOOL, "--describe", "--entity-name", "x", status=1)


def list_of_client_metrics(tools: Tools) -> None:
    tools.run("kafka-client-metrics", "--list")
    tools.run("kafka-client-metrics", "--describe")


def client_metrics(tools: Tools) -> None:
    name = ("--name", f"{tools.prefix}-metrics")
    tool = "kafka-client-metrics"
    matching = ("--metrics", "org.apache.kafka.producer.", "--match", "client_id=a.*")
    tools.run(tool, "--alter", *name, *matching, "--interval", 30000)
    tools.run(tool, "--describe", *name)
    tools.run(tool, "--list")
    tools.run(tool, "--delete", *name)


SCENARIOS = {
    _TOOL: (
        topic_configs,
        topic_configs_of_a_file,
        all_topic_configs,
        configs_of_all_topics,
        bad_topic_configs,
        configs_of_an_unknown_topic,
        all_broker_configs,
        dynamic_broker_configs,
        bad_broker_configs,
        broker_loggers,
        client_quotas,
        default_client_quotas,
        bad_client_quotas,
        quotas_of_users,
        quotas_of_addresses,
        scram_users,
        group_configs,
        configs_of_client_metrics,
        wrong_usage,
    ),
    "kafka-client-metrics": (list_of_client_metrics, client_metrics),
}
"""Scenarios by their tool."""
