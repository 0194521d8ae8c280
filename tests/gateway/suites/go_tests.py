"""Tests of Go packages: they are built from a module of the proxy, and run one result a line."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.gateway.suites.suite import Outcome, TestResult, program_lines, run_program

_OUTCOMES = {"pass": Outcome.PASSED, "fail": Outcome.FAILED, "skip": Outcome.FAILED}


def go() -> str:
    """Return the path of Go, which its installer puts outside of the usual PATH."""
    return shutil.which("go", path=f"{os.environ['PATH']}:/usr/local/go/bin") or "go"


def build_test_program(module: str, version: str, package: str, program: Path) -> None:
    """Build the tests of a package, as its module has them, into one program.

    Args:
        module: the module's path.
        version: its version.
        package: the package's path in the module.
        program: the file to write.
    """
    found = run_program(
        [go(), "mod", "download", "-json", f"{module}@{version}"], cwd=program.parent
    )
    # Go builds the tests of a module only where it may write its go.sum.
    source = program.parent / "source"
    shutil.copytree(json.loads(found[found.index("{") :])["Dir"], source, copy_function=shutil.copy)
    for each in (source, *source.rglob("*")):
        each.chmod(each.stat().st_mode | 0o200)
    run_program([go(), "test", "-c", "-o", program, f"./{package}"], cwd=source)


def go_results(
    program: Path,
    tests: Sequence[str],
    *,
    env: Mapping[str, str],
    time_limit_s: float,
    parallel: int = 2,
) -> Iterator[TestResult]:
    """Run tests of a program, and yield the results of their subtests, or else their own.

    A test that skips itself counts as failed: what does not apply is named by its suite.

    Args:
        program: the program of `build_test_program`.
        tests: names of tests.
        env: environment variables to add to those of this process.
        time_limit_s: the time after which it is killed.
        parallel: the number of tests that it runs at a time, of those that allow it.
    """
    # fmt: off
    command = [go(), "tool", "test2json", str(program), "-test.v=test2json", "-test.count=1",
               f"-test.run=^({'|'.join(tests)})$", f"-test.parallel={parallel}",
               f"-test.timeout={time_limit_s:.0f}s"]
    # fmt: on
    waiting = set(tests)
    output: dict[str, list[str]] = {}
    for line in program_lines(command, cwd=program.parent, env=env, time_limit_s=time_limit_s + 5):
        event = json.loads(line) if line.startswith("{") else {"Action": "output", "Output": line}
        test = event.get("Test", "")
        if event["Action"] == "output":
            output.setdefault(test, []).append(event["Output"])
        elif event["Action"] in _OUTCOMES and test:
            waiting.discard(test)
            # A subtest's name may have a slash of its own: only tests are known to be parents.
            if "/" in test or not any(each.startswith(f"{test}/") for each in output):
                outcome = _OUTCOMES[event["Action"]]
                said = "" if outcome is Outcome.PASSED else _reason(output.get(test, ()))
                yield TestResult(test, outcome, said)
    for test in sorted(waiting):
        # Go's panic, or its list of goroutines after the time limit, is not of one test.
        said = "".join([*output.get("", ()), *output.get(test, ())])
        yield TestResult(test, Outcome.FAILED, f"did not end: {said[:2000]}")


def _reason(output: Sequence[str]) -> str:
    """Return what a test said, without the lines of Go's own report."""
    lines = [each.strip() for each in output if not each.lstrip().startswith(("===", "---"))]
    return "\n".join(lines)[-2000:]
