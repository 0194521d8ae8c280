"""The topics of a campaign, and what each is for."""

from __future__ import annotations

from spark_log import NewTopic, TopicPartition

EVENTS, COPIES, DEALS = "events", "copies", "deals"
"""Records of idempotent producers; their copies by transactions; records of transactions."""

TRADES, LINES, REPLICATED = "trades", "lines", "replicated"
"""Records of transactions over two topics; lines to count words of; records with three replicas."""

PARTITIONS = {EVENTS: 4, COPIES: 4, DEALS: 3, TRADES: 2, LINES: 2, REPLICATED: 2}

CONFIGS = {
    "message.timestamp.after.max.ms": "9223372036854775807",  # clocks of gateways are wrong
    "file.delete.delay.ms": "3000",
    "merge.tail.segments": "20",
    "snapshot.interval.segments": "10",
}

CLUSTER = {
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.session.timeout.ms": "8000",
    "group.initial.rebalance.delay.ms": "300",
}


def new_topics(exist=()):
    """Return the topics to create, without those that exist."""
    return [
        NewTopic(name, replica_assignment=dict.fromkeys(range(count), (0,)), topic_configs=CONFIGS)
        for name, count in PARTITIONS.items()
        if name not in exist
    ]


def partitions_of(*topics):
    """Return the partitions of some topics."""
    return [TopicPartition(name, each) for name in topics for each in range(PARTITIONS[name])]
