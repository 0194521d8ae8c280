"""Kafka's integration tests of Connect and MirrorMaker, whose workers run in one process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from tests.gateway.suites.kafka_clients.junit_suite import JUnitSuite

_KAFKA = "4.3.1"  # the tests of 4.1 use a jar that is not in Maven's repository
_JAVA = Path(__file__).with_name("java")
_REPLICAS = (
    "It counts replicas in the metadata: clients see one replica of each partition, its gateway."
)
_DEFAULTS = "It has a default of topics' configs (log.cleanup.policy) in the brokers' properties."


class KafkaConnectTests(JUnitSuite):
    """Tests of ``EmbeddedConnectCluster``, whose Kafka is gateways (`KafkaClusterTestKit.java`)."""

    name = "kafka-connect-tests"
    client = "Kafka's integration tests of Connect and MirrorMaker (Java)"
    version = _KAFKA
    heap = "2g"
    not_applicable: ClassVar[Mapping[str, str]] = {
        "InternalTopicsIntegrationTest.testCreateInternalTopicsWithDefaultSettings": _REPLICAS,
        "InternalTopicsIntegrationTest.testCreateInternalTopicsWithFewerReplicasThanBrokers": (
            _REPLICAS
        ),
        "InternalTopicsIntegrationTest."
        "testStartWhenInternalTopicsCreatedManuallyWithCompactForBrokersDefaultCleanupPolicy": (
            _DEFAULTS
        ),
    }
    artifacts = (
        f"org.apache.kafka:kafka-test-common-runtime:{_KAFKA}",
        f"org.apache.kafka:kafka-test-common-internal-api:{_KAFKA}",
        f"org.apache.kafka:kafka_2.13:{_KAFKA}",
        f"org.apache.kafka:kafka-clients:{_KAFKA}:test",
        f"org.apache.kafka:kafka-server-common:{_KAFKA}:test",
        f"org.apache.kafka:connect-runtime:{_KAFKA}",
        f"org.apache.kafka:connect-mirror:{_KAFKA}",
        f"org.apache.kafka:connect-file:{_KAFKA}",
        f"org.apache.kafka:connect-test-plugins:{_KAFKA}",
        "org.apache.httpcomponents:httpclient:4.5.14",
        "org.bouncycastle:bcpkix-jdk18on:1.80",
        "org.junit.platform:junit-platform-launcher:1.13.1",
        "org.mockito:mockito-junit-jupiter:5.14.2",
        "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",  # some tests read what is logged
    )
    test_artifacts = (
        f"org.apache.kafka:connect-runtime:{_KAFKA}:test",
        f"org.apache.kafka:connect-mirror:{_KAFKA}:test",
        f"org.apache.kafka:kafka_2.13:{_KAFKA}:test",
    )
    tests_in = (
        ("connect-runtime", "org/apache/kafka/connect/integration/"),
        ("connect-mirror", "org/apache/kafka/connect/mirror/integration/"),
    )
    sources = (*JUnitSuite.sources, _JAVA)
    unpacked = ("test-plugins/",)
