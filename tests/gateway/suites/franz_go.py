"""franz-go's tests of its package kgo: those that talk to brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from tests.gateway.suites.go_tests import build_test_program, go_results
from tests.gateway.suites.secured_gateways import gateway_with_tls, gateway_with_users
from tests.gateway.suites.suite import Gateways, Suite, TestResult

_NO_INTERNAL_TOPIC = (
    "It asks for the internal topic __consumer_offsets; the log's committed offsets are a table."
)
_NO_SHARE_GROUPS = "It asks for share groups (KIP-932), which gateways do not have."


class FranzGo(Suite):
    """Producers, groups of both protocols, and transactions, by chains of consumers."""

    name = "franz-go"
    client = "franz-go (Go)"
    version = "v1.22.3"
    time_limit_s = 900
    not_applicable: ClassVar[Mapping[str, str]] = {
        "Test848RegexBrokerResolves": _NO_INTERNAL_TOPIC,
        "TestConsumeRegex": _NO_INTERNAL_TOPIC,
        "TestConsumeRegexShareSkipsInternal": _NO_SHARE_GROUPS,
        "TestOAuthAuth": "It asks for OAUTHBEARER, a token that an identity provider signs.",
        "TestShareGroup": _NO_SHARE_GROUPS,
        "TestShareGroupAckOnClose": _NO_SHARE_GROUPS,
        "TestShareGroupETL": _NO_SHARE_GROUPS,
        "TestShareGroupOffsetsAdmin": _NO_SHARE_GROUPS,
    }

    tests = (
        "TestAddRemovePartitions",
        "TestClient_Produce",
        "TestClient_ProduceLargeMessages",
        "TestConsumeMaxDecompressBatchBytes",
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

    in_chaos = ("TestGroupETL", "TestTxnEtl")
    """Tests whose clients can lose each of their connections within 1.5 seconds."""

    # The others connect by a dialer of their own, or to a gateway that asks for a password.
    with_tls = tuple(each for each in tests if each != "TestIssue769" and "SCRAM" not in each)
    """Tests whose clients can be given a certificate."""

    def run(
        self, folder: Path, gateways: Gateways, selected: Callable[[str], bool]
    ) -> Iterator[TestResult]:
        env = {
            "KGO_SEEDS": gateways.bootstrap_servers,
            "KGO_TEST_RF": "1",
            "KGO_TEST_RECORDS": "10000",
            "KGO_TEST_UNSAFE": "",
            "KGO_LOG_LEVEL": "none",
        }
        with gateway_with_users(gateways.root, {"alice": "secret"}) as addresses:
            env |= {"KGO_TEST_SCRAM": "alice:secret", "KGO_TEST_SCRAM_SEEDS": addresses}
            yield from self._results(folder, "", self.tests, selected, env)
        chaos = {**env, "KGO_TEST_CHAOS": "1"}
        yield from self._results(folder, "chaos: ", self.in_chaos, selected, chaos)
        with gateway_with_tls(gateways.root) as (addresses, certificate):
            tls = {**env, "KGO_SEEDS": addresses, "KGO_TEST_TLS": f"ca:{certificate}"}
            yield from self._results(folder, "TLS: ", self.with_tls, selected, tls)

    def _results(
        self,
        folder: Path,
        prefix: str,
        names: Sequence[str],
        selected: Callable[[str], bool],
        env: Mapping[str, str],
    ) -> Iterator[TestResult]:
        tests = [each for each in names if selected(prefix + each)]
        if not tests:
            return
        for result in go_results(folder / "kgo", tests, env=env, time_limit_s=self.time_limit_s):
            yield replace(result, test=prefix + result.test)
