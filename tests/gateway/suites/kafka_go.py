"""Tests of Segment's kafka-go: those that talk to brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from tests.gateway.suites.go_tests import build_test_program, go_results
from tests.gateway.suites.secured_gateways import gateway_with_users
from tests.gateway.suites.suite import Gateways, Suite, TestResult

_NO_ACLS = "It asks for ACLs: the storage's permissions decide who may read and write a root."
_BROKEN = "The test itself ends in a panic, with every broker: it does not set up its client."


class KafkaGo(Suite):
    """A client that shares no code with the others: requests one by one, readers, writers."""

    name = "kafka-go"
    client = "segmentio/kafka-go (Go)"
    version = "v0.4.51"
    address = "localhost:9092"
    settings: ClassVar[Mapping[str, str]] = {
        "broker.id": "1",
        "super.users": "User:ANONYMOUS",
    }
    not_applicable: ClassVar[Mapping[str, str]] = {
        "TestClientCreateACLs": _NO_ACLS,
        "TestClientDeleteACLs": _NO_ACLS,
        "TestClientDescribeACLs": _NO_ACLS,
        "TestConn/test_delete_topics": (
            "It fails with Kafka 4.1, too: its question about a deleted topic creates the topic."
        ),
        "TestConn/test_delete_topics_with_an_invalid_topic": (
            "It expects no partitions in the first answer about a topic that is created for the "
            "client: a gateway creates the topic before it answers."
        ),
        "TestConn/nettest": "kafka-go's own runs leave it out (KAFKA_SKIP_NETTEST).",
        "TestReaderConsumerGroup/consumer_group_commits_on_close": _BROKEN,
        "TestReaderConsumerGroup/consumer_group_rebalance": (
            "It fails with Kafka 4.1, too: it expects 12 records of a partition that gets 8."
        ),
        "TestReaderConsumerGroup/verify_offset_committed": _BROKEN,
        "TestReaderConsumerGroup/verify_offset_committed_when_using_interval_committer": _BROKEN,
        "TestReaderReadCompactedMessage": (
            "It asks for segments of 200 bytes; Kafka 4 has 1 MiB as the minimum, too (KIP-1030)."
        ),
        "TestWriter/writing_a_message_with_SASL_Plain_authentication": (
            "It asks for a second listener of the same broker; a gateway has one."
        ),
    }

    tests = (
        "TestAlterUserScramCredentials",
        "TestBatchDontExpectEOF",
        "TestClient",
        "TestClientAlterClientQuotas",
        "TestClientAlterConfigs",
        "TestClientAlterPartitionReassignments",
        "TestClientAlterPartitionReassignmentsMultiTopics",
        "TestClientApiVersions",
        "TestClientCreatePartitions",
        "TestClientCreatePartitionsNoAssignments",
        "TestClientCreateTopics",
        "TestClientDeleteGroups",
        "TestClientDeleteOffset",
        "TestClientDeleteTopics",
        "TestClientDescribeConfigs",
        "TestClientDescribeGroups",
        "TestClientElectLeaders",
        "TestClientFetch",
        "TestClientFetchCompressed",
        "TestClientFindCoordinator",
        "TestClientHeartbeat",
        "TestClientIncrementalAlterConfigs",
        "TestClientJoinGroup",
        "TestClientLeaveGroup",
        "TestClientListGroups",
        "TestClientListOffsets",
        "TestClientListPartitionReassignments",
        "TestClientMetadata",
        "TestClientOffsetCommit",
        "TestClientPipeline",
        "TestClientProduce",
        "TestClientProduceAndConsume",
        "TestClientProduceCompressed",
        "TestClientProduceEmptyRecords",
        "TestClientProduceNilRecords",
        "TestClientRawProduce",
        "TestClientRawProduceCompressed",
        "TestClientRawProduceEmptyRecords",
        "TestClientRawProduceNilRecords",
        "TestClientSyncGroup",
        "TestCloseLeavesGroup",
        "TestConn",
        "TestConnCreateTopics",
        "TestConsumerGroup",
        "TestConsumerGroupWithGroupTopicsMultiple",
        "TestConsumerGroupWithGroupTopicsSingle",
        "TestConsumerGroupWithTopic",
        "TestDescribeUserScramCredentials",
        "TestDialer",
        "TestDialerResolver",
        "TestDialerTLS",
        "TestOffsetFetchRequestWithNoTopic",
        "TestOffsetFetchRequestWithOneTopic",
        "TestReadPartitionsNoTopic",
        "TestReader",
        "TestReaderConsumerGroup",
        "TestReaderOnNonZeroPartition",
        "TestReaderTruncatedResponse",
        "TestRebalanceTooManyConsumers",
        "TestUnsupportedSASLMechanism",
        "TestWriteV2RecordBatch",
        "TestWriter",
    )
    """Tests that need a broker; the others are of the client alone."""

    def install(self, folder: Path) -> None:
        build_test_program("github.com/segmentio/kafka-go", self.version, ".", folder / "kafka-go")

    def run(
        self, folder: Path, gateways: Gateways, selected: Callable[[str], bool]
    ) -> Iterator[TestResult]:
        tests = [each for each in (*self.tests, *self.not_applicable) if selected(each)]
        tests = sorted({each.partition("/")[0] for each in tests})
        if not tests:
            return
        env = {"KAFKA_VERSION": "4.2.0", "KAFKA_SKIP_NETTEST": "1"}
        with gateway_with_users(gateways.root, {"adminplain": "admin-secret"}, "localhost:9093"):
            yield from go_results(
                folder / "kafka-go",
                tests,
                skipped=[
                    each for each in self.not_applicable if "/" in each and not selected(each)
                ],
                env=env,
                time_limit_s=self.time_limit_s,
            )
