"""The suite of Kafka's integration tests of Streams."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from tests.gateway.suites.kafka_clients.junit_suite import JUnitSuite

_KAFKA = "4.3.1"
_JAVA = Path(__file__).with_name("java")


class KafkaStreamsTests(JUnitSuite):
    """Tests of ``EmbeddedKafkaCluster``, which is made of gateways: a root for each class of tests.

    The runs of a test with groups of Streams (KIP-1071), which Kafka has on since 4.2, are left out
    (`ClassicProtocol.java`).
    """

    name = "kafka-streams-tests"
    client = "Kafka's integration tests of Streams (Java)"
    version = _KAFKA
    heap = "1g"
    not_applicable: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(
            (
                "FineGrainedAutoResetIntegrationTest.shouldResetByDuration",
                "KStreamAggregationIntegrationTest.shouldCountUnlimitedWindows",
            ),
            "It has a default of topics' configs in the brokers' properties.",
        ),
        "PurgeRepartitionTopicIntegrationTest.shouldRestoreState": (
            "It sets internal.segment.bytes, a config for Kafka's own tests."
        ),
    } | {
        f"{name}.{test}": "It asks for groups of Streams (KIP-1071), which Kafka has on since 4.2."
        for name in (
            "RebalanceProtocolMigrationIntegrationTest",
            "RebalanceProtocolMigrationIntegrationTest$WithAssignmentBatchingDisabledTest",
        )
        for test in (
            "shouldMigrateToAndFromStreamsRebalanceProtocol",
            "shouldMigrateFromAndToStreamsRebalanceProtocol",
        )
    }
    artifacts = (
        f"org.apache.kafka:kafka-test-common-runtime:{_KAFKA}",
        f"org.apache.kafka:kafka-test-common-internal-api:{_KAFKA}",
        f"org.apache.kafka:kafka_2.13:{_KAFKA}",
        f"org.apache.kafka:kafka_2.13:{_KAFKA}:test",
        f"org.apache.kafka:kafka-clients:{_KAFKA}:test",
        f"org.apache.kafka:kafka-server-common:{_KAFKA}:test",
        f"org.apache.kafka:kafka-streams:{_KAFKA}",
        f"org.apache.kafka:kafka-streams:{_KAFKA}:test",
        f"org.apache.kafka:kafka-streams-scala_2.13:{_KAFKA}",
        f"org.apache.kafka:kafka-streams-test-utils:{_KAFKA}",
        f"org.apache.kafka:kafka-tools:{_KAFKA}",
        "org.junit.platform:junit-platform-launcher:1.13.1",
        "org.hamcrest:hamcrest:3.0",
        "org.mockito:mockito-core:5.14.2",
        "org.mockito:mockito-junit-jupiter:5.14.2",
        "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3",  # some tests read what is logged
    )
    test_artifacts = (f"org.apache.kafka:kafka-streams-integration-tests:{_KAFKA}:test",)
    tests_in = (("kafka-streams-integration-tests", "org/"),)
    runner = (*JUnitSuite.runner, _JAVA / "runner")
    sources = (*JUnitSuite.sources, _JAVA / "gateways")
