"""Sarama's functional tests, whose connections go through toxiproxy, which breaks them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import ClassVar

from spark_log import Admin
from tests.gateway.processes import GatewayProcess
from tests.gateway.suites.go_tests import build_test_program, go, go_results
from tests.gateway.suites.suite import Gateways, Suite, TestResult, run_program

_TOXIPROXY = "github.com/Shopify/toxiproxy/v2/cmd/server@v2.12.0"
_CONTROL_PORT = 8474
_BROKERS = range(1, 6)
_IN_CONTAINER = "It starts Kafka's Java programs in the container of a broker."

_DOCKER = """\
#!/bin/sh
# docker compose start|stop kafka-N: for the gateway N.
n=${3#kafka-}
case $2 in
stop) kill -TERM "$(cat "$GATEWAYS/pid-$n")" ;;
start)
    nohup sh "$GATEWAYS/start-$n" >"$GATEWAYS/log-$n" 2>&1 &
    echo $! >"$GATEWAYS/pid-$n"
    until grep -q listens "$GATEWAYS/log-$n"; do sleep 0.1; done
    ;;
esac
"""
"""The tests stop and start the containers of brokers."""


class Sarama(Suite):
    """Five gateways behind proxies: producers, groups and transactions while connections break."""

    name = "sarama"
    client = "IBM/sarama (Go)"
    version = "v1.61.1"
    time_limit_s = 900
    not_applicable: ClassVar[Mapping[str, str]] = {
        "TestConsumerFetchFollowerFailover": (
            "It asks for followers: clients see one replica of each partition, its gateway."
        ),
        "TestFuncAdminAlterPartitionReassignments": (
            "It expects the new replicas in the metadata: clients see one replica of each "
            "partition, its gateway."
        ),
        "TestFuncAdminIncrementalAlterConfigs": (
            "It changes log.cleaner.backoff.ms of a broker: gateways have no cleaner."
        ),
        "TestFuncAdminQuotas": "It sets quotas of users: quotas are those of client ids.",
        "TestFuncAdminUpdateFeatures": (
            "It changes features of Kafka's brokers; those of a root are changed by the command "
            "spark-log features."
        ),
        "TestFuncIdempotentBufferedSequence": "It reads the log of a broker's container.",
        "TestFuncJavaInteropCooperativeRebalance": _IN_CONTAINER,
        "TestJavaConsumerCompressionRoundTrip": _IN_CONTAINER,
        "TestJavaMurmur2PartitionerInterop": _IN_CONTAINER,
        "TestJavaProducerCompressionRoundTrip": _IN_CONTAINER,
        "TestReadOnlyAndAllCommittedMessages": "Sarama's own runs leave it out: it is unreliable.",
    }

    tests = (
        "TestAsyncProducerRemoteBrokerClosed",
        "TestConsumerGroupDeadlock",
        "TestConsumerHighWaterMarkOffset",
        "TestConsumerPartialBatchRecovery",
        "TestFuncAdminAlterConfig",
        "TestFuncAdminAlterConsumerGroupOffsets",
        "TestFuncAdminDeleteGroup",
        "TestFuncAdminDeleteRecords",
        "TestFuncAdminDeleteTopic",
        "TestFuncAdminDescribeConfig",
        "TestFuncAdminDescribeGroups",
        "TestFuncAdminDescribeLogDirs",
        "TestFuncAdminElectLeadersV1",
        "TestFuncAdminListConsumerGroupOffsets",
        "TestFuncAdminListConsumerGroupOffsetsBatch",
        "TestFuncAdminListConsumerGroups",
        "TestFuncAdminListOffsets",
        "TestFuncAdminNetworkErrorClosesControllerConnection",
        "TestFuncClientCoordinator",
        "TestFuncClientMetadata",
        "TestFuncConnectionFailure",
        "TestFuncConsumerGroupCooperative",
        "TestFuncConsumerGroupExcessConsumers",
        "TestFuncConsumerGroupFuzzy",
        "TestFuncConsumerGroupOffsetDeletion",
        "TestFuncConsumerGroupPartitioning",
        "TestFuncConsumerGroupPartitioningStateful",
        "TestFuncConsumerGroupRebalanceAfterAddingPartitions",
        "TestFuncConsumerGroupStaticMembership_Basic",
        "TestFuncConsumerGroupStaticMembership_Fenced",
        "TestFuncConsumerGroupStaticMembership_RejoinAndLeave",
        "TestFuncConsumerOffsetOutOfRange",
        "TestFuncDescribeProducers",
        "TestFuncDescribeTransactions",
        "TestFuncInitProducerId3",
        "TestFuncJoinGroupVersionSelection",
        "TestFuncListTransactions",
        "TestFuncMultiPartitionProduce",
        "TestFuncOffsetManager",
        "TestFuncProducing",
        "TestFuncProducingFlushing",
        "TestFuncProducingGzip",
        "TestFuncProducingIdempotentWithBrokerFailure",
        "TestFuncProducingNoResponse",
        "TestFuncProducingSnappy",
        "TestFuncProducingToInvalidTopic",
        "TestFuncProducingZstd",
        "TestFuncTxnAbortedProduce",
        "TestFuncTxnCommitNoMessages",
        "TestFuncTxnProduce",
        "TestFuncTxnProduceAndCommitOffset",
        "TestFuncTxnProduceEpochBump",
        "TestFuncTxnProduceMultiTxn",
        "TestFuncTxnProduceNoBegin",
        "TestFuncTxnProduceWithBrokerFailure",
        "TestInterceptors",
        "TestVersionMatrix",
        "TestVersionMatrixIdempotent",
        "TestVersionMatrixLZ4",
        "TestVersionMatrixZstd",
    )

    def install(self, folder: Path) -> None:
        module, program = "github.com/IBM/sarama", folder / "sarama"
        build_test_program(module, self.version, ".", program, tags="functional")
        run_program([go(), "install", _TOXIPROXY], env={"GOBIN": str(folder)})

    def run(
        self, folder: Path, gateways: Gateways, selected: Callable[[str], bool]
    ) -> Iterator[TestResult]:
        tests = [each for each in self.tests if selected(each)]
        if not tests:
            return
        with _proxied_gateways(gateways.root, folder / "server") as state:
            env = {
                "TOXIPROXY_ADDR": f"http://127.0.0.1:{_CONTROL_PORT}",
                "KAFKA_VERSION": "4.1.0",
                "GATEWAYS": str(state),
                "PATH": f"{state}:{os.environ['PATH']}",
            }
            program = folder / "sarama"
            yield from go_results(program, tests, env=env, time_limit_s=self.time_limit_s)


@contextmanager
def _proxied_gateways(beside: Path, toxiproxy: Path) -> Iterator[Path]:
    """Run five gateways, each behind a proxy on the port that the tests know, for the block.

    Topics have three replicas, so the root has three brokers.

    Yields:
        A folder with the program ``docker``, and with the process id and the start command of
        each gateway.
    """
    root, state = beside.with_name("sarama"), beside.with_name("sarama-gateways")
    state.mkdir()
    (state / "docker").write_text(_DOCKER)
    (state / "docker").chmod(0o755)
    for broker in (1, 2):
        Admin(str(root)).register_broker(broker, beside.with_name(f"sarama-disk-{broker}"))
    with ExitStack() as stack:
        command = [str(toxiproxy), "-host", "127.0.0.1"]
        proxies = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        stack.callback(proxies.wait)
        stack.callback(proxies.kill)
        stack.callback(_stop, state)
        for number in _BROKERS:
            listen = f"127.0.0.1:{28090 + number}"  # no port that connections may have
            address = f"127.0.0.1:{29090 + number}"
            settings = {
                "broker.id": str(number),
                "auto.create.topics.enable": "false",
            }
            gateway = GatewayProcess(str(root), settings, address, options=("--listen", listen))
            (state / f"pid-{number}").write_text(str(gateway.pid))
            (state / f"start-{number}").write_text(f"exec {' '.join(gateway.command)}\n")
            _add_proxy(f"kafka{number}", listen=address, upstream=listen)
        yield state


def _add_proxy(name: str, *, listen: str, upstream: str) -> None:
    proxy = {"name": name, "listen": listen, "upstream": upstream, "enabled": True}
    request = urllib.request.Request(
        f"http://127.0.0.1:{_CONTROL_PORT}/proxies", json.dumps(proxy).encode(), method="POST"
    )
    deadline_s = time.monotonic() + 30
    while True:
        try:
            urllib.request.urlopen(request, timeout=5).close()
            return
        except OSError:  # it does not listen yet
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.1)


def _stop(state: Path) -> None:
    """End the gateways that run now: tests may have stopped and started some."""
    for each in state.glob("pid-*"):
        with suppress(ProcessLookupError):
            os.kill(int(each.read_text()), signal.SIGKILL)
