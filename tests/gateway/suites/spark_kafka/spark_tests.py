"""The tests of Spark's own connector for Kafka, from the test jars that Spark publishes."""

from __future__ import annotations

import base64
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import pyspark

from benchmarks.kafka_broker import fetch_jars, find_java
from benchmarks.spark_vs_kafka import CONNECTOR_VERSION
from tests.gateway.suites.suite import (
    Gateways,
    Outcome,
    Suite,
    TestResult,
    program_lines,
    run_program,
)

_HERE = Path(__file__).parent
_REPOSITORY = _HERE.parents[3]
_PACKAGE = "org.apache.spark.sql.kafka010"
_SPARK = "org.apache.spark"
_TESTS = f"{_SPARK}:spark-sql-kafka-0-10_2.13:{CONNECTOR_VERSION}:tests"
_JARS = (
    f"{_SPARK}:spark-sql-kafka-0-10_2.13:{CONNECTOR_VERSION}",
    f"{_SPARK}:spark-token-provider-kafka-0-10_2.13:{CONNECTOR_VERSION}",
    f"{_SPARK}:spark-token-provider-kafka-0-10_2.13:4.0.0:tests",  # 4.2.0 has none
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
    *(
        f"{_SPARK}:spark-{each}_2.13:{CONNECTOR_VERSION}:tests"
        for each in ("sql", "catalyst", "core", "common-utils", "tags")
    ),
)
_LIBRARIES = (
    "org.scalatest:scalatest_2.13:3.2.19",
    "org.scalatestplus:mockito-5-18_2.13:3.2.19.0",
    "org.scalatestplus:scalacheck-1-18_2.13:3.2.19.0",
    "org.mockito:mockito-core:5.23.0",
)
_CHECKPOINTS = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
_OPENED = (  # what Spark's launcher opens to it (JavaModuleOptions)
    *("lang", "lang.invoke", "lang.reflect", "io", "net", "nio", "util"),
    *("util.concurrent", "util.concurrent.atomic"),
)
_OPENED_INSIDE = ("jdk.internal.ref", "sun.nio.ch", "sun.nio.cs", "sun.util.calendar")
_LOG = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = File
appender.file.type = File
appender.file.name = File
appender.file.fileName = spark.log
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{HH:mm:ss.SSS} %t %p %c{1}: %m%n%ex
"""

SUITES = (
    "ConsumerStrategySuite",
    "KafkaOffsetReaderSuite",
    "KafkaRelationSuiteV1",
    "KafkaRelationSuiteWithAdminV2",
    "KafkaSinkBatchSuiteV1",
    "KafkaSinkBatchSuiteV2",
    "KafkaSinkMicroBatchStreamingSuite",
    "KafkaMicroBatchV2SourceWithConsumerSuite",
    "KafkaDontFailOnDataLossSuite",
    "KafkaSourceStressSuite",
    "KafkaSourceStressForDontFailOnDataLossSuite",
    "KafkaContinuousSourceSuite",
    "KafkaContinuousSourceTopicDeletionSuite",
    "KafkaContinuousSinkSuite",
    "KafkaContinuousSourceStressForDontFailOnDataLossSuite",
    "KafkaRealTimeModeSuite",
    "KafkaRealTimeModeE2ESuite",
    "KafkaConsumerPoolRealTimeModeSuite",
    "consumer.KafkaDataConsumerSuite",
)
"""All suites that start a broker and can run here; the others test Spark alone.

Spark repeats some with another reader (V1, V2), or with another client for offsets (a consumer, the
admin client): here there are two of them for batches, and one for micro-batches.
"""


class SparkTests(Suite):
    """Batches, micro-batches, continuous processing and real-time mode: source and sink."""

    name = "spark-kafka-tests"
    client = "Spark's connector for Kafka (Scala)"
    version = CONNECTOR_VERSION
    time_limit_s = 7200
    not_applicable: ClassVar[Mapping[str, str]] = {
        "KafkaMicroBatchV2SourceWithConsumerSuite: SPARK-56243: malformed record timestamp throws "
        "detailed error": (
            "It sends a record of the year 54 million, which the gateway refuses: its time does "
            "not fit in 64 bits as microseconds. Brokers of Kafka 4 refuse it, too "
            "(message.timestamp.after.max.ms)."
        ),
        "KafkaDelegationTokenSuite: Roundtrip": (
            "It asks for Kerberos and delegation tokens, which gateways do not have."
        ),
        "KafkaRealTimeIntegrationSuite: e2e stateless": (
            "It starts executors from a build of Spark's sources, which no registry has; "
            "KafkaRealTimeModeE2ESuite runs such a query in one process."
        ),
    }

    def install(self, folder: Path) -> None:
        (tests,) = fetch_jars("spark-tests", [_TESTS], transitive=False).glob("*.jar")
        with zipfile.ZipFile(tests) as archive:  # its checkpoints are read as files
            archive.extractall(folder / "tests")
        for each in (folder / "tests").rglob("KafkaTestUtils*.class"):
            each.unlink()

    def run(
        self, folder: Path, gateways: Gateways, selected: Callable[[str], bool]
    ) -> Iterator[TestResult]:
        count = 0 if gateways.is_kafka else len(gateways.addresses)
        with tempfile.TemporaryDirectory() as temporary:
            work = Path(temporary)
            java = _java(folder, work, count)
            suites = [f"{_PACKAGE}.{each}" for each in SUITES]
            tests = [
                (suite, test)
                for outcome, suite, test, _ in _lines([*java, "list", *suites], work, 120)
                if outcome == "test" and selected(_name(suite, test))
            ]
            if not tests:
                return
            file = work / "selected"
            file.write_text("".join(f"{suite}\t{_encoded(test)}\n" for suite, test in tests))
            left = {_name(*each): None for each in tests}
            started = ""
            for outcome, suite, test, reason in _lines(
                [*java, "run", str(file)], work, self.time_limit_s
            ):
                name = _name(suite, test)
                if outcome == "started":
                    started = name
                    continue
                left.pop(name, None)
                if outcome == "passed":
                    yield TestResult(name, Outcome.PASSED)
                elif outcome in ("ignored", "canceled"):
                    why = f"Spark's own run leaves it out: {reason or 'it is ignored'}"
                    yield TestResult(name, Outcome.NOT_APPLICABLE, why)
                else:
                    yield TestResult(name, Outcome.FAILED, reason[:4000])
            for each in left:
                yield TestResult(each, Outcome.FAILED, f"it has no result; the last was {started}")


def _java(folder: Path, work: Path, count: int) -> list[str]:
    """Compile what is ours, and return the command of `SuiteRunner` without its arguments."""
    jars = fetch_jars("spark-tests-jars", _JARS, transitive=False)
    libraries = fetch_jars("spark-tests-libraries", _LIBRARIES)
    for each in libraries.glob("scala-*.jar"):
        each.unlink()  # Spark has newer ones
    of_spark = Path(pyspark.__file__).parent / "jars"
    class_path = f"{folder / 'tests'}:{jars}/*:{of_spark}/*:{libraries}/*"
    ours = work / "ours"
    javac = Path(find_java()).with_name("javac")
    sources = _HERE.glob("*.java")
    run_program([javac, "-nowarn", "-d", ours, "-cp", class_path, *sources])
    (work / "log4j2.properties").write_text(_LOG)
    (work / "tmp").mkdir()
    cluster = [sys.executable, "-m", "tests.gateway.suites.spark_kafka.cluster", str(count)]
    opened = [f"java.base/java.{each}" for each in _OPENED]
    opened += [f"java.base/{each}" for each in _OPENED_INSIDE]
    properties = {
        "spark.testing": "true",
        "spark.ui.enabled": "false",
        "spark.test.home": str(work),
        "java.io.tmpdir": str(work / "tmp"),
        "io.netty.tryReflectionSetAccessible": "true",
        # Without Hadoop's native library, files of checkpoints start a process each.
        "jdk.lang.Process.launchMechanism": "VFORK",
        "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINTS,
        "log4j2.configurationFile": str(work / "log4j2.properties"),
        "cluster.command": "\n".join(cluster),
    }
    return [
        *(find_java(), "-Xmx2g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
        *(f"--add-opens={each}=ALL-UNNAMED" for each in opened),
        *(f"-D{name}={value}" for name, value in properties.items()),
        *("-cp", f"{ours}:{class_path}", f"{_PACKAGE}.SuiteRunner"),
    ]


def _lines(
    command: Sequence[str], work: Path, time_limit_s: float
) -> Iterator[tuple[str, str, str, str]]:
    """Yield outcome, suite, test and reason of each line that `SuiteRunner` prints."""
    env = {
        "PYTHONPATH": str(_REPOSITORY),
        "SPARK_TESTING": "1",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    for line in program_lines(command, cwd=work, env=env, time_limit_s=time_limit_s):
        if line.startswith("@@\t"):
            _, outcome, suite, test, reason = line.split("\t")
            yield outcome, suite, _decoded(test), _decoded(reason)


def _name(suite: str, test: str) -> str:
    return f"{suite.removeprefix(_PACKAGE + '.')}: {test}" if test else suite


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _decoded(text: str) -> str:
    return base64.b64decode(text).decode()
