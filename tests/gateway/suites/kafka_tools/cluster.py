"""Scenarios of the tools that show and change a cluster."""

from __future__ import annotations

import json

from tests.gateway.suites.kafka_tools.tools import Tools

_USED_BY_CLIENTS = (
    *("Produce", "Fetch", "ListOffsets", "Metadata", "FindCoordinator", "ApiVersions"),
    *("OffsetCommit", "OffsetFetch", "JoinGroup", "Heartbeat", "LeaveGroup", "SyncGroup"),
    *("ConsumerGroupHeartbeat", "InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn"),
    *("EndTxn", "TxnOffsetCommit", "OffsetForLeaderEpoch"),
)
_ELECTION = "kafka-leader-election"
_REASSIGN = "kafka-reassign-partitions"
_LOG_DIRS = "kafka-log-dirs"


def preferred_leader(tools: Tools) -> None:
    topic = tools.topic(partitions=2)
    preferred = ("--election-type", "preferred")
    tools.run(_ELECTION, *preferred, "--topic", topic, "--partition", 0)
    both = [{"topic": topic, "partition": number} for number in (1, 0)]
    file = tools.file("partitions.json", json.dumps({"partitions": both}))
    tools.run(_ELECTION, *preferred, "--path-to-json-file", file, is_sorted=True)
    everything = ("--all-topic-partitions",)
    tools.run(_ELECTION, *preferred, *everything, only="nothing")


def unclean_leader(tools: Tools) -> None:
    topic = tools.topic()
    tools.run(_ELECTION, "--election-type", "unclean", "--topic", topic, "--partition", 0)


def leader_of_what_does_not_exist(tools: Tools) -> None:
    topic = tools.topic()
    preferred = ("--election-type", "preferred")
    tools.run(_ELECTION, *preferred, "--topic", topic, "--partition", 7, status=1)
    unknown = ("--topic", f"{tools.prefix}-nothing", "--partition", 0)
    tools.run(_ELECTION, *preferred, *unknown, status=1)
    tools.run(_ELECTION, "--topic", topic, "--partition", 0, status=1)
    tools.run(_ELECTION, *preferred, "--topic", topic, status=1)
    tools.run(_ELECTION, "--election-type", "fair", "--topic", topic, status=1)


def _plan(tools: Tools, name: str, partitions: list[tuple[str, int, list[int]]]) -> object:
    plan = {
        "version": 1,
        "partitions": [
            {"topic": topic, "partition": partition, "replicas": replicas}
            for topic, partition, replicas in partitions
        ],
    }
    return tools.file(name, json.dumps(plan))


def reassign(tools: Tools) -> None:
    topic = tools.topic(partitions=2)
    topics = tools.file("topics", json.dumps({"topics": [{"topic": topic}], "version": 1}))
    generate = ("--topics-to-move-json-file", topics, "--broker-list", "1", "--generate")
    tools.run(_REASSIGN, *generate)
    plan = ("--reassignment-json-file", _plan(tools, "plan", [(topic, 0, [1]), (topic, 1, [1])]))
    tools.run(_REASSIGN, *plan, "--execute")
    tools.until(lambda shown: "in progress" not in shown, _REASSIGN, *plan, "--verify")
    tools.run(_REASSIGN, "--list")
    tools.run(_REASSIGN, *plan, "--cancel")


def reassign_to_an_unknown_broker(tools: Tools) -> None:
    topic = tools.topic()
    for name, where in {"unknown": [77], "both": [1, 77], "none": [], "twice": [1, 1]}.items():
        plan = ("--reassignment-json-file", _plan(tools, name, [(topic, 0, where)]))
        tools.run(_REASSIGN, *plan, "--execute", status=1)
    tools.run("kafka-topics", "--describe", "--topic", topic)


def reassign_what_does_not_exist(tools: Tools) -> None:
    topic = tools.topic()
    unknown = _plan(tools, "unknown", [(f"{tools.prefix}-nothing", 0, [1])])
    tools.run(_REASSIGN, "--reassignment-json-file", unknown, "--execute", status=1)
    tools.run(_REASSIGN, "--reassignment-json-file", unknown, "--verify", status=1)
    unknown = _plan(tools, "partition", [(topic, 7, [1])])
    tools.run(_REASSIGN, "--reassignment-json-file", unknown, "--execute", status=1)
    empty = tools.file("empty", "{}")
    tools.run(_REASSIGN, "--reassignment-json-file", empty, "--execute", status=1)
    tools.run(_REASSIGN, status=1)


def log_directories(tools: Tools) -> None:
    topic = tools.topic(partitions=2)
    tools.produce(topic, "a")
    shown = tools.run(_LOG_DIRS, "--describe", "--topic-list", topic, only="^(Q|R)")
    (broker,) = json.loads(shown.splitlines()[-1])["brokers"]
    (directory,) = broker["logDirs"]
    partitions = sorted(
        f"{each['partition']} {each['size'] > 0} {each['offsetLag']} {each['isFuture']}"
        for each in directory["partitions"]
    )
    shape = (sorted(broker), sorted(directory), sorted(directory["partitions"][0]))
    tools.note("log directories", "\n".join(map(str, (broker["broker"], *shape, *partitions))))
    listed = ("--describe", "--broker-list", "1", "--topic-list", f"{tools.prefix}-nothing")
    tools.run(_LOG_DIRS, *listed, hidden=((r'"logDir":"[^"]*"', '"logDir":"D"'),))


def log_directories_of_an_unknown_broker(tools: Tools) -> None:
    tools.run(_LOG_DIRS, "--describe", "--broker-list", "1,77", status=1)
    tools.run(_LOG_DIRS, "--describe", "--broker-list", "one", status=1)
    tools.run(_LOG_DIRS, status=1)


def cluster_id(tools: Tools) -> None:
    hidden = ((r"Cluster ID: \S+", "Cluster ID: ID"),)
    tools.run("kafka-cluster", "cluster-id", hidden=hidden)


def endpoints(tools: Tools) -> None:
    tools.run("kafka-cluster", "list-endpoints")
    tools.run("kafka-cluster", "list-endpoints", "--include-fenced-brokers")


def unregister(tools: Tools) -> None:
    tools.run("kafka-cluster", "unregister", "--id", 77, status=1)


def wrong_usage_of_cluster(tools: Tools) -> None:
    tools.run("kafka-cluster", "explode", status=1, is_apart=True)


def features(tools: Tools) -> None:
    tools.run("kafka-features", "describe", is_sorted=True)


def change_features(tools: Tools) -> None:
    unknown = ("upgrade", "--feature", "no.such.feature=1")
    tools.run("kafka-features", *unknown, status=1)
    tools.run("kafka-features", "upgrade", "--feature", "group.version=1", status=0)


def api_versions(tools: Tools) -> None:
    shown = tools.run("kafka-broker-api-versions")
    usable = {line.split("(")[0].strip() for line in shown.splitlines() if "usable" in line}
    missing = sorted(set(_USED_BY_CLIENTS) - usable)
    tools.note("requests of clients that are missing", "\n".join(missing))


def quorum(tools: Tools) -> None:
    tools.run("kafka-metadata-quorum", "describe", "--status", only="LeaderId")
    tools.run("kafka-metadata-quorum", "describe", "--replication", only="Leader")


SCENARIOS = {
    _ELECTION: (preferred_leader, unclean_leader, leader_of_what_does_not_exist),
    _REASSIGN: (reassign, reassign_to_an_unknown_broker, reassign_what_does_not_exist),
    _LOG_DIRS: (log_directories, log_directories_of_an_unknown_broker),
    "kafka-cluster": (cluster_id, endpoints, unregister, wrong_usage_of_cluster),
    "kafka-features": (features, change_features),
    "kafka-broker-api-versions": (api_versions,),
    "kafka-metadata-quorum": (quorum,),
}
"""Scenarios by their tool."""
