"""Tests of Go packages: they are built from a module of the proxy, and run one result a line."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from tests.gateway.suites.suite import Outcome, TestResult, program_lines, run_program

_OUTCOMES = {"pass": Outcome.PASSED, "fail": Outcome.FAILED, "skip": Outcome.FAILED}


def go() -> str:
    """Return the path of Go, which its installer puts outside of the usual PATH."""
    return shutil.which("go", path=f"{os.environ['PATH']}:/usr/local/go/bin") or "go"


def build_test_program(
    module: str, version: str, package: str, program: Path, *, tags: str = ""
) -> None:
    """Build the tests of a package, as its module has them, into one program.

    Args:
        module: the module's path.
        version: its version.
        package: the package's path in the module.
        program: the file to write.
        tags: build tags, separated by commas.
    """
    found = run_program(
        [go(), "mod", "download", "-json", f"{module}@{version}"], cwd=program.parent
    )
    # Go builds the tests of a module only where it may write its go.sum.
    source = program.parent / "source"
    shutil.copytree(json.loads(found[found.index("{") :])["Dir"], source, copy_function=shutil.copy)
    for each in (source, *source.rglob("*")):
        each.chmod(each.stat().st_mode | 0o200)
    command = [go(), "test", "-mod=mod", f"-tags={tags}", "-c", "-o", str(program)]
    command += [f"./{package}"]
    run_program(command, cwd=source)


def go_results(
    program: Path,
    tests: Sequence[str],
    *,
    skipped: Iterable[str] = (),
    env: Mapping[str, str],
    time_limit_s: float,
    parallel: int = 2,
) -> Iterator[TestResult]:
    """Run tests of a program, and yield the results of their subtests, or else their own.

    A test that skips itself counts as failed: what does not apply is named by its suite. A panic
    ends the program; the tests that had not ended are run again.

    Args:
        program: the program of `build_test_program`.
        tests: names of tests.
        skipped: names of subtests, ``TestParent/name``, that are not to be run.
        env: environment variables to add to those of this process.
        time_limit_s: the time after which it is killed.
        parallel: the number of tests that it runs at a time, of those that allow it.
    """
    deadline_s = time.monotonic() + time_limit_s
    waiting = set(tests)
    while waiting:
        # fmt: off
        command = [go(), "tool", "test2json", str(program), "-test.v=test2json", "-test.count=1",
                   f"-test.run={_pattern(sorted(waiting))}", f"-test.parallel={parallel}",
                   f"-test.timeout={time_limit_s:.0f}s"]
        # fmt: on
        command += [f"-test.skip={_pattern(skipped)}"] if skipped else []
        left_s = deadline_s - time.monotonic()
        run = _Run()
        for line in program_lines(
            command, cwd=program.parent / "source", env=env, time_limit_s=left_s
        ):
            yield from run.results(line)
        if not waiting & run.ended:
            for test in sorted(waiting):
                # Go's panic, or its list of goroutines after the time limit, is not of one test.
                said = "".join([*run.output.get("", ()), *run.output.get(test, ())])
                yield TestResult(test, Outcome.FAILED, f"did not end: {said[:2000]}")
            return
        waiting -= run.ended


class _Run:
    """The output of one run of a program so far, by test; lines of no test have an empty name."""

    def __init__(self) -> None:
        self.output: dict[str, list[str]] = {}
        self.ended: set[str] = set()
        self._failed: set[str] = set()

    def results(self, line: str) -> Iterator[TestResult]:
        """Yield the result that a line has, if any."""
        event = json.loads(line) if line.startswith("{") else {"Action": "output", "Output": line}
        test = event.get("Test", "")
        if event["Action"] == "output":
            self.output.setdefault(test, []).append(event["Output"])
        elif event["Action"] in _OUTCOMES and test:
            outcome = _OUTCOMES[event["Action"]]
            self.ended.add(test)
            # A subtest's name may have a slash of its own: only tests are known to be parents. One
            # of these is the failure if none of its subtests is.
            is_parent = "/" not in test and self._is_before_any(test, self.output)
            if is_parent and (outcome is Outcome.PASSED or self._is_before_any(test, self._failed)):
                return
            if outcome is Outcome.FAILED:
                self._failed.add(test)
            said = "" if outcome is Outcome.PASSED else _reason(self.output.get(test, ()))
            yield TestResult(test, outcome, said)

    @staticmethod
    def _is_before_any(test: str, names: Iterable[str]) -> bool:
        return any(each.startswith(f"{test}/") for each in names)


def _pattern(names: Iterable[str]) -> str:
    """Return Go's pattern of tests or subtests: a regular expression for each level."""
    levels = zip(*(each.split("/") for each in names), strict=True)
    return "/".join(f"^({'|'.join(map(re.escape, dict.fromkeys(each)))})$" for each in levels)


def _reason(output: Sequence[str]) -> str:
    """Return what a test said, without the lines of Go's own report."""
    lines = [each.strip() for each in output if not each.lstrip().startswith(("===", "---"))]
    return "\n".join(lines)[-2000:]
