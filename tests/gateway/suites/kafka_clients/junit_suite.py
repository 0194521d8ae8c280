"""`JUnitSuite`: tests of Kafka's project, in Java, with gateways in the place of their brokers."""

from __future__ import annotations

import json
import re
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from benchmarks.kafka_broker import fetch_jars, find_java
from tests.gateway.suites.kafka_clients import gateway_host
from tests.gateway.suites.suite import (
    Gateways,
    Outcome,
    Suite,
    TestResult,
    program_lines,
    run_program,
)

_JAVA = Path(__file__).with_name("java")
_FLAGS = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
)


class JUnitSuite(Suite):
    """Tests in Java. Each gets a root of its own, with a gateway for each broker that it asks for.

    The tests' names are ``Class.method``. A method that runs with several configs of the cluster is
    one test.

    Attributes:
        artifacts: the artifacts of the class path, with their dependencies.
        test_artifacts: those that are on the class path without their dependencies.
        tests_in: the jars of ``test_artifacts`` with tests, and the folder of these in the jar.
        runner: folders with the program that runs the tests, and with JUnit's extensions. They are
            used with a real Kafka, too.
        sources: folders with classes of ours that come before Kafka's of the same names.
        patches: programs of ours in Java that change classes of the tests: each gets the folder of
            the classes that come first.
        unpacked: folders in the jars of ``test_artifacts`` that the tests read as directories.
        heap: the maximum size of the heap.
    """

    time_limit_s = 7200
    artifacts: ClassVar[Sequence[str]]
    test_artifacts: ClassVar[Sequence[str]]
    tests_in: ClassVar[Sequence[tuple[str, str]]]
    runner: ClassVar[Sequence[Path]] = (_JAVA / "runner",)
    sources: ClassVar[Sequence[Path]] = (_JAVA / "gateways",)
    patches: ClassVar[Sequence[str]] = ()
    unpacked: ClassVar[tuple[str, ...]] = ()
    heap: ClassVar[str] = "400m"

    def is_listed(self, name: str) -> bool:
        """Return whether a test, by its full name, belongs to the suite."""
        return True

    def install(self, folder: Path) -> None:
        for each in self.runner:
            self._compile(folder / "runner", each)
        names = []
        for jar, place in self.tests_in:
            (found,) = self._test_jars().glob(f"{jar}-*-test.jar")
            command = self._command(folder / "runner", "list", str(found), place)
            names += run_program(command, time_limit_s=300).split()
        tests = [each for each in names if self.is_listed(each)]
        (folder / "tests").write_text("\n".join(dict.fromkeys(tests)))

    def run(
        self, folder: Path, gateways: Gateways, selected: Callable[[str], bool]
    ) -> Iterator[TestResult]:
        names = (folder / "tests").read_text().split()
        wanted = {test: name for name in names if selected(test := _short(name))}
        if not wanted:
            return
        beside = gateways.root.with_name(self.name)
        beside.mkdir()
        chosen = beside / "tests"
        chosen.write_text("\n".join(wanted.values()))
        classes = beside / "classes"
        # With Kafka the tests start brokers of their own, in the process of the tests.
        for each in (*self.runner, *(() if gateways.is_kafka else self.sources)):
            self._compile(classes, each)
        self._unpack(classes)
        for program in () if gateways.is_kafka else self.patches:
            java = [find_java(), "-cp", f"{classes}:{self._class_path()}"]
            run_program([*java, program, classes], time_limit_s=120)
        properties = (
            f"-Dgateway.host={sys.executable} -m {gateway_host.__name__} {beside / 'log'}",
            f"-Dgateway.roots={beside}",
        )
        command = self._command(classes, "run", str(chosen), properties=properties)
        for line in program_lines(command, time_limit_s=self.time_limit_s):
            if line.startswith('{"') and (result := _result(line)):
                # An outcome of a class as a whole is that of all its tests that have none.
                of_class = [each for each in wanted if each.startswith(f"{result.test}.")]
                for test in of_class or [result.test]:
                    wanted.pop(test, None)
                    yield TestResult(test, result.outcome, result.reason)
        for test in wanted:
            yield TestResult(test, Outcome.FAILED, "the program of the tests has ended before it")

    def _test_jars(self) -> Path:
        return fetch_jars(f"{self.name}-tests", self.test_artifacts, transitive=False)

    def _class_path(self) -> str:
        return f"{self._test_jars()}/*:{fetch_jars(f'{self.name}-libs', self.artifacts)}/*"

    def _command(
        self, classes: Path, mode: str, *arguments: str, properties: Sequence[str] = ()
    ) -> list[str]:
        java = [find_java(), f"-Xmx{self.heap}", *_FLAGS, *properties]
        class_path = f"{classes}:{self._class_path()}"
        return [*java, "-cp", class_path, "sparklog.TestRun", mode, *arguments]

    def _unpack(self, target: Path) -> None:
        for jar in self._test_jars().glob("*-test.jar") if self.unpacked else ():
            with zipfile.ZipFile(jar) as opened:
                names = opened.namelist()
                opened.extractall(
                    target, [each for each in names if each.startswith(self.unpacked)]
                )

    def _compile(self, target: Path, sources: Path) -> None:
        if (registered := sources / "META-INF").exists():
            shutil.copytree(registered, target / registered.name, dirs_exist_ok=True)
        javac = Path(find_java()).with_name("javac")
        options = ["-nowarn", "-cp", f"{target}:{self._class_path()}", "-d", str(target)]
        files = sorted(map(str, sources.rglob("*.java")))
        run_program([javac, *options, *files], time_limit_s=300)


def _result(line: str) -> TestResult | None:
    """Return the result in a line; None if the line is another program's JSON."""
    try:
        found = json.loads(line)
        return TestResult(_short(found["test"]), Outcome(found["outcome"]), found["reason"])
    except (ValueError, KeyError):
        return None


def _short(name: str) -> str:
    """Return the short name of a test: ``org.apache.kafka.Class#method`` is ``Class.method``.

    Tests in Scala keep the name of their package: some classes have the names of those in Java.
    """
    return re.sub(r"^org\.([a-z.]+\.)", "", name).replace("#", ".")
