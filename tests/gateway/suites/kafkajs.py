"""kafkajs, with tests of ours: its package has none."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.gateway.suites.suite import (
    Gateways,
    Outcome,
    Suite,
    TestResult,
    program_lines,
    run_program,
)

_TESTS, _REPORTER = "kafkajs_tests.mjs", "kafkajs_reporter.mjs"


class KafkaJs(Suite):
    """Producers, groups, transactions and the admin client; no codecs that have to be compiled."""

    name = "kafkajs"
    client = "kafkajs (JavaScript)"
    tests_are_ours = True
    version = "2.2.4"

    def install(self, folder: Path) -> None:
        packages = [f"kafkajs@{self.version}", "kafkajs-snappy@1.1.0", "lz4js@0.2.0"]
        run_program(["npm", "install", "--silent", "--prefix", folder, *packages])

    def run(
        self, folder: Path, gateways: Gateways, selected: Callable[[str], bool]
    ) -> Iterator[TestResult]:
        for name in (_TESTS, _REPORTER):
            shutil.copy(Path(__file__).with_name(name), folder)
        command = ["node", "--test", f"--test-reporter=./{_REPORTER}", _TESTS]
        said: list[str] = []
        count = 0
        for line in program_lines(
            command,
            cwd=folder,
            env={"BROKERS": gateways.bootstrap_servers},
            time_limit_s=self.time_limit_s,
        ):
            if not line.startswith("{"):
                said.append(line)
                continue
            found = json.loads(line)
            count += 1
            outcome = Outcome.PASSED if found["passed"] else Outcome.FAILED
            yield TestResult(found["test"], outcome, found["reason"][:2000])
        written = len(re.findall(r"^\s*test\(", (folder / _TESTS).read_text(), re.MULTILINE))
        if count < written:  # those of a loop count once
            yield TestResult("(the suite)", Outcome.FAILED, "\n".join(said)[-2000:])
