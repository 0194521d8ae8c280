"""A canary writes records to the log and reads them back, to test that it works, and how fast.

Its topic has one partition, and is created if it does not exist. Its records are kept for ten
minutes: the canary applies the retention of its topic by itself. Several canaries of one root may
run at the same time; each waits for its own records.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from spark_log.admin import Admin
from spark_log.cluster import Cluster, ClusterCleaner
from spark_log.consumer import Consumer
from spark_log.errors import KafkaTimeoutError, SparkLogError, TopicAlreadyExistsError
from spark_log.metrics import Family, Histogram, MetricDefinition, definitions
from spark_log.producer import Producer
from spark_log.types import NewTopic, OffsetAndMetadata, TopicPartition
from spark_log.util import IN_PROCESS, SYSTEM_CLOCK, Clock, random_id

_log = logging.getLogger(__name__)

CANARY_TOPIC: Final = "spark-log-canary"
GROUP: Final = "spark-log-canary"

_RETENTION_MS: Final = 600_000
_SETTINGS: Final = {"retention.ms": _RETENTION_MS, "segment.ms": 60_000}

_STEPS: Final[dict[str, MetricDefinition]] = {
    "produce": definitions.CANARY_PRODUCE,
    "roundtrip": definitions.CANARY_ROUNDTRIP,
    "commit": definitions.CANARY_COMMIT,
}
_OPEN: Final = "open"


@dataclass(frozen=True, slots=True)
class CanaryRecord:
    """The result of sending one record.

    Attributes:
        offset: the record's offset; None if it was not acknowledged.
        durations_ms: step → duration in milliseconds, for each step that succeeded.
        failed_step: ``open``, ``produce``, ``roundtrip`` or ``commit``; None if all succeeded.
        error: the reason why the step failed.
    """

    offset: int | None
    durations_ms: Mapping[str, float]
    failed_step: str | None = None
    error: str | None = None

    def document(self) -> dict[str, object]:
        """Return the result as a JSON document."""
        times = {f"{step}_ms": self.durations_ms.get(step) for step in _STEPS}
        return {
            "offset": self.offset,
            **{name: None if ms is None else round(ms, 3) for name, ms in times.items()},
            "failed_step": self.failed_step,
            "error": self.error,
        }


class _StepError(Exception):
    def __init__(self, step: str, error: Exception) -> None:
        super().__init__(step, error)
        self.step = step
        self.error = error


class Canary:
    """Sends records, one at a time, and waits until a consumer gets each. Not thread-safe."""

    def __init__(
        self,
        root: str,
        client_arguments: Mapping[str, Any],
        open_cluster: Callable[[], Cluster],
        *,
        topic: str = CANARY_TOPIC,
        timeout_ms: int = 10_000,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Return a canary; nothing is opened yet.

        Args:
            root: the path or URL of the root.
            client_arguments: the storage options, as arguments of `Producer`, `Consumer` and
                `Admin`.
            open_cluster: opens the root, to clean the topic.
            topic: the name of the topic.
            timeout_ms: the maximum time of each step.
            clock: measures the steps.
        """
        self._root = root
        self._client_arguments = client_arguments
        self._open_cluster = open_cluster
        self._partition = TopicPartition(topic, 0)
        self._timeout_ms = timeout_ms
        self._clock = clock
        self._id = f"{random_id()}-{os.getpid()}"
        self._sent = 0
        self._clients: tuple[Producer, Consumer] | None = None
        self._opened = ExitStack()
        self._clean_due_ms = clock.monotonic_ms()
        self._durations = {step: Histogram() for step in _STEPS}
        self._failures = Counter(dict.fromkeys((_OPEN, *_STEPS), 0))

    def send(self) -> CanaryRecord:
        """Send one record, wait until it is read and committed, and return the result or failure.

        After a failure the next call opens the root again.
        """
        durations_ms: dict[str, float] = {}
        offset: int | None = None
        try:
            with self._step(_OPEN, {}):
                producer, consumer = self._clients or self._open()
            began_ms = self._clock.monotonic_ms()
            self._sent += 1
            value = f"{self._id}-{self._sent}".encode()
            with self._step("produce", durations_ms):
                sent = producer.send(self._partition.topic, value, partition=0)
                offset = sent.result(self._timeout_ms / 1000).offset
            with self._step("roundtrip", durations_ms, began_ms):
                next_offset = self._wait_for(consumer, value)
            with self._step("commit", durations_ms):
                consumer.commit({self._partition: OffsetAndMetadata(next_offset)})
        except _StepError as failed:
            self._failures[failed.step] += 1
            _log.debug("canary: step %s failed: %s", failed.step, _text(failed.error))
            self.close()
            return CanaryRecord(offset, durations_ms, failed.step, _text(failed.error))
        self._clean()
        return CanaryRecord(offset, durations_ms)

    def close(self) -> None:
        """Close the clients; a later `send` opens new ones."""
        self._clients = None
        opened, self._opened = self._opened, ExitStack()
        with IN_PROCESS.suppress("canary close", self._partition.topic, SparkLogError, OSError):
            opened.close()

    def families(self) -> Iterator[Family]:
        """Yield the metrics. Any thread may call this."""
        for step, definition in _STEPS.items():
            yield Family(definition, [((), self._durations[step])])
        failures = [((step,), float(count)) for step, count in self._failures.items()]
        yield Family(definitions.CANARY_FAILURES, failures)

    @contextmanager
    def _step(
        self, name: str, durations_ms: dict[str, float], began_ms: float | None = None
    ) -> Iterator[None]:
        began_ms = self._clock.monotonic_ms() if began_ms is None else began_ms
        try:
            yield
        except (SparkLogError, OSError, TimeoutError) as error:
            raise _StepError(name, error) from error
        if name in self._durations:
            durations_ms[name] = self._clock.monotonic_ms() - began_ms
            self._durations[name].record(durations_ms[name])

    def _open(self) -> tuple[Producer, Consumer]:
        topic = self._partition.topic
        arguments = self._client_arguments
        timeout_ms = self._timeout_ms
        with Admin(self._root, **arguments, default_api_timeout_ms=timeout_ms) as admin:
            if topic not in admin.list_topics():
                with suppress(TopicAlreadyExistsError):  # another canary has just created it
                    admin.create_topics([NewTopic(topic, topic_configs=_SETTINGS)])
        producer = self._opened.enter_context(
            Producer(
                self._root,
                **arguments,
                clock=self._clock,
                client_id="canary",
                linger_ms=0,
                delivery_timeout_ms=timeout_ms,
                request_timeout_ms=timeout_ms,
                max_block_ms=timeout_ms,
            )
        )
        consumer = self._opened.enter_context(
            Consumer(
                root=self._root,
                **arguments,
                clock=self._clock,
                client_id="canary",
                group_id=GROUP,
                enable_auto_commit=False,
                default_api_timeout_ms=timeout_ms,
                request_timeout_ms=timeout_ms,
            )
        )
        consumer.assign([self._partition])
        consumer.seek_to_end(self._partition)
        consumer.position(self._partition)
        self._clients = producer, consumer
        return self._clients

    def _wait_for(self, consumer: Consumer, value: bytes) -> int:
        """Wait until the consumer gets the record with a value; return the offset after it."""
        due_ms = self._clock.monotonic_ms() + self._timeout_ms
        while (left_ms := due_ms - self._clock.monotonic_ms()) > 0:
            for records in consumer.poll(int(left_ms) + 1).values():
                for record in records:
                    if record.value == value:
                        return record.offset + 1
        raise KafkaTimeoutError(f"a consumer did not get the record in {self._timeout_ms} ms")

    def _clean(self) -> None:
        """Apply the retention of the topic from time to time, and merge its segments."""
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._clean_due_ms:
            return
        self._clean_due_ms = now_ms + _RETENTION_MS / 2
        topic = self._partition.topic
        with IN_PROCESS.suppress("canary cleaning", topic, SparkLogError, OSError):
            for each in ClusterCleaner(self._open_cluster(), [topic]).clean():
                if each.error is not None:
                    raise each.error


def _text(error: Exception) -> str:
    return error.message if isinstance(error, SparkLogError) else str(error)
