"""kafka-python's integration tests, from its source distribution."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from spark_log import Admin, ConfigResource, ConfigResourceType
from tests.gateway.suites.kafka_scripts import write_kafka_scripts
from tests.gateway.suites.pytest_results import (
    create_environment,
    pytest_results,
    unpack_source,
)
from tests.gateway.suites.suite import Gateways, Suite, TestResult

_RESOURCES = {
    "kafka.properties": """\
node.id={broker_id}
listeners={transport}://{host}:{port}
log.dirs={tmp_dir}/data
sasl.jaas.config={jaas_config}
{sasl_config}
{ssl_config}
""",
    "kafka_server_jaas.conf": "KafkaServer {{ {jaas_config} }};\n",
    "log4j.properties": "",
    "sasl_command.conf": """\
security.protocol={transport}
sasl.mechanism={sasl_mechanism}
sasl.username=alice
sasl.password=alice-secret
""",
}
"""Templates of files that the fixture of a broker renders; the source distribution has none."""


class KafkaPython(Suite):
    """Admin client, groups, every codec, idempotence, transactions, SASL and TLS."""

    name = "kafka-python"
    client = "kafka-python (Python)"
    version = "3.0.12"
    settings: ClassVar[Mapping[str, str]] = {"num.partitions": "4"}  # as in the client's own CI
    not_applicable: ClassVar[Mapping[str, str]] = {
        "test_admin_integration.py::test_create_describe_delete_acls": (
            "It asks for ACLs: the storage's permissions decide who may read and write a root."
        ),
        "test_admin_integration.py::test_describe_metadata_quorum": (
            "It asks for the Raft quorum of Kafka's controllers: the metadata log has none, any "
            "gateway appends to it."
        ),
        "test_consumer_integration.py::test_kafka_consumer_offsets_for_time_old": (
            "It is for brokers before 0.10.1."
        ),
    }

    def install(self, folder: Path) -> None:
        package = f"kafka-python[crc32c,lz4,snappy,zstd]=={self.version}"
        python = create_environment(folder / "venv", [package, "pytest-mock==3.15.1", "py==1.11.0"])
        unpack_source(python, f"kafka-python=={self.version}", folder / "source")
        shutil.rmtree(folder / "source" / "kafka")  # the installed package is tested

    def run(
        self, folder: Path, gateways: Gateways, selected: Callable[[str], bool]
    ) -> Iterator[TestResult]:
        source = folder / "source"
        (source / "test" / "__init__.py").touch()
        shutil.copy(Path(__file__).with_name("spawned_service.py"), source / "test" / "service.py")
        resources = source / "servers" / "resources" / "default"
        resources.mkdir(parents=True, exist_ok=True)
        for name, template in _RESOURCES.items():
            (resources / name).write_text(template)
        write_kafka_scripts(folder / "kafka")
        # Those of the brokers that the tests start in kafka-python's own CI.
        configs = {"group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 1000}
        cluster = ConfigResource(ConfigResourceType.BROKER, "", configs)
        Admin(str(gateways.root)).alter_configs([cluster])
        env = {"KAFKA_ROOT": str(folder / "kafka"), "KAFKA_VERSION": "4.2.0"}
        for files, uri in (
            (("admin", "consumer", "producer"), {"KAFKA_URI": f"kafka://{gateways.addresses[0]}"}),
            (("sasl", "ssl"), {}),  # start brokers of their own
        ):
            yield from pytest_results(
                folder / "venv" / "bin" / "python",
                [f"test/integration/test_{each}_integration.py" for each in files],
                cwd=source,
                env={**env, **uri},
                selected=selected,
                time_limit_s=self.time_limit_s,
            )
