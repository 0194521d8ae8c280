"""aiokafka, with tests of ours: its own need Docker, and its source distribution has none."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.gateway.suites.pytest_results import create_environment, pytest_results
from tests.gateway.suites.suite import Gateways, Suite, TestResult


class AioKafka(Suite):
    """Producers with every codec, groups, transactions and the admin client, of old versions."""

    name = "aiokafka"
    client = "aiokafka (Python)"
    version = "0.14.0"
    tests_are_ours = True

    def install(self, folder: Path) -> None:
        create_environment(folder / "venv", [f"aiokafka[lz4,snappy,zstd]=={self.version}"])

    def run(
        self, folder: Path, gateways: Gateways, selected: Callable[[str], bool]
    ) -> Iterator[TestResult]:
        shutil.copy(Path(__file__).with_name("aiokafka_tests.py"), folder / "test_aiokafka.py")
        yield from pytest_results(
            folder / "venv" / "bin" / "python",
            ["test_aiokafka.py"],
            cwd=folder,
            env={"BROKERS": gateways.bootstrap_servers},
            selected=selected,
            time_limit_s=self.time_limit_s,
        )
