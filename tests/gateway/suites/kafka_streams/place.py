"""`Place`: what one test of Kafka Streams has: topics, programs, a producer and a cleaner."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.java_program import JavaProgram
from benchmarks.streams_application import StreamsApplication
from tests.faults.clean_process import CleanRole, clean_until_stopped
from tests.faults.managed_process import ManagedProcess
from tests.faults.notes import read_notes
from tests.gateway.processes import SHORT, GatewayProcess
from tests.gateway.suites.suite import Gateways
from tests.waiting import wait_until

SESSION_MS = 10_000
_CLEAN_PAUSE_S = 2.0
_REQUEST_S = 120
_QUIET: dict[str, Any] = {"log_level": 2}  # gateways that are killed are no news

Line: TypeAlias = tuple[str | None, str, int | None]
"""Key, value and timestamp of a record to produce; without a timestamp, that of the moment."""


class Place:
    """The place of one test. All that it starts and creates is gone when it is closed.

    Attributes:
        gateways: the gateways, or a real broker.
        bootstrap_servers: their addresses.
        class_path: the class path of the programs.
        is_kafka: whether it is a real broker.
        folder: a directory for logs, state stores and notes.
    """

    def __init__(self, gateways: Gateways, class_path: str, folder: Path) -> None:
        self.gateways = gateways
        self.bootstrap_servers = gateways.bootstrap_servers
        self.class_path = class_path
        self.is_kafka = any(gateways.root.glob("kafka-*/server.properties"))
        self.folder = folder
        self._programs: list[JavaProgram] = []
        self._stack = ExitStack()
        self._cleaner_notes = folder / "cleaner"
        self._admin = AdminClient(_QUIET | {"bootstrap.servers": self.bootstrap_servers})
        if not self.is_kafka:
            self._start_cleaner()

    def close(self) -> None:
        """End what runs, and delete topics and groups, so that the next test finds none."""
        for each in self._programs:
            each.kill()
        with suppress(KafkaException):  # the test has failed because nobody answers
            self._delete_groups()
            topics = [each for each in self.topics() if not each.startswith("__")]
            for future in (self._admin.delete_topics(topics) if topics else {}).values():
                future.result(_REQUEST_S)
        self._stack.close()

    # --- topics -----------------------------------------------------------------------------------

    def create_topics(self, partitions: Mapping[str, int], **configs: str) -> None:
        """Create topics with these numbers of partitions."""
        topics = [NewTopic(name, count, 1, config=configs) for name, count in partitions.items()]
        for future in self._admin.create_topics(topics).values():
            future.result(_REQUEST_S)

    def produce(self, topic: str, lines: Sequence[Line]) -> None:
        """Produce records, and wait until all are acknowledged."""
        Feeder(self.bootstrap_servers, topic, lines).run()

    @contextmanager
    def feeding(self, topic: str, lines: Sequence[Line], seconds: float) -> Iterator[Feeder]:
        """Produce records evenly over some time, from a thread; the block ends when all are there.

        Raises:
            AssertionError: A record was not acknowledged.
        """
        feeder = Feeder(self.bootstrap_servers, topic, lines, seconds)
        feeder.start()
        try:
            yield feeder
        except BaseException:
            feeder.is_ending.set()
            raise
        finally:
            feeder.join()
        assert feeder.failure is None, f"{topic}: {feeder.failure}"

    def read(self, topic: str) -> list[tuple[str, str]]:
        """Return keys and values of the committed records of a topic, each partition in order."""
        return [
            ((each.key() or b"").decode(errors="replace"), (each.value() or b"").decode())
            for each in self.read_messages(topic)
        ]

    def read_messages(self, topic: str) -> list[Message]:
        """Return the committed records of a topic, each partition in order."""
        consumer = Consumer(
            _QUIET
            | {
                "bootstrap.servers": self.bootstrap_servers,
                "group.id": "results",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        try:
            metadata = consumer.list_topics(topic, timeout=_REQUEST_S).topics[topic]
            left = set(metadata.partitions)
            consumer.assign([TopicPartition(topic, each, 0) for each in left])
            found = []
            until_s = time.monotonic() + _REQUEST_S
            while left:
                assert time.monotonic() < until_s, f"{topic}: the end of {left} cannot be read"
                for each in consumer.consume(10_000, 0.5):
                    error = each.error()
                    if error is None:
                        found.append(each)
                    elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                        left.discard(each.partition())
                    elif not error.retriable():
                        raise AssertionError(f"{topic}: {error}")
            return sorted(found, key=lambda each: (each.partition(), each.offset()))
        finally:
            consumer.close()

    def end_of(self, topic: str) -> int:
        """Return the sum of the end offsets of a topic's partitions."""
        settings = {"bootstrap.servers": self.bootstrap_servers, "group.id": "results"}
        consumer = Consumer(_QUIET | settings)
        try:
            partitions = consumer.list_topics(topic, timeout=_REQUEST_S).topics[topic].partitions
            return sum(_end_of(consumer, TopicPartition(topic, each)) for each in partitions)
        finally:
            consumer.close()

    def configs_of(self, topic: str) -> dict[str, str]:
        """Return the configs of a topic."""
        from confluent_kafka.admin import ConfigResource

        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        (future,) = self._admin.describe_configs([resource]).values()
        return {name: entry.value for name, entry in future.result(_REQUEST_S).items()}

    def topics(self) -> list[str]:
        """Return the names of all topics."""
        return sorted(self._admin.list_topics(timeout=_REQUEST_S).topics)

    # --- programs ---------------------------------------------------------------------------------

    def program(self, name: str, main: str, *arguments: object) -> JavaProgram:
        """Return a program of Kafka's tests, which has not been started."""
        log = self.folder / f"{name}.log"
        program = JavaProgram(log, self.class_path, main, *arguments)
        self._programs.append(program)
        return program

    def properties(self, name: str, **settings: object) -> Path:
        """Return a file with settings of Kafka Streams; dots in names are written as ``_``."""
        path = self.folder / f"{name}.properties"
        given = {
            "bootstrap.servers": self.bootstrap_servers,
            "state.dir": self.folder / name,
            "acceptable.recovery.lag": 2**63 - 1,
            "session.timeout.ms": SESSION_MS,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
        path.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
        return path

    def application(
        self,
        name: str,
        topology: str,
        inputs: Sequence[str],
        output: str,
        guarantee: str,
        **settings: object,
    ) -> StreamsApplication:
        """Return an instance of our application, which has not been started."""
        found = StreamsApplication(
            self.folder / f"{name}.log",
            topology,
            self.bootstrap_servers,
            inputs,
            output,
            topology,
            self.state_of(name),
            guarantee,
            {key.replace("_", "."): value for key, value in settings.items()},
        )
        self._programs.append(found)
        return found

    def state_of(self, name: str) -> Path:
        """Return the directory of the state stores of an instance."""
        return self.folder / f"state-{name}"

    # --- gateways and cleaner ---------------------------------------------------------------------

    @contextmanager
    def struck_gateway(self, every_s: float = 8.0) -> Iterator[None]:
        """Run one more gateway for the block, which is killed and started again repeatedly.

        A real broker has none: there the block runs as it is.
        """
        if self.is_kafka:
            yield
            return
        gateway = GatewayProcess(str(self.gateways.root), SHORT)
        self.bootstrap_servers = f"{gateway.address},{self.gateways.bootstrap_servers}"
        is_over = threading.Event()
        strikes = []

        def strike() -> None:
            process = gateway
            try:
                while not is_over.wait(every_s):
                    process.kill()
                    strikes.append(1)
                    process = GatewayProcess(str(self.gateways.root), SHORT, gateway.address)
            finally:
                process.kill()

        thread = threading.Thread(target=strike, name="strikes")
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()
            self.bootstrap_servers = self.gateways.bootstrap_servers
        assert strikes, "the test has ended before the gateway was killed"

    def cleanings(self) -> Counter[int]:
        """Return the exit statuses of the runs of the cleaner."""
        return Counter(int(next(iter(fields))) for fields in read_notes(self._cleaner_notes))

    def _start_cleaner(self) -> None:
        """Run ``spark-log clean`` again and again beside, as Kafka's brokers clean themselves."""
        properties = self.folder / "root.properties"
        properties.write_text(f"root={self.gateways.root}\n")
        role = CleanRole(str(properties), str(self._cleaner_notes), _CLEAN_PAUSE_S)
        cleaner: ManagedProcess = ManagedProcess.start(clean_until_stopped, role)
        self._stack.callback(cleaner.end)

    def _delete_groups(self) -> None:
        """Delete all groups when the sessions of their members that were killed have ended."""
        deadline_s = time.monotonic() + _REQUEST_S
        while refused := self._refused_deletions():
            assert time.monotonic() < deadline_s, f"groups cannot be deleted: {refused}"
            time.sleep(1)

    def _refused_deletions(self) -> dict[str, str]:
        """Delete all groups; return why, by the group, if one cannot be deleted now."""
        listed = self._admin.list_consumer_groups().result(_REQUEST_S).valid
        groups = [each.group_id for each in listed]
        refused = {}
        for group, future in (self._admin.delete_consumer_groups(groups) if groups else {}).items():
            try:
                future.result(_REQUEST_S)
            except KafkaException as error:
                refused[group] = str(error)
        return refused


class Feeder(threading.Thread):
    """Produces records to a topic evenly over some time.

    Attributes:
        sent: number of records so far.
        failure: why a record was not acknowledged.
        is_ending: ends it before all are sent.
    """

    def __init__(
        self, bootstrap_servers: str, topic: str, lines: Sequence[Line], seconds: float = 0
    ) -> None:
        super().__init__(name=f"feeder of {topic}", daemon=True)
        self.sent = 0
        self.failure: str | None = None
        self.is_ending = threading.Event()
        self._topic, self._lines, self._seconds = topic, lines, seconds
        self._producer = Producer(
            _QUIET
            | {
                "bootstrap.servers": bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 5,
                "partitioner": "murmur2_random",  # Java's, so that tables have equal partitions
            }
        )

    def run(self) -> None:
        """Produce all records."""
        began_s = time.monotonic()
        for number, (key, value, timestamp_ms) in enumerate(self._lines):
            due_s = began_s + self._seconds * number / len(self._lines)
            while (now_s := time.monotonic()) < due_s and not self.is_ending.is_set():
                self._producer.poll(min(0.1, due_s - now_s))
            if self.is_ending.is_set():
                break
            more: dict[str, Any] = {} if timestamp_ms is None else {"timestamp": timestamp_ms}
            self._producer.produce(
                self._topic, value, key=key, on_delivery=self._on_delivery, **more
            )
            self._producer.poll(0)
            self.sent = number + 1
        if left := self._producer.flush(_REQUEST_S):
            self.failure = f"{left} records were not acknowledged"

    def wait_for(self, part: float) -> None:
        """Wait until a part of the records has been sent."""
        due = int(part * len(self._lines))
        wait_until(lambda: self.sent >= due, "the producer stands still", interval_s=0.05)

    def _on_delivery(self, error: object, _: object) -> None:
        if error is not None:
            self.failure = str(error)


def _end_of(consumer: Consumer, partition: TopicPartition) -> int:
    """Return the end offset of a partition, whose gateway may be killed meanwhile."""
    until_s = time.monotonic() + _REQUEST_S
    while True:
        try:
            return int(consumer.get_watermark_offsets(partition, timeout=_REQUEST_S)[1])
        except KafkaException:
            if time.monotonic() > until_s:
                raise


def wait_for(
    program: JavaProgram, pattern: str, since: int = 0, timeout_s: float = 300, count: int = 1
) -> None:
    """Wait until a program has written what a regular expression finds.

    Args:
        program: the program, which runs.
        pattern: the expression.
        since: the length of its log before what is searched.
        timeout_s: the time after which the test fails.
        count: how often it is to be found.
    """
    name = program.log_path.stem

    def is_found() -> bool:
        if len(program.found(pattern, since)) >= count:
            return True
        assert program.is_alive, f"{name} has ended with {program.status}, without {pattern!r}"
        return False

    wait_until(is_found, f"{name} has not written {pattern!r}", timeout_s=timeout_s, interval_s=0.2)


def wait_for_results(wrong: Callable[[], list[str]], timeout_s: float = 300) -> None:
    """Wait until nothing is wrong."""
    until_s = time.monotonic() + timeout_s
    while found := wrong():
        assert time.monotonic() < until_s, "\n".join(found)
        time.sleep(1)
