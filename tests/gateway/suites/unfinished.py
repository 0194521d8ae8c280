"""`UnfinishedRun`: what an interrupted run of a suite has found, which the next run continues."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.gateway.suites.suite import Outcome, Suite, TestResult


class UnfinishedRun:
    """The tests of a suite that have passed in runs that did not end. Suites take up to hours.

    They are lines of JSON in a file. A line of another version of the suite does not count, and a
    test that failed is run again.

    Attributes:
        runs: the number of runs so far.
        passed: the tests that passed in them.
    """

    def __init__(self, path: Path, suite: Suite) -> None:
        """Read the file.

        Args:
            path: the file, which need not exist.
            suite: the suite.
        """
        self._path = path
        self._suite = suite
        self.runs = 0
        self.passed: list[str] = []
        for line in self._lines():
            if self._is_of_suite(line):
                self.runs += "test" not in line
                self.passed += [line["test"]] if "test" in line else []

    def begin(self) -> None:
        """Count another run."""
        self.runs += 1
        self._write({})

    def add(self, result: TestResult) -> None:
        """Keep a result."""
        if result.outcome is Outcome.PASSED:
            self._write({"test": result.test})

    def forget(self) -> None:
        """Remove the suite from the file, because a run has ended, or another one begins anew."""
        kept = [each for each in self._lines() if each["suite"] != self._suite.name]
        self._path.write_text("".join(f"{json.dumps(each)}\n" for each in kept), "utf-8")
        if not kept:
            self._path.unlink()
        self.runs, self.passed = 0, []

    def _write(self, line: dict[str, str]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            of_suite = {"suite": self._suite.name, "version": self._suite.version}
            file.write(f"{json.dumps(of_suite | line)}\n")

    def _lines(self) -> list[dict[str, Any]]:
        if not self._path.exists():
            return []
        return [json.loads(each) for each in self._path.read_text("utf-8").splitlines()]

    def _is_of_suite(self, line: dict[str, Any]) -> bool:
        return (line["suite"], line["version"]) == (self._suite.name, self._suite.version)
