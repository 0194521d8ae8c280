"""Kafka's integration tests of its clients: consumers, producers, transactions, groups, admin."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from benchmarks.kafka_broker import fetch_jars, find_java
from tests.gateway.suites.kafka_clients import gateway_host
from tests.gateway.suites.suite import (
    Gateways,
    Outcome,
    Suite,
    TestResult,
    program_lines,
    run_program,
)

_KAFKA = "4.3.1"  # the tests of 4.1 and of 4.2.0 are not in Maven's repository
_TESTS = (
    f"org.apache.kafka:kafka-clients-integration-tests:{_KAFKA}:test",
    f"org.apache.kafka:kafka_2.13:{_KAFKA}:test",
    f"org.apache.kafka:kafka-streams:{_KAFKA}",  # its classes are loaded, and not used
)
_ARTIFACTS = (
    f"org.apache.kafka:kafka-test-common-runtime:{_KAFKA}",
    f"org.apache.kafka:kafka-test-common-internal-api:{_KAFKA}",
    f"org.apache.kafka:kafka_2.13:{_KAFKA}",
    f"org.apache.kafka:kafka-clients:{_KAFKA}:test",
    f"org.apache.kafka:kafka-server-common:{_KAFKA}:test",
    "org.junit.platform:junit-platform-launcher:1.13.1",
    "org.mockito:mockito-core:5.14.2",
    "org.slf4j:slf4j-simple:1.7.36",
)
_IN_SCALA = (
    "kafka.api.ConsumerBounceTest",
    "kafka.api.PlaintextAdminIntegrationTest",
    "kafka.api.PlaintextConsumerTest",
    "kafka.api.PlaintextProducerSendTest",
    "kafka.api.TransactionsBounceTest",
    "kafka.api.TransactionsTest",
)
"""The integration tests of clients that Kafka has not moved to Java, without those of ACLs, SASL,
TLS, quotas of users, a broker's metrics and the topic of groups."""
_JAVA = Path(__file__).with_name("java")
_FLAGS = (
    "-Xmx400m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
)


_NOT_APPLICABLE = {
    "It changes metadata.version, a feature of Kafka's brokers; those of a root are changed by the "
    "command spark-log features.": (
        "MetadataVersionIntegrationTest.testBasicMetadataVersionUpgrade",
        "MetadataVersionIntegrationTest.testDefaultIsLatestVersion",
        "MetadataVersionIntegrationTest.testUpgradeSameVersion",
    ),
    "It asks for unstable features of the broker.": (
        "DescribeFeaturesTest.testUnstableApiVersions",
    ),
    "It expects that an unclean leader election loses a record: gateways share the storage.": (
        "ClientRebootstrapTest.testProducerRebootstrap",
    ),
    "It counts replicas in the metadata: clients see one replica of each partition, its gateway.": (
        "AutoTopicCreationTest.testAutoCreateTopicWithExplicitBrokerConfig",
        "AutoTopicCreationTest.testAutoCreateTopicWithImplicitBrokerConfig",
        "AutoTopicCreationTest.testAutoCreateTopicWithMixedConfig",
        "DescribeProducersWithBrokerIdTest.testDescribeProducersFromFollower",
        "RackAwareAutoTopicCreationTest.testAutoCreateTopic",
    ),
    "It asks a broker that does not lead a partition for its producers, and expects an error: "
    "every gateway reads the same log, and answers.": (
        "DescribeProducersWithBrokerIdTest.testDescribeProducersWithInvalidBrokerId",
    ),
    "It moves a partition and expects another leader: gateways share the work by themselves.": (
        "ListOffsetsIntegrationTest.testThreeCompressedRecordsInOneBatch",
        "ListOffsetsIntegrationTest.testThreeCompressedRecordsInSeparateBatch",
        "ListOffsetsIntegrationTest.testThreeNonCompressedRecordsInOneBatch",
        "ListOffsetsIntegrationTest.testThreeNonCompressedRecordsInSeparateBatch",
        "ListOffsetsIntegrationTest.testThreeRecordsInOneBatchHavingDifferentCompressionTypeWithServer",
        "ListOffsetsIntegrationTest.testThreeRecordsInSeparateBatchHavingDifferentCompressionTypeWithServer",
        "ProducerSendWhileDeletionTest.testSendWithTopicReassignmentIsMidWay",
    ),
    "It sets configs of one group: those of the cluster are for all groups.": (
        "DynamicGroupConfigIntegrationTest.testDescribeGroupConfigSynonymsWithBrokerSynonym",
        "DynamicGroupConfigIntegrationTest.testDescribeGroupConfigSynonymsWithStaticBrokerConfig",
        "DynamicGroupConfigIntegrationTest.testDescribeGroupConfigSynonymsWithoutBrokerSynonym",
    ),
    "It expects the configs of topics that Kafka has, and no others.": (
        "StaticBrokerConfigTest.testInternalConfigsDoNotReturnForCreateTopics",
    ),
    "It expects that a group is described as empty that has neither members nor offsets: such a "
    "group does not exist. Kafka forgets it, too, within ten minutes.": (
        "PlaintextConsumerTest.testAsyncConsumerCloseLeavesGroupOnInterrupt",
        "PlaintextConsumerTest.testClassicConsumerCloseLeavesGroupOnInterrupt",
    ),
    "It asks for the topic __consumer_offsets: groups are in no topic.": (
        "ConsumerIntegrationTest.testSingleCoordinatorOwnershipAfterPartitionReassignment",
        "PlaintextConsumerTest.testAsyncConsumerListTopics",
        "PlaintextConsumerTest.testClassicConsumerListTopics",
    ),
    "It expects another leader epoch after the end of a broker: the epochs of a log do not change "
    "when another gateway serves it.": ("ConsumerIntegrationTest.testLeaderEpoch",),
    "It looks for metrics of a broker in its own process.": (
        "MetricsDuringTopicCreationDeletionTest.testMetricsDuringTopicCreateDelete",
    ),
    "It sets what metrics clients push to brokers (KIP-714).": (
        "ClientTelemetryTest.testIntervalMsParser",
    ),
}
"""The tests that ask for something that the log does not have, by reason, besides those that say so
themselves: they ask the cluster for something that only brokers have (`NotApplicable.java`)."""


class KafkaClients(Suite):
    """Each test gets a root of its own, with a gateway for each broker that it asks for.

    The tests' names are ``Class.method``. A method that runs with several configs of the cluster is
    one test.
    """

    name = "kafka-clients"
    client = "Kafka's integration tests of its clients (Java)"
    version = _KAFKA
    time_limit_s = 7200
    not_applicable: ClassVar[Mapping[str, str]] = {
        test: reason for reason, tests in _NOT_APPLICABLE.items() for test in tests
    }

    def install(self, folder: Path) -> None:
        _compile(folder / "runner", _JAVA / "runner", _class_path())
        jars = fetch_jars("kafka-clients-tests", _TESTS, transitive=False)
        names = []
        for jar, place in (
            ("kafka-clients-integration-tests", "org/"),
            ("kafka_2.13", "kafka/api/"),
        ):
            (found,) = jars.glob(f"{jar}-*-test.jar")
            command = _command(folder / "runner", "list", str(found), place)
            names += run_program(command, time_limit_s=120).split()
        tests = [each for each in names if each.startswith(("org.", *_IN_SCALA))]
        (folder / "tests").write_text("\n".join(dict.fromkeys(tests)))

    def run(
        self, folder: Path, gateways: Gateways, selected: Callable[[str], bool]
    ) -> Iterator[TestResult]:
        names = (folder / "tests").read_text().split()
        wanted = {test: name for name in names if selected(test := _short(name))}
        if not wanted:
            return
        beside = gateways.root.with_name("kafka-clients")
        beside.mkdir()
        chosen = beside / "tests"
        chosen.write_text("\n".join(wanted.values()))
        classes = beside / "classes"
        # With Kafka the tests start brokers of their own, in the process of the tests.
        for each in ("runner",) if gateways.is_kafka else ("runner", "gateways"):
            _compile(classes, _JAVA / each, f"{classes}:{_class_path()}")
        properties = (
            f"-Dgateway.host={sys.executable} -m {gateway_host.__name__} {beside / 'log'}",
            f"-Dgateway.roots={beside}",
        )
        command = _command(classes, "run", str(chosen), properties=properties)
        for line in program_lines(command, time_limit_s=self.time_limit_s):
            if line.startswith('{"') and (result := _result(line)):
                wanted.pop(result.test, None)
                yield result
        for test in wanted:
            yield TestResult(test, Outcome.FAILED, "the program of the tests has ended before it")


def _result(line: str) -> TestResult | None:
    """Return the result in a line; None if the line is another program's JSON."""
    try:
        found = json.loads(line)
        return TestResult(_short(found["test"]), Outcome(found["outcome"]), found["reason"])
    except (ValueError, KeyError):
        return None


def _short(name: str) -> str:
    """Return the short name of a test: ``org.apache.kafka.Class#method`` is ``Class.method``.

    Tests in Scala keep the name of their package: some classes have the names of those in Java.
    """
    return re.sub(r"^org\.([a-z.]+\.)", "", name).replace("#", ".")


def _class_path() -> str:
    tests = fetch_jars("kafka-clients-tests", _TESTS, transitive=False)
    return f"{tests}/*:{fetch_jars('kafka-clients-libs', _ARTIFACTS)}/*"


def _command(
    classes: Path, mode: str, *arguments: str, properties: Sequence[str] = ()
) -> list[str]:
    java = [find_java(), *_FLAGS, *properties, "-cp", f"{classes}:{_class_path()}"]
    return [*java, "sparklog.TestRun", mode, *arguments]


def _compile(target: Path, sources: Path, class_path: str) -> None:
    javac = Path(find_java()).with_name("javac")
    files = sorted(map(str, sources.rglob("*.java")))
    run_program([javac, "-nowarn", "-cp", class_path, "-d", target, *files], time_limit_s=120)
