"""Kafka's integration tests of its clients: consumers, producers, transactions, groups, admin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from tests.gateway.suites.kafka_clients.junit_suite import JUnitSuite

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

_NOT_APPLICABLE = {
    "It changes metadata.version, a feature of Kafka's brokers; those of a root are changed by the "
    "command spark-log features.": (
        "MetadataVersionIntegrationTest.testBasicMetadataVersionUpgrade",
        "MetadataVersionIntegrationTest.testDefaultIsLatestVersion",
        "MetadataVersionIntegrationTest.testUpgradeSameVersion",
    ),
    "It sets ACLs: the storage's permissions decide who may read and write.": (
        "DescribeAuthorizedOperationsTest.testClusterAuthorizedOperations",
        "DescribeAuthorizedOperationsTest.testConsumerGroupAuthorizedOperations",
        "DescribeAuthorizedOperationsTest.testTopicAuthorizedOperations",
    ),
    "It forbids to delete topics: gateways have no such setting.": (
        "DeleteTopicTest.testDisableDeleteTopic",
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
        "kafka.api.PlaintextAdminIntegrationTest.testCreateDeleteTopics",
        "kafka.api.PlaintextAdminIntegrationTest.testCreatePartitions",
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
        "kafka.api.PlaintextAdminIntegrationTest.testElectPreferredLeaders",
    ),
    "It sets the interval of assignments of a group (Kafka 4.3), or a config of a share group.": (
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
        "kafka.api.PlaintextConsumerTest.testCloseLeavesGroupOnInterrupt",
    ),
    "It expects that a transaction is aborted at its timeout: gateways abort one when it has "
    "blocked readers for this time.": (
        "kafka.api.TransactionsTest.testFencingOnTransactionExpiration",
    ),
    "It expects that a partition loses a replica with a broker: gateways hold no replicas.": (
        "ProducerFailureHandlingTest.testNotEnoughReplicasAfterBrokerShutdown",
    ),
    "It moves replicas between directories of brokers.": (
        "kafka.api.PlaintextAdminIntegrationTest.testLongTopicNames",
    ),
    "It has members of both protocols in one group: a group has those of one.": (
        "kafka.api.PlaintextAdminIntegrationTest.testConsumerGroupWithMemberMigration",
    ),
    "It compares the configs of a broker with all of Kafka's, or with its loggers.": (
        "kafka.api.PlaintextAdminIntegrationTest.testDescribeAndAlterConfigs",
        "kafka.api.PlaintextAdminIntegrationTest.testDescribeConfigsForLog4jLogLevels",
        "kafka.api.PlaintextAdminIntegrationTest.testIncrementalAlterConfigsForLog4jLogLevels",
        "kafka.api.PlaintextAdminIntegrationTest.testIncrementalAlterConfigsForLog4jLogLevelsCanSetToRootLogger",
        "kafka.api.PlaintextAdminIntegrationTest.testIncrementalAlterConfigsForLog4jLogLevelsDoesNotWorkWithInvalidConfigs",
    ),
    "It asks for the topic __consumer_offsets: groups are in no topic.": (
        "ConsumerIntegrationTest.testSingleCoordinatorOwnershipAfterPartitionReassignment",
        "PlaintextConsumerTest.testAsyncConsumeCoordinatorFailover",
        "PlaintextConsumerTest.testAsyncConsumerListTopics",
        "PlaintextConsumerTest.testClassicConsumerCoordinatorFailover",
        "PlaintextConsumerTest.testClassicConsumerListTopics",
        "SaslPlainPlaintextConsumerTest.testAsyncConsumeCoordinatorFailover",
        "SaslPlainPlaintextConsumerTest.testClassicConsumerCoordinatorFailover",
        "kafka.api.PlaintextAdminIntegrationTest.testListTopicsWithOptionListInternal",
    ),
    "It asks for the topic __transaction_state: transactions are in no topic.": (
        "kafka.api.PlaintextAdminIntegrationTest.testDescribeTransactions",
    ),
    "It reads the epoch of a transaction's coordinator, to abort the transaction, while the log "
    "remembers it only until the next one begins: here an abort needs none.": (
        "kafka.api.PlaintextAdminIntegrationTest.testAbortTransaction",
    ),
    "It expects that a broker that has ended is listed as fenced: a gateway that has ended is not "
    "listed.": ("kafka.api.PlaintextAdminIntegrationTest.testListNodesWithFencedBroker",),
    "It sets defaults of topics' configs in the configs of brokers and of the controller.": (
        "kafka.api.PlaintextAdminIntegrationTest.testCreateTopicsReturnsConfigs",
    ),
    "It damages a file in a broker's log directory.": (
        "kafka.api.PlaintextAdminIntegrationTest.testDeleteRecordsAfterCorruptRecords",
    ),
    "It asks for a share group (KIP-932).": (
        "kafka.api.PlaintextAdminIntegrationTest.testListShareGroupOffsets",
        "kafka.api.PlaintextAdminIntegrationTest.testShareGroups",
    ),
    "It expects the epochs of a group in Kafka 4.3, which begin with 2 (KAFKA-20268): a gateway's "
    "begin with 1, as in Kafka 4.1.": (
        "kafka.api.PlaintextAdminIntegrationTest.testDescribeGroups",
    ),
    "It reads a config of Kafka's topics that has no effect here: it is accepted, and not shown.": (
        "kafka.api.PlaintextAdminIntegrationTest.testAppendAlreadyExistsConfigsAndSubtractNotExistsConfigs",
        "kafka.api.PlaintextAdminIntegrationTest.testAppendConfigToEmptyDefaultValue",
        "kafka.api.PlaintextAdminIntegrationTest.testAppendConfigToExistentValue",
        "kafka.api.PlaintextAdminIntegrationTest.testValidIncrementalAlterConfigs",
    ),
    "It sets compression.type=snappy, which Arrow's files do not have: the topic has lz4.": (
        "kafka.api.PlaintextAdminIntegrationTest.testInvalidAlterConfigs",
    ),
    "It asks for the size of a broker's disk: a root may be in an object store.": (
        "kafka.api.PlaintextAdminIntegrationTest.testDescribeLogDirs",
    ),
    "It compares the text of errors: a gateway's names the config that is given twice, and what is "
    "expected of a value.": (
        "kafka.api.PlaintextAdminIntegrationTest.testInvalidIncrementalAlterConfigs",
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


class KafkaClients(JUnitSuite):
    """The integration tests of clients, in Java and in Scala."""

    name = "kafka-clients"
    client = "Kafka's integration tests of its clients (Java)"
    version = _KAFKA
    artifacts = _ARTIFACTS
    test_artifacts = _TESTS
    patches = ("sparklog.PatchedHarness",)
    tests_in = (("kafka-clients-integration-tests", "org/"), ("kafka_2.13", "kafka/api/"))
    not_applicable: ClassVar[Mapping[str, str]] = {
        test: reason for reason, tests in _NOT_APPLICABLE.items() for test in tests
    }

    def is_listed(self, name: str) -> bool:
        return name.startswith(("org.", *_IN_SCALA))
