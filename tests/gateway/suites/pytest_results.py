"""Tests of Python packages: they run with pytest in an environment of their own."""

from __future__ import annotations

import json
import os
import sys
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.gateway.suites.suite import Outcome, TestResult, program_lines, run_program

_WITHOUT_OUR_OWN = {"PYTHONPATH": ""}
"""The environment in which no package of this checkout is found."""


def create_environment(folder: Path, requirements: Sequence[str]) -> Path:
    """Create a virtual environment with packages of PyPI; return the path of its Python.

    Args:
        folder: the folder to create it in.
        requirements: packages besides pytest, as pip takes them.
    """
    python = folder / "bin" / "python"
    run_program([sys.executable, "-m", "venv", folder])
    command: list[str | Path] = [python, "-m", "pip", "install", "-q"]
    command += ["pytest==8.4.2", "pytest-timeout==2.4.0"]
    run_program([*command, "pytest-reportlog==1.0.0", *requirements], env=_WITHOUT_OUR_OWN)
    return python


def unpack_source(python: Path, requirement: str, folder: Path) -> None:
    """Unpack the source distribution of a package into a folder, as PyPI has it.

    Args:
        python: the Python whose pip is used.
        requirement: the name of the package with its version: ``kafka-python==3.0.12``.
        folder: the folder to create.
    """
    name, _ = requirement.split("==")
    folder.mkdir()
    command: list[str | Path] = [python, "-m", "pip", "download", "-q", "--no-deps"]
    command += ["--no-binary", name]
    run_program([*command, "-d", folder, requirement], env=_WITHOUT_OUR_OWN)
    (archive,) = folder.iterdir()
    with tarfile.open(archive) as members:
        for member in members.getmembers():
            _, _, member.name = member.name.partition("/")
            if member.name:
                members.extract(member, folder, filter="data")
    archive.unlink()


def pytest_results(
    python: Path,
    files: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    selected: Callable[[str], bool],
    options: Sequence[str] = (),
    time_limit_s: float,
    test_time_limit_s: int = 60,
) -> Iterator[TestResult]:
    """Run tests of a package, and yield each result as it arrives.

    A test is named by its file and its own name: ``test_admin.py::test_create[gzip]``. A test that
    skips itself counts as failed: what does not apply is named by its suite.

    Args:
        python: the Python of `create_environment`.
        files: the files of tests, relative to ``cwd``.
        cwd: the folder that pytest runs in.
        env: environment variables to add to those of this process.
        selected: whether a test is to be run, by its name.
        options: further options of pytest.
        time_limit_s: the time after which pytest is killed.
        test_time_limit_s: the time after which a test has failed.
    """
    command: list[str | Path] = [python, "-m", "pytest", "-p", "no:cacheprovider", *options]
    env = {**env, **_WITHOUT_OUR_OWN}
    collected = program_lines(
        [*command, "--collect-only", "-q", *files], cwd=cwd, env=env, time_limit_s=time_limit_s
    )
    lines = list(collected)
    found = {_name(line): line for line in lines if line.startswith(tuple(files)) and "::" in line}
    if not found:
        said = "\n".join(lines)[-2000:]
        yield TestResult(f"({', '.join(files)})", Outcome.FAILED, f"no test was found: {said}")
    waiting = [name for name in found if selected(name)]
    if not waiting:
        return
    log = cwd / f"report-{os.getpid()}.jsonl"
    log.unlink(missing_ok=True)
    command += [f"--report-log={log}", "-v", "--log-level=WARNING"]
    # By a signal, so that only the test ends that is too slow.
    command += [f"--timeout={test_time_limit_s}", "--timeout-method=signal"]
    written = program_lines(
        [*command, *(found[name] for name in waiting)],
        cwd=cwd,
        env=env,
        time_limit_s=time_limit_s,
    )
    said = ""
    with _Report(log) as report:
        for line in written:
            said = f"{said}\n{line}"[-2000:]
            for result in report.results():
                waiting.remove(result.test)
                yield result
        for result in report.results():
            waiting.remove(result.test)
            yield result
    for name in waiting:
        yield TestResult(name, Outcome.FAILED, f"did not end: {said}")


class _Report:
    """The file that pytest-reportlog writes while tests run."""

    def __init__(self, path: Path) -> None:
        path.touch()
        self._path = path
        self._file = path.open()
        self._rest = ""
        self._reports: dict[str, list[dict[str, Any]]] = {}

    def __enter__(self) -> _Report:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()
        self._path.unlink()

    def results(self) -> Iterator[TestResult]:
        """Yield the results of tests that have ended since the last call."""
        *lines, self._rest = (self._rest + self._file.read()).split("\n")
        for line in lines:
            report = json.loads(line)
            if report.get("$report_type") != "TestReport":
                continue
            reports = self._reports.setdefault(report["nodeid"], [])
            reports.append(report)
            if report["when"] == "teardown":
                yield _result(report["nodeid"], reports)


def _result(node_id: str, reports: Sequence[Mapping[str, Any]]) -> TestResult:
    """Return the result of a test from the reports of its setup, its call and its teardown."""
    for report in reports:
        if report["outcome"] != "passed":
            return TestResult(_name(node_id), Outcome.FAILED, _reason(report["longrepr"]))
    return TestResult(_name(node_id), Outcome.PASSED)


def _reason(found: Any) -> str:
    """Return why a test has not passed."""
    if isinstance(found, list):  # a skipped test: file, line, reason
        return str(found[2])
    if isinstance(found, dict):
        return str(found["reprcrash"]["message"])[:2000]
    return str(found)[-2000:]


def _name(node_id: str) -> str:
    return node_id.rpartition("/")[2] if "[" not in node_id else _parametrized_name(node_id)


def _parametrized_name(node_id: str) -> str:
    """Return the name of a test with parameters, in which a slash may be."""
    before, bracket, after = node_id.partition("[")
    return before.rpartition("/")[2] + bracket + after
