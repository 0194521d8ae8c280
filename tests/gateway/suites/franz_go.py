"""franz-go's tests of its package kgo: those that talk to brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from tests.gateway.suites.go_tests import build_test_program, go_results
from tests.gateway.suites.suite import Gateways, Suite, TestResult

_NO_SHARE_GROUPS = "It asks for share groups (KIP-932), which gateways do not have."


class FranzGo(Suite):
    """Producers, groups of both protocols, and transactions, by chains of consumers."""

    name = "franz-go"
    client = "franz-go (Go)"
    version = "v1.22.3"
    time_limit_s = 900
    not_applicable: ClassVar[Mapping[str, str]] = {
        "TestConsumeRegexShareSkipsInternal": _NO_SHARE_GROUPS,
        "TestOAuthAuth": "It asks for OAUTHBEARER, a token that an identity provider signs.",
        "TestShareGroup": _NO_SHARE_GROUPS,
        "TestShareGroupAckOnClose": _NO_SHARE_GROUPS,
        "TestShareGroupETL": _NO_SHARE_GROUPS,
        "TestShareGroupOffsetsAdmin": _NO_SHARE_GROUPS,
    }

    tests = (
        "Test848RegexBrokerResolves",
        "TestAddRemovePartitions",
        "TestClient_Produce",
        "TestClient_ProduceLargeMessages",
        "TestConsumeMaxDecompressBatchBytes",
        "TestConsumeRegex",
        "TestConsumeTopicRetrieval",
        "TestConsumeTopicRetrieval_Many",
        "TestDirectPartitionPurge",
        "TestGroupETL",
        "TestGroupSimple",
        "TestHookPollStart",
        "TestIssue1034",
        "TestIssue325",
        "TestIssue337",
        "TestIssue434",
        "TestIssue523",
        "TestIssue648",
        "TestIssue769",
        "TestIssue810",
        "TestIssue831",
        "TestIssue865",
        "TestIssueFetchLargerThanBrokerMaxReadBytes",
        "TestPauseIssue489",
        "TestPauseIssueOct2023",
        "TestPing",
        "TestPooling",
        "TestSCRAMAuth",
        "TestSCRAMAuthBadCredentials",
        "TestTxnEtl",
        "TestUnknownGroupOffsetFetchPinned",
    )
    """Tests that need a broker; the package's others are of the client alone."""

    def install(self, folder: Path) -> None:
        build_test_program("github.com/twmb/franz-go", self.version, "pkg/kgo", folder / "kgo")

    def run(
        self, folder: Path, gateways: Gateways, selected: Callable[[str], bool]
    ) -> Iterator[TestResult]:
        env = {
            "KGO_SEEDS": gateways.bootstrap_servers,
            "KGO_TEST_RF": "1",
            "KGO_TEST_RECORDS": "10000",
            "KGO_LOG_LEVEL": "none",
        }
        tests = [each for each in self.tests if selected(each)]
        if tests:
            yield from go_results(folder / "kgo", tests, env=env, time_limit_s=self.time_limit_s)
