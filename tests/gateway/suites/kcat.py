"""kcat, Debian's package: an old client, with the librdkafka of 2023."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from tests.gateway.suites.suite import (
    Gateways,
    Outcome,
    Suite,
    TestResult,
    run_program,
)

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_PACKAGES = ("kcat", "librdkafka1", "libyajl2")


class KcatSuite(Suite):
    """The modes of kcat, each in a test of this file: kcat has no tests for a broker."""

    name = "kcat"
    client = "kcat with librdkafka 2.0.2 (C)"
    version = "1.7.1"
    tests_are_ours = True

    def install(self, folder: Path) -> None:
        run_program(["apt-get", "download", "-qq", *_PACKAGES], cwd=folder)
        for package in folder.glob("*.deb"):
            run_program(["dpkg", "-x", package, folder])

    def run(
        self, folder: Path, gateways: Gateways, selected: Callable[[str], bool]
    ) -> Iterator[TestResult]:
        kcat = Kcat(folder, gateways)
        for name, test in _tests().items():
            if not selected(name):
                continue
            try:
                test(kcat)
            except subprocess.CalledProcessError as error:
                yield TestResult(
                    name, Outcome.FAILED, str(error.output).strip().rpartition("\n")[2]
                )
            except Exception as error:
                yield TestResult(name, Outcome.FAILED, f"{type(error).__name__}: {error}")
            else:
                yield TestResult(name, Outcome.PASSED)


@dataclass(frozen=True, slots=True)
class Kcat:
    """The program, with the address of the gateways."""

    folder: Path
    gateways: Gateways

    def new_topic(self, partitions: int = 1) -> str:
        """Return the name of a topic that nobody else uses."""
        topic = f"flights-{uuid.uuid4().hex[:8]}"
        admin = AdminClient({"bootstrap.servers": self.gateways.bootstrap_servers})
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(60)
        return topic

    def run(self, *options: str, given: str = "") -> str:
        """Return what kcat writes, to stdout and stderr together."""
        return run_program(
            self._command(options), env=self._env, given=given.encode(), time_limit_s=60
        )

    def produce(self, topic: str, lines: Sequence[str], *options: str) -> None:
        """Produce one record a line."""
        given = "".join(f"{line}\n" for line in lines)
        self.run("-P", "-t", topic, *options, given=given)

    def consume(
        self, topic: str, *options: str, offset: str = "beginning", form: str = "%o %s"
    ) -> list[str]:
        """Return the records of a topic from an offset to the end, in a format, one a line."""
        shown = ("-J",) if form == "JSON" else ("-f", f"{form}\n")
        return self.run("-C", "-q", "-e", "-t", topic, "-o", offset, *shown, *options).splitlines()

    def refusal(self, *options: str, given: str = "") -> str:
        """Return what kcat writes when it fails."""
        try:
            wrote = self.run(*options, given=given)
        except subprocess.CalledProcessError as error:
            return str(error.output)
        raise AssertionError(f"kcat was not refused: {wrote[-500:]!r}")

    @contextmanager
    def member(self, group: str, topic: str) -> Iterator[Member]:
        """Run a member of a group for the block; it leaves the group at the end."""
        form = "record %p %o %s\n"
        options = ("-G", group, "-u", "-X", "auto.offset.reset=earliest", "-f", form, topic)
        process = subprocess.Popen(
            self._command(options),
            env={**os.environ, **self._env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            yield Member(process)
        finally:
            process.terminate()
            process.wait(30)

    def _command(self, options: Sequence[str]) -> list[str]:
        servers = self.gateways.bootstrap_servers
        return [str(self.folder / "usr/bin/kcat"), "-b", servers, "-m", "30", *options]

    @property
    def _env(self) -> Mapping[str, str]:
        libraries = next(self.folder.glob("usr/lib/*-linux-gnu"))
        return {"LD_LIBRARY_PATH": str(libraries)}


class Member:
    """A running member of a group.

    Attributes:
        records: the records that it has read: partition, offset and value.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.records: list[str] = []
        self._lines: queue.Queue[str] = queue.Queue()
        self._process = process
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.rstrip())

    def wait_for(self, is_there: Callable[[str], bool]) -> str:
        """Return the next line that fits; the records before it are kept.

        Raises:
            AssertionError: There was none within 60 seconds.
        """
        seen: list[str] = []
        while True:
            try:
                line = self._lines.get(timeout=60)
            except queue.Empty:
                raise AssertionError(f"not found within 60 s in {seen[-20:]}") from None
            seen.append(line)
            if line.startswith("record "):
                self.records.append(line.removeprefix("record "))
            if is_there(line):
                return line


def _tests() -> dict[str, Callable[[Kcat], None]]:
    """Return all tests by name."""
    tests: dict[str, Callable[[Kcat], None]] = {
        f"produce and consume, {codec}": _codec_test(codec) for codec in CODECS
    }
    for each in (
        idempotent_producer,
        transaction,
        keys_headers_and_nulls,
        metadata,
        offsets_by_time,
        consume_by_time,
        last_records,
        record_above_the_limit,
        unknown_topic,
        group_of_two,
        group_by_regular_expression,
    ):
        tests[each.__name__.replace("_", " ")] = each
    return tests


def _codec_test(codec: str) -> Callable[[Kcat], None]:
    def test(kcat: Kcat) -> None:
        topic = kcat.new_topic()
        values = [f"flight {number} from NYC to LAX" for number in range(2000)]
        kcat.produce(topic, values, "-z", codec)
        expected = [f"{offset} {value}" for offset, value in enumerate(values)]
        assert kcat.consume(topic, "-X", "check.crcs=true") == expected

    return test


def idempotent_producer(kcat: Kcat) -> None:
    topic = kcat.new_topic()
    kcat.produce(topic, ["a", "b"], "-X", "enable.idempotence=true")
    kcat.produce(topic, ["c"], "-X", "enable.idempotence=true")
    assert kcat.consume(topic) == ["0 a", "1 b", "2 c"]


def transaction(kcat: Kcat) -> None:
    topic = kcat.new_topic()
    for value in ("a", "b"):
        kcat.produce(topic, [value], "-X", f"transactional.id={topic}")
    committed = kcat.consume(topic, "-X", "isolation.level=read_committed", form="%s")
    assert committed == ["a", "b"]


def keys_headers_and_nulls(kcat: Kcat) -> None:
    topic = kcat.new_topic()
    headers = ("-H", "origin=NYC", "-H", "destination=LAX", "-H", "empty=")
    kcat.produce(topic, ["UA1:on time", "UA2:", ":no key"], "-K", ":", "-Z", *headers)
    found = [json.loads(each) for each in kcat.consume(topic, form="JSON")]
    assert [(each["key"], each["payload"]) for each in found] == [
        ("UA1", "on time"),
        ("UA2", None),
        (None, "no key"),
    ]
    assert found[0]["headers"] == ["origin", "NYC", "destination", "LAX", "empty", ""]
    assert found[0]["tstype"] == "create"


def metadata(kcat: Kcat) -> None:
    topic = kcat.new_topic(3)
    found = json.loads(kcat.run("-L", "-J"))
    addresses = {each["name"] for each in found["brokers"]}
    assert addresses == set(kcat.gateways.addresses)
    ids = {each["id"] for each in found["brokers"]}
    assert found["controllerid"] in ids
    (listed,) = (each for each in found["topics"] if each["topic"] == topic)
    assert [each["partition"] for each in listed["partitions"]] == [0, 1, 2]
    assert {each["leader"] for each in listed["partitions"]} <= ids


def _times(kcat: Kcat, topic: str) -> list[int]:
    """Produce five records by five requests, and return their timestamps."""
    for number in range(5):
        kcat.produce(topic, [str(number)])
    return [int(each) for each in kcat.consume(topic, form="%T")]


def offsets_by_time(kcat: Kcat) -> None:
    topic = kcat.new_topic()
    times = _times(kcat, topic)
    asked = [*times, times[2] + 1, -2, -1]
    found = [kcat.run("-Q", "-t", f"{topic}:0:{time}").split()[-1] for time in asked]
    expected = [next(at for at, time in enumerate(times) if time >= each) for each in asked[:6]]
    assert found == [*map(str, expected), "0", "5"]
    assert kcat.run("-Q", "-t", f"{topic}:0:{times[-1] + 1}").split()[-1] in ("-1", "5")


def consume_by_time(kcat: Kcat) -> None:
    topic = kcat.new_topic()
    times = _times(kcat, topic)
    found = kcat.consume(topic, "-o", f"e@{times[3]}", offset=f"s@{times[1]}")
    assert found == [f"{at} {at}" for at, time in enumerate(times) if times[1] <= time < times[3]]


def last_records(kcat: Kcat) -> None:
    topic = kcat.new_topic()
    kcat.produce(topic, ["a", "b", "c"])
    assert kcat.consume(topic, offset="-2") == ["1 b", "2 c"]
    assert kcat.consume(topic, offset="1") == ["1 b", "2 c"]
    assert kcat.consume(topic, "-c", "1") == ["0 a"]
    assert kcat.consume(topic, offset="end") == []


def record_above_the_limit(kcat: Kcat) -> None:
    topic = kcat.new_topic()
    options = ("-P", "-t", topic, "-X", "message.max.bytes=5000000")
    wrote = kcat.refusal(*options, given="x" * 2_000_000)
    assert "Message size too large" in wrote, wrote
    assert kcat.consume(topic) == []


def unknown_topic(kcat: Kcat) -> None:
    wrote = kcat.refusal("-C", "-t", "no-such-topic", "-X", "allow.auto.create.topics=false")
    assert "Unknown topic or partition" in wrote, wrote


def group_of_two(kcat: Kcat) -> None:
    topic = kcat.new_topic(4)
    group = f"group-{topic}"
    with kcat.member(group, topic) as first:
        first.wait_for(lambda line: "assigned:" in line and line.count(f"{topic} [") == 4)
        with kcat.member(group, topic) as second:
            for member in (first, second):
                member.wait_for(lambda line: "assigned:" in line and line.count(f"{topic} [") == 2)
            for partition in range(4):
                kcat.produce(topic, [*map(str, range(100)), "end"], "-p", str(partition))
            for member in (first, second):
                for _ in range(2):
                    member.wait_for(lambda line: line.endswith(" end"))
            found = [*first.records, *second.records]
            expected = {
                f"{partition} {offset} {'end' if offset == 100 else offset}"
                for partition in range(4)
                for offset in range(101)
            }
            assert len(found) == len(expected)
            assert set(found) == expected
    # Both have committed when they left: the next member begins where they ended.
    kcat.produce(topic, ["after"], "-p", "0")
    with kcat.member(group, topic) as third:
        third.wait_for(lambda line: line.endswith(" after"))
        assert third.records == ["0 101 after"]


def group_by_regular_expression(kcat: Kcat) -> None:
    topic = kcat.new_topic()
    kcat.produce(topic, ["a"])
    with kcat.member(f"group-{topic}", f"^{topic[:-1]}.$") as member:
        assert member.wait_for(lambda line: line.startswith("record ")) == "record 0 0 a"
