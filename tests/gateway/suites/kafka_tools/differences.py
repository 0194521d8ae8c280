"""The differences, by design, between what the tools write at a gateway and at Kafka."""

from __future__ import annotations

import re
from dataclasses import dataclass

NOT_APPLICABLE = {
    "kafka-client-metrics: client metrics": "It subscribes to metrics of clients (KIP-714).",
    "kafka-cluster: unregister": "It unregisters a broker; a gateway leaves by itself.",
    "kafka-configs: configs of client metrics": "It subscribes to metrics of clients (KIP-714).",
    "kafka-configs: dynamic broker configs": (
        "It changes log.cleaner.threads of a broker: a gateway's configs are given when it starts, "
        "and it has no cleaner."
    ),
    "kafka-configs: quotas of addresses": "It sets quotas of addresses: quotas are of client ids.",
    "kafka-configs: quotas of users": "It sets quotas of users: quotas are of client ids.",
    "kafka-configs: scram users": (
        "It changes users without a password: over the network only a super user may."
    ),
    "kafka-features: change features": (
        "It changes features of Kafka's brokers; those of a root are changed by the command "
        "spark-log features."
    ),
    "kafka-metadata-quorum: quorum": "It describes KRaft's quorum: a root has no controllers.",
}
"""Why a scenario cannot be run, by test."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference in kind between what the tools write at Kafka and at a gateway.

    Attributes:
        reason: why it is there.
        pattern: a regular expression for what is left out of both transcripts; lines of a
            transcript are separated by line feeds.
        tests: a regular expression for the names of the tests that have it.
    """

    reason: str
    pattern: str
    tests: str = ""

    def without(self, text: str) -> str:
        """Return a transcript without the difference."""
        return re.sub(self.pattern, "", text, flags=re.MULTILINE)


DIFFERENCES = (
    Difference(
        "Whether a request is under way when a tool's time is over depends on the moment.",
        r"^! Caused by: \S+\.DisconnectException\n",
        "kafka-consumer-groups: reset of what does not exist",
    ),
    Difference(
        "Kafka lists a group whose configs were all deleted until its broker starts again.",
        r"^(Dynamic configs for group \S+ are:|The group '\S+' doesn't exist .*)\n(?=status)",
        "kafka-configs: group configs",
    ),
    Difference(
        "Kafka 4.1 sets min.insync.replicas as a config of the cluster when its disk is formatted "
        "(KIP-966); at a gateway it is 1 by default.",
        r"min\.insync\.replicas=1,| min\.insync\.replicas=1$"
        r"|^ min\.insync\.replicas=1 sensitive=false .*\n"
        r"|DYNAMIC_DEFAULT_BROKER_CONFIG:min\.insync\.replicas=1(, )?",
    ),
    Difference(
        "The defaults of log.retention.hours and log.roll.hours are no synonyms at Kafka, since "
        "their unit is another; at a gateway those of log.retention.ms and log.roll.ms are.",
        r"(, )?DEFAULT_CONFIG:log\.(retention|roll)\.ms=604800000",
        "kafka-configs: ",
    ),
    Difference(
        "Topics of Kafka have configs that have no effect here: of levels of compression, of files "
        "and their flushes, of tiers, and of throttled replicas.",
        r"^ (compression\.\w+\.level|flush\.m\w+|\w+\.replication\.throttled\.replicas|preallocate"
        r"|local\.retention\.\w+|remote\.[\w.]+|segment\.(index\.bytes|jitter\.ms))=.*\n",
        "kafka-configs: all topic configs",
    ),
    Difference(
        "Topics of the log have configs that Kafka lacks: of merged segments, tables and replicas.",
        r"^ (flush\.on\.append|merge\.[\w.]+|producer\.id\.expiration\.ms"
        r"|replica\.lag\.time\.max\.ms|snapshot\.interval\.segments|table\.[\w.]+)=.*\n",
        "kafka-configs: all topic configs",
    ),
    Difference(
        "A gateway has configs that Kafka's brokers lack.",
        r"^ (broker\.join\.delay\.ms|default\.api\.timeout\.ms|max\.(clock\.skew|in\.flight)[\w.]+"
        r"|leader\.imbalance\.per\.broker\.percentage|metadata\.max\.age\.ms|tail\.cache\.bytes"
        r"|replication\.throttled\.rate|sasl\.users\.file|security\.protocol|super\.users"
        r"|socket\.receive\.max\.ms)=.*\n",
        "kafka-configs: all broker configs",
    ),
    Difference(
        "Some defaults of a gateway are not Kafka's: it has no threads for each connection, bounds "
        "its memory, knows SCRAM only, and rebalances a new group at once.",
        r"^ (group\.initial\.rebalance\.delay\.ms|max\.connections|num\.io\.threads"
        r"|queued\.max\.request\.bytes|sasl\.enabled\.mechanisms)=.*\n",
        "kafka-configs: all broker configs",
    ),
    Difference(
        "A gateway has the features that clients look at, and none of KRaft, share groups and "
        "eligible leader replicas.",
        r"^Feature: (eligible|kraft|metadata|share)\..*\n|Epoch: \d+",
        "kafka-features: features",
    ),
    Difference(
        "A gateway has requests of Kafka 4.2, too, and none of KRaft's controllers, delegation "
        "tokens, share groups and features; nor has it those between brokers.",
        r"^ \w+\(\d+\): .*\n",
        "kafka-broker-api-versions: api versions",
    ),
)
