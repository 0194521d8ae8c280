"""rskafka's integration tests, from its crate."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from tests.gateway.suites.secured_gateways import gateway_with_users
from tests.gateway.suites.suite import (
    Gateways,
    Outcome,
    Suite,
    TestResult,
    program_lines,
    run_program,
)

_PROGRAMS = ("client", "consumer", "produce_consume", "producer")
_CODECS = ("nocompression", "gzip", "lz4", "snappy", "zstd")
_WITH_JAVA = ("java_consume_java", "java_consume_rskafka", "rskafka_consume_java")
_COMPILE_LIMIT_S = 3600


class RsKafka(Suite):
    """The protocol's core and every codec, against librdkafka, too."""

    name = "rskafka"
    client = "rskafka with rust-rdkafka (Rust)"
    version = "0.6.0"
    settings: ClassVar[Mapping[str, str]] = {
        "auto.create.topics.enable": "false"  # as in the client's own CI
    }
    not_applicable: ClassVar[Mapping[str, str]] = {
        f"produce_consume::test_produce_{clients}_{codec}": (
            "It asks for Java's client in the test's process, by a bridge that fetches it; Java's "
            "client has tests of its own."
        )
        for clients in _WITH_JAVA
        for codec in _CODECS
    } | {
        "produce_consume::test_produce_rdkafka_consume_rdkafka_nocompression": (
            "It is left out without Java's client, though it does not use it."
        )
    }

    def install(self, folder: Path) -> None:
        # Cargo has the sources of what a project depends on.
        project = folder / "project"
        run_program([cargo(), "init", "-q", "--name", "project", project])
        run_program([cargo(), "add", "-q", f"rskafka@={self.version}"], cwd=project)
        found = run_program([cargo(), "metadata", "-q", "--format-version", "1"], cwd=project)
        packages = json.loads(found[found.index("{") :])["packages"]
        (manifest,) = (each["manifest_path"] for each in packages if each["name"] == "rskafka")
        source = folder / "source"
        shutil.copytree(Path(manifest).parent, source)
        (source / "rust-toolchain.toml").unlink()  # the toolchain that is there does
        # The release that its lock names is one that newer compilers refuse.
        run_program([cargo(), "update", "-q", "-p", "rsasl"], cwd=source)
        tests = [word for name in _PROGRAMS for word in ("--test", name)]
        built = run_program(
            [cargo(), "test", "-q", "--no-run", "--message-format=json", *tests],
            cwd=source,
            time_limit_s=_COMPILE_LIMIT_S,
        )
        messages = [json.loads(line) for line in built.splitlines() if line.startswith("{")]
        for message in messages:
            if message.get("executable") and "test" in message["target"]["kind"]:
                shutil.copy(message["executable"], folder / message["target"]["name"])
        shutil.rmtree(source / "target")

    def run(
        self, folder: Path, gateways: Gateways, selected: Callable[[str], bool]
    ) -> Iterator[TestResult]:
        with gateway_with_users(gateways.root, {"admin": "admin-secret"}) as secured:
            env = {
                "RUST_BACKTRACE": "0",
                "TEST_INTEGRATION": "1",
                "TEST_BROKER_IMPL": "kafka",
                "KAFKA_CONNECT": gateways.bootstrap_servers,
                "KAFKA_SASL_CONNECT": secured,
            }
            for program in _PROGRAMS:
                listed = run_program([folder / program, "--list"], cwd=folder)
                names = re.findall(r"^(\S+): test$", listed, re.MULTILINE)
                wanted = [each for each in names if selected(f"{program}::{each}")]
                if wanted:
                    yield from _results(folder / program, wanted, env, self.time_limit_s)


def cargo() -> str:
    """Return the path of Cargo, which its installer puts outside of the usual PATH."""
    return shutil.which("cargo", path=f"{os.environ['PATH']}:{Path.home()}/.cargo/bin") or "cargo"


def _results(
    program: Path, names: Sequence[str], env: Mapping[str, str], time_limit_s: float
) -> Iterator[TestResult]:
    """Run tests of a program, and yield their results; those that failed come last."""
    command: list[str | Path] = [program, "--exact", "--test-threads=2", *names]
    waiting = set(names)
    failed: list[str] = []
    output: dict[str, list[str]] = {}
    said: list[str] = []
    for line in program_lines(command, cwd=program.parent, env=env, time_limit_s=time_limit_s):
        if ended := re.match(r"test (\S+) \.\.\. (\w+)", line):
            name, outcome = ended.groups()
            waiting.discard(name)
            if outcome == "ok":
                yield TestResult(f"{program.name}::{name}", Outcome.PASSED)
            else:
                failed.append(name)
        elif begun := re.match(r"---- (\S+) stdout ----", line):
            said = output.setdefault(begun[1], [])
        else:
            said.append(line)
    for name in [*failed, *sorted(waiting)]:
        reason = "\n".join(output.get(name, said)).strip()
        yield TestResult(f"{program.name}::{name}", Outcome.FAILED, reason[:2000])
