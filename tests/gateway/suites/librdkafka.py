"""librdkafka's own tests: those of its test-runner that talk to brokers.

Confluent's npm package has the newest sources with their tests; RapidJSON, which tests of
statistics need, is in a Python package. Both come without a build of their own.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Final

from benchmarks.kafka_broker import BROKER_ARTIFACTS, fetch_jars, find_java
from spark_log import Admin, ConfigResource, ConfigResourceType
from spark_log.gateway.security import credential_lines
from tests.gateway.suites.librdkafka_certificates import write_certificates
from tests.gateway.suites.suite import (
    Gateways,
    Outcome,
    Suite,
    TestResult,
    TimeLimitError,
    program_lines,
    run_program,
    running_gateways,
)

_SOURCES = "@confluentinc/kafka-javascript@1.10.1"
_RAPIDJSON = "python-rapidjson==1.25"

_NO_ACLS = "It asks for ACLs; the storage's permissions decide who may read and write a root."
_NO_OAUTHBEARER = "It asks for OAUTHBEARER, a token of an identity provider."
_NO_SHARE_GROUPS = "It asks for share groups (KIP-932), which gateways do not have."
_NO_BROKER_CONFIGS = (
    "It changes a Kerberos setting of one broker that runs; a gateway gets its own settings when "
    "it starts, and has none of Kerberos."
)
_REGEX_AT_ONCE = (
    "It expects the topics of a regular expression one answer later than those with names, as a "
    "coordinator of Kafka assigns them; a gateway assigns all of them at once."
)
_KNOWN_FAILURE = "librdkafka's own list of known failures has it, whatever the broker is."

_SHARE_TESTS = (
    "0170_share_consumer_subscription",
    "0171_share_consumer_consume",
    "0172_share_consumer_acknowledge",
    "0173_share_consumer_commit_async",
    "0174_share_consumer_concurrency",
    "0175_share_consumer_groups",
    "0176_share_consumer_commit_sync",
    "0177_share_consumer_transactions",
    "0178_share_consumer_close",
    "0179_share_consumer_destroy",
    "0180_share_consumer_config",
    "0181_share_consumer_topic_delete",
    "0184_share_consumer_topic_recreate",
    "0185_share_consumer_max_poll_interval",
)

_BROKERS: Final = 3
"""Registered storage roots: some tests create topics with three replicas."""


@dataclass(frozen=True, slots=True)
class Mode:
    """One way to run tests.

    Attributes:
        prefix: what the names of its tests begin with.
        numbers: the numbers of its tests; None for all of its scenario.
        but: numbers that it leaves out.
        scenario: the test-runner's scenario.
        arguments: further arguments of the test-runner.
        env: environment variables of the test-runner.
        settings: settings of the gateways.
        config: settings of the clients.
        by_subtests: whether each subtest is a test of its own, because some do not apply.
        has_racks: whether there are three gateways, each in a rack that has its id in the name.
        has_users: whether the gateways have a user.
        client_auth: ``ssl.client.auth`` of gateways with TLS; empty for those without TLS.
        cleans: whether `spark-log clean` runs now and then, as a broker's cleaner does.
    """

    prefix: str = ""
    numbers: Sequence[str] | None = None
    but: Sequence[str] = ()
    scenario: str = "default"
    arguments: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)
    by_subtests: bool = False
    has_racks: bool = False
    has_users: bool = False
    client_auth: str = ""
    cleans: bool = False


def _numbers(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_IDEMPOTENT = _numbers(
    "0001 0002 0003 0005 0007 0011 0012 0013 0014 0017 0021 0022 0036 0038 0039 0042 0044 0048 "
    "0050 0052 0065 0070 0073 0085 0086 0090 0110 0114 0123 0125"
)
_CONSUMER_PROTOCOL = _numbers(
    "0014 0018 0019 0022 0026 0029 0030 0033 0040 0041 0045 0050 0051 0056 0059 0061 0064 0067 "
    "0069 0083 0089 0091 0093 0099 0102 0112 0118 0122 0127 0130 0137 0140"
)

MODES: Final = (
    Mode(but=("0055", "0077", "0081", "0097", "0101", "0135", "0142")),
    Mode(numbers=("0055",)),  # it measures latencies
    Mode(scenario="noautocreate", settings={"auto.create.topics.enable": "false"}),
    Mode(numbers=("0077",), cleans=True),
    Mode(numbers=("0081",), by_subtests=True),
    Mode(numbers=("0097",), client_auth="none"),
    Mode(prefix="client certificates: ", numbers=("0097",), client_auth="required"),
    Mode(numbers=("0101",), has_racks=True),
    Mode(
        numbers=("0135", "0142"),
        by_subtests=True,
        has_users=True,
        settings={"security.protocol": "SASL_PLAINTEXT", "connections.max.reauth.ms": "10000"},
        config={
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "alice",
            "sasl.password": "secret",
        },
    ),
    Mode(prefix="idempotent: ", numbers=_IDEMPOTENT, arguments=("-P",)),
    Mode(
        prefix="consumer protocol: ",
        numbers=_CONSUMER_PROTOCOL,
        env={"TEST_CONSUMER_GROUP_PROTOCOL": "consumer"},
    ),
)


@dataclass(frozen=True, slots=True)
class DeclaredTest:
    """A test as the test-runner declares it.

    Attributes:
        name: its name, which begins with its number.
        flags: its flags, in C.
        scenarios: the scenarios that it is for.
    """

    name: str
    flags: str
    scenarios: str

    @property
    def number(self) -> str:
        """Four digits; several tests can have the same."""
        return self.name[:4]

    @property
    def needs_broker(self) -> bool:
        """Whether it talks to a broker that is not its own, and needs nobody who looks at it."""
        is_local = "TEST_F_LOCAL" in self.flags or "TEST_F_MANUAL" in self.flags
        return not is_local and not self.name.endswith("_mock")


class Librdkafka(Suite):
    """All that the client does; also with idempotence, and with the consumer protocol."""

    name = "librdkafka"
    client = "librdkafka (C)"
    version = "2.15.1"
    time_limit_s = 3_600
    not_applicable: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(_SHARE_TESTS, _NO_SHARE_GROUPS),
        "0028_long_topicnames": _KNOWN_FAILURE,
        "0047_partial_buf_tmout": _KNOWN_FAILURE,
        "0081_admin: do_test_AlterConfigs": _NO_BROKER_CONFIGS,
        "0081_admin: do_test_CreateAcls": _NO_ACLS,
        "0081_admin: do_test_DeleteAcls": _NO_ACLS,
        "0081_admin: do_test_DescribeAcls": _NO_ACLS,
        "0081_admin: do_test_IncrementalAlterConfigs": _NO_BROKER_CONFIGS,
        "0081_admin: do_test_DescribeConsumerGroups_with_authorized_ops": _NO_ACLS,
        "0092_mixed_msgver": "It needs the message format 1, which Kafka 4 does not have either.",
        "0115_producer_auth": _NO_ACLS,
        "0119_consumer_auth": _NO_ACLS,
        "0126_oauthbearer_oidc": _NO_OAUTHBEARER,
        "0135_sasl_credentials: do_test_share_consumer": _NO_SHARE_GROUPS,
        "0142_reauthentication: do_test_oauthbearer": _NO_OAUTHBEARER,
        "0142_reauthentication: do_test_share_consumer": _NO_SHARE_GROUPS,
        "0142_reauthentication: do_test_share_oauthbearer": _NO_OAUTHBEARER,
        "0142_reauthentication: do_test_share_reauth_failure": _NO_SHARE_GROUPS,
        "consumer protocol: 0045_resubscribe_with_regex": _REGEX_AT_ONCE,
    }

    def install(self, folder: Path) -> None:
        run_program(["npm", "pack", "--silent", _SOURCES], cwd=folder)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        run_program([*pip, "--no-binary", ":all:", _RAPIDJSON], cwd=folder)
        for archive in (*folder.glob("*.tgz"), *folder.glob("*.tar.gz")):
            with tarfile.open(archive) as opened:
                opened.extractall(folder, filter="data")
        (rapidjson,) = folder.glob("python_rapidjson-*/rapidjson/include")
        sources = _sources(folder)
        options = ["--disable-curl", "--disable-sasl", f"--CPPFLAGS=-I{rapidjson}"]
        run_program(["./configure", *options], cwd=sources)
        run_program(["make", "-j2", "libs"], cwd=sources, time_limit_s=1_800)
        run_program(["make", "-j2", "-C", "tests", "build"], cwd=sources, time_limit_s=1_800)

    def run(
        self, folder: Path, gateways: Gateways, selected: Callable[[str], bool]
    ) -> Iterator[TestResult]:
        count = len(gateways.addresses)
        with tempfile.TemporaryDirectory() as temporary:
            for number, mode in enumerate(MODES):
                tests = _tests_of(folder, mode, selected)
                if not tests:
                    continue
                root = Path(temporary) / f"root-{number}"
                if mode.client_auth:
                    found = write_certificates(
                        root.with_name(f"certificates-{number}"), mode.client_auth
                    )
                    mode = replace(  # noqa: PLW2901 - with the paths of its files
                        mode, settings=found.settings, config=found.config, env=found.env
                    )
                with (
                    _cluster(root, count, mode) as running,
                    _cleaner(root) if mode.cleans else nullcontext(),
                ):
                    runner = _Runner(folder, root.with_name(f"files-{number}"), running, mode)
                    yield from runner.results(tests, self.time_limit_s)
        for stats in (_sources(folder) / "tests").glob("stats_*.json"):
            stats.unlink()


def _sources(folder: Path) -> Path:
    return folder / "package/deps/librdkafka"


def declared_tests(source: str) -> Iterator[DeclaredTest]:
    """Yield the tests that the test-runner's source declares.

    Args:
        source: the text of ``test.c``.
    """
    table = source[source.index("struct test tests[] = {") :]
    for entry in re.sub(r"/\*.*?\*/", "", table, flags=re.DOTALL).split("_TEST(")[1:]:
        name, flags = (each.strip(" \n)") for each in entry.split(",")[:2])
        scenario = re.search(r'\.scenario\s*=\s*"([^"]*)"', entry)
        yield DeclaredTest(name, flags, scenario[1] if scenario else "default")


def subtests(source: str) -> list[str]:
    """Return the subtests of a test that can run alone.

    Args:
        source: the text of its source.
    """
    functions = re.findall(r"\n(?:static )?void\s+(\w+)\([^()]*\) \{(.*?)\n\}", source, re.DOTALL)
    return [name for name, body in functions if "SUB_TEST" in body]


def _tests_of(folder: Path, mode: Mode, selected: Callable[[str], bool]) -> list[str]:
    """Return the names of the tests of a mode that are to be run, without its prefix."""
    tests = _sources(folder) / "tests"
    found = []
    for each in declared_tests((tests / "test.c").read_text()):
        is_asked_for = mode.numbers is None or each.number in mode.numbers
        if not each.needs_broker or not is_asked_for or each.number in mode.but:
            continue
        if mode.scenario not in each.scenarios.split(","):
            continue
        if mode.by_subtests:
            (source,) = tests.glob(f"{each.number}-*.c*")
            found += [f"{each.name}: {name}" for name in subtests(source.read_text())]
        else:
            found.append(each.name)
    return [each for each in found if selected(mode.prefix + each)]


@contextmanager
def _cluster(root: Path, count: int, mode: Mode) -> Iterator[Gateways]:
    """Run gateways of a root with several brokers for the block."""
    with Admin(str(root)) as admin:
        for broker in range(1, _BROKERS):
            admin.register_broker(broker, str(root.with_name(f"{root.name}-broker-{broker}")))
        # Kafka's default: tests of rebalances expect that members that start together wait.
        waiting = {"group.initial.rebalance.delay.ms": "3000"}
        admin.alter_configs([ConfigResource(ConfigResourceType.BROKER, "", waiting)])
    # librdkafka expects four partitions; its users are changed by a client without a name
    settings = {"num.partitions": "4", "super.users": "User:ANONYMOUS", **mode.settings}
    if mode.has_users:
        users = root.with_name(f"{root.name}-users")
        users.touch(0o600)
        users.write_text("\n".join(credential_lines("alice", "secret")))
        settings["sasl.users.file"] = str(users)
    if not mode.has_racks:
        with running_gateways(root, count, settings) as running:
            yield running
        return
    with ExitStack() as stack:
        addresses: list[str] = []
        # They know each other before the test-runner has created a topic.
        settings |= {"broker.join.delay.ms": "0", "broker.heartbeat.interval.ms": "100"}
        for number in ("1", "2", "3"):
            own = {"broker.id": number, "broker.rack": f"RACK{number}"}
            running = stack.enter_context(running_gateways(root, settings={**settings, **own}))
            addresses += running.addresses
        yield Gateways(root, tuple(addresses))


@contextmanager
def _cleaner(root: Path) -> Iterator[None]:
    """Clean the root again and again during the block."""
    ended = threading.Event()

    def clean() -> None:
        command = [sys.executable, "-m", "spark_log", "clean", "--all-topics", "--root", str(root)]
        while not ended.wait(1):
            subprocess.run(command, capture_output=True, check=False)

    thread = threading.Thread(target=clean, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_PASSED = re.compile(r"=== Test (\w+) PASSED ===")
_FAILED = re.compile(r'### Test "(\w+)(?: .*)?" failed at ')
_SKIPPED = re.compile(r"\|\s*(\w+)\s*\|\s*SKIPPED\s*\|[^|]*\|\s*(.*)")


class _Runner:
    """Runs the test-runner in one mode."""

    def __init__(self, folder: Path, files: Path, gateways: Gateways, mode: Mode) -> None:
        self._mode = mode
        self._tests = _sources(folder) / "tests"
        files.mkdir()
        config = files / "test.conf"
        config.write_text(
            "test.timeout.multiplier=3\n"
            "test.topic.random=true\n"
            "broker.address.family=v4\n"
            f"bootstrap.servers={gateways.bootstrap_servers}\n"
            + "".join(f"{name}={value}\n" for name, value in mode.config.items())
        )
        _write_scripts(files)
        self._env = {
            "RDKAFKA_TEST_CONF": str(config),
            "TEST_KAFKA_VERSION": "4.2.0",
            "TEST_SCENARIO": mode.scenario,
            "BROKERS": gateways.bootstrap_servers,
            "KAFKA_PATH": str(files),
            "LD_LIBRARY_PATH": f"{self._tests.parent / 'src'}:{self._tests.parent / 'src-cpp'}",
            **mode.env,
        }

    def results(self, tests: Sequence[str], time_limit_s: float) -> Iterator[TestResult]:
        """Yield the results of tests, of which several run at a time.

        A test that does not end within its own limit kills the program; those that it has not
        finished are run again.
        """
        alone = [each for each in tests if ": " in each]
        for test in alone:
            name, subtest = test.split(": ")
            env = {"SUBTESTS": f"{subtest}:"}
            found = list(self._run([name], env, time_limit_s))
            yield from (self._result(test, each.outcome, each.reason) for each in found)
        waiting = [each for each in tests if each not in alone]
        while waiting:
            left = set(waiting)
            for result in self._run(waiting, {}, time_limit_s):
                if result.test in left:
                    left.remove(result.test)
                    yield self._result(result.test, result.outcome, result.reason)
            if len(left) == len(waiting):
                yield from (
                    self._result(each, Outcome.FAILED, "the test-runner ended without its result")
                    for each in waiting
                )
                return
            waiting = [each for each in waiting if each in left]

    def _result(self, test: str, outcome: Outcome, reason: str) -> TestResult:
        return TestResult(self._mode.prefix + test, outcome, reason)

    def _run(
        self, tests: Sequence[str], env: Mapping[str, str], time_limit_s: float
    ) -> Iterator[TestResult]:
        """Run the program once; yield a result for each test that it says one of."""
        numbers = ",".join(sorted({each[:4] for each in tests}))
        command = ["./test-runner", "-p3", "-L", *self._mode.arguments]
        lines = program_lines(
            command,
            cwd=self._tests,
            env={**self._env, **env, "TESTS": numbers},
            time_limit_s=time_limit_s,
        )
        failed = ""
        try:
            for colored in lines:
                line = _COLOR.sub("", colored)
                if failed:
                    yield _failure(failed, line)
                    failed = ""
                elif found := _PASSED.search(line):
                    yield TestResult(found[1], Outcome.PASSED)
                elif found := _FAILED.search(line):
                    failed = found[1]
                elif found := _SKIPPED.search(line):
                    yield TestResult(found[1], Outcome.FAILED, f"it was skipped: {found[2]}")
        except TimeLimitError:
            return


def _failure(test: str, reason: str) -> TestResult:
    if "kafka-acls.sh" in reason:
        return TestResult(test, Outcome.NOT_APPLICABLE, f"{_NO_ACLS} All before that passed.")
    return TestResult(test, Outcome.FAILED, reason[-2000:])


def _write_scripts(folder: Path) -> None:
    """Write what tests call of a distribution of Kafka: jars, and two of its commands."""
    libs = fetch_jars("libs", BROKER_ARTIFACTS)
    (folder / "libs").symlink_to(libs)
    (folder / "bin").mkdir()
    java = f'{find_java()} -cp "{libs}/*:$CLASSPATH"'
    for name, what in (
        ("kafka-topics.sh", "org.apache.kafka.tools.TopicCommand "),
        ("kafka-run-class.sh", ""),
    ):
        script = folder / "bin" / name
        script.write_text(f'#!/bin/sh\nexec {java} {what}"$@"\n')
        script.chmod(0o755)
