"""confluent-kafka's tests that need a broker, from the last source distribution that has them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from spark_log import Admin
from tests.gateway.suites.pytest_results import (
    create_environment,
    pytest_results,
    unpack_source,
)
from tests.gateway.suites.suite import Gateways, Suite, TestResult

TESTS_VERSION = "1.4.2"
"""The version of the tests; source distributions after it have none."""

_CLUSTER = '''\
"""The cluster that runs already, in place of one that trivup would download and start."""

import os


class KafkaCluster:
    def __init__(self, **conf):
        pass

    def wait_operational(self):
        pass

    def client_conf(self):
        return {"bootstrap.servers": os.environ["BROKERS"]}

    def stop(self, cleanup):
        pass
'''


class ConfluentKafka(Suite):
    """Producers, consumers of both protocols, serializers, statistics, quotas, transactions."""

    name = "confluent-kafka"
    client = "confluent-kafka with librdkafka 2.16 (Python)"
    version = "2.16.1"
    not_applicable: ClassVar[Mapping[str, str]] = {
        "test_integration.py::test_admin": (
            "It asks for compression.type=gzip to be shown: Arrow files have no such codec, and "
            "the topic has zstd."
        ),
    }

    def install(self, folder: Path) -> None:
        package = f"confluent-kafka[schemaregistry]=={self.version}"
        python = create_environment(folder / "venv", [package])
        source = folder / "source"
        unpack_source(python, f"confluent-kafka=={TESTS_VERSION}", source)
        shutil.rmtree(source / "confluent_kafka")  # the installed package is tested

    def run(
        self, folder: Path, gateways: Gateways, selected: Callable[[str], bool]
    ) -> Iterator[TestResult]:
        source = folder / "source"
        clusters = source / "trivup" / "clusters"
        clusters.mkdir(parents=True, exist_ok=True)
        (clusters / "KafkaCluster.py").write_text(_CLUSTER)
        tests = source / "tests" / "integration"
        shutil.copy(Path(__file__).with_name("confluent_tests.py"), tests / "test_integration.py")
        # As in the client's own CI.
        Admin(str(gateways.root)).alter_client_quotas(
            {"throttled_client": {"producer_byte_rate": 1024}}
        )
        yield from pytest_results(
            folder / "venv" / "bin" / "python",
            [
                "tests/integration/serialization/test_serializers.py",
                "tests/integration/test_integration.py",
            ],
            cwd=source,
            env={"BROKERS": gateways.bootstrap_servers},
            selected=selected,
            time_limit_s=self.time_limit_s,
            test_time_limit_s=180,
        )
