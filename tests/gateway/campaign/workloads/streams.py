"""A word count of Kafka Streams with ``exactly_once_v2``, whose instances are killed and paused."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Mapping
from typing import Any

from benchmarks.streams_application import StreamsApplication
from spark_log import Admin, Consumer, NewTopic, TopicPartition
from tests.faults.schedule import Schedule
from tests.gateway.campaign.client import REQUEST_TIMEOUT_MS
from tests.gateway.campaign.producers import TRANSACTION_TIMEOUT_MS, EventProducer, RdkafkaProducer
from tests.gateway.campaign.readers import text
from tests.gateway.campaign.topics import CONFIGS, LINES, partitions_of
from tests.gateway.campaign.workloads.workload import Blow, Workload
from tests.gateway.suites.kafka_streams.results import check_word_count

_OUTPUT, _APPLICATION, _PARTITIONS = "word-counts", "word-count", 2
_WORDS = 40

_SETTINGS = {
    "request.timeout.ms": REQUEST_TIMEOUT_MS,
    "metadata.max.age.ms": 2000,
    "metadata.recovery.rebootstrap.trigger.ms": 5000,
    "reconnect.backoff.max.ms": 500,
    "session.timeout.ms": 8000,
    "heartbeat.interval.ms": 500,
    "producer.transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
    "producer.delivery.timeout.ms": 3 * REQUEST_TIMEOUT_MS,
}


class _LineProducer(RdkafkaProducer):
    """An idempotent producer of lines, each of which has a word that no other line has."""

    topic = LINES

    def value(self, number: int) -> str:
        return f"{self.name}/{number} w{number % _WORDS} w{number * 7 % _WORDS}"


class WordCount(Workload):
    """Two instances of the application, and the producer of its input."""

    name = "streams"

    def prepare(self, admin: Admin) -> None:
        admin.create_topics([NewTopic(_OUTPUT, _PARTITIONS, topic_configs=CONFIGS)])
        self._found: list[tuple[str, str]] = []
        self._reader = Consumer(
            root=self.place.root,
            storage_options=self.place.storage_options,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        self._reader.assign([TopicPartition(_OUTPUT, each) for each in range(_PARTITIONS)])
        self._lines: list[str] | None = None

    def producers(self) -> list[EventProducer]:
        return [_LineProducer(self.place, "lines-producer")]

    def start(self) -> None:
        self._instances = [
            StreamsApplication(
                self.folder / f"instance-{number}.log",
                "word-count",
                self.place.bootstrap,
                [LINES],
                _OUTPUT,
                _APPLICATION,
                self.folder / f"state-{number}",
                "exactly_once_v2",
                _SETTINGS,
            )
            for number in range(2)
        ]
        self._struck: set[StreamsApplication] = set()
        self._paused: set[StreamsApplication] = set()
        self._restarts = 0
        for each in self._instances:
            each.start()

    @property
    def has_begun(self) -> bool:
        return any(each.is_running for each in self._instances)

    def look(self) -> None:
        for each in self._instances:
            if each.is_alive:
                continue
            if each not in self._struck:
                tail = each.log_path.read_text(errors="replace")[-1500:]
                self.failures.append(f"{each.log_path.stem} ended with {each.status}:\n{tail}")
            self._struck.discard(each)
            self._restarts += 1
            each.start()

    def blows(self) -> Mapping[str, tuple[int, Blow]]:
        return {"kill_streams": (2, self._kill), "pause_streams": (2, self._pause)}

    def _kill(self, chance: random.Random, schedule: Schedule) -> bool:
        each = chance.choice(self._instances)
        if not each.is_alive or each in self._paused:
            return False
        self.say(f"streams {each.log_path.stem}: kill")
        self._struck.add(each)
        each.kill()
        return True

    def _pause(self, chance: random.Random, schedule: Schedule) -> bool:
        each = chance.choice(self._instances)
        if not each.is_alive or each in self._paused:
            return False
        pause_s = chance.uniform(4, 20)
        self.say(f"streams {each.log_path.stem}: pause for {pause_s:.1f} s")
        self._paused.add(each)
        os.kill(each.pid, signal.SIGSTOP)
        schedule.do_later(pause_s, lambda: self._continue(each))
        return True

    def _continue(self, instance: StreamsApplication) -> None:
        if instance in self._paused:
            self._paused.discard(instance)
            os.kill(instance.pid, signal.SIGCONT)

    def resume(self) -> None:
        for each in list(self._paused):
            self._continue(each)

    def left(self) -> int:
        if self._lines is None:  # the producer has ended
            self._lines = self._read_lines()
        for records in self._reader.poll(timeout_ms=100).values():
            self._found += [(text(each.key), text(each.value)) for each in records]
        return sum(len(line.split(" ")) for line in self._lines) - len(self._found)

    def _read_lines(self) -> list[str]:
        found: list[str] = []
        partitions = partitions_of(LINES)
        with Consumer(
            root=self.place.root,
            storage_options=self.place.storage_options,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        ) as consumer:
            consumer.assign(partitions)
            ends = consumer.end_offsets(partitions)
            while any(consumer.position(each) < end for each, end in ends.items()):
                for records in consumer.poll(timeout_ms=300).values():
                    found += [text(each.value) for each in records]
        return found

    def end(self) -> None:
        for each in self._instances:
            if not each.close():
                self.failures.append(f"{each.log_path.stem} did not close")
        self.left()

    def close(self) -> None:
        self.resume()
        for each in getattr(self, "_instances", ()):
            each.kill()

    def findings(self) -> list[str]:
        assert self._lines is not None
        return check_word_count(self._lines, self._found)

    def figures(self) -> dict[str, Any]:
        exceptions = Counter(
            line.split(": ")[0].removeprefix("EXCEPTION ").rpartition(".")[2]
            for each in self._instances
            for line in each.found("^EXCEPTION .*")
        )
        return {
            "lines": len(self._lines or ()),
            "counts": len(self._found),
            "restarts": self._restarts,
            "exceptions": dict(exceptions),
        }
