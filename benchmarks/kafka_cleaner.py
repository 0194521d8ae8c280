"""The log cleaner of a real Kafka broker: cleans on request, and reports the cost."""

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pyarrow as pa
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from benchmarks.kafka_broker import BrokerError, KafkaBroker
from benchmarks.log_cleaning import Cleaning

_TOPIC = "updates"
_CONFIG_S = 2.0
"""Time until the broker applies a changed setting."""
_MOST_S = 600
_MIB = 2**20
_MAP_ENTRY_BYTES = 24  # a hash of 16 bytes and an offset of 8
_MAP_LOAD = 0.9  # log.cleaner.io.buffer.load.factor
_WEEK_MS = 604_800_000

_CLEANED = re.compile(
    r"cleaned log (?P<log>\S+) \(dirty section = \[(?P<start>\d+), (?P<end>\d+)\]\)\s+"
    r"(?P<mib>[\d,.]+) MB of log processed in (?P<seconds>[\d,.]+) seconds.*?"
    r"Start size: [\d,.]+ MB \((?P<read>[\d,]+) messages\)\s+"
    r"End size: [\d,.]+ MB \((?P<written>[\d,]+) messages\)",
    re.DOTALL,
)


class KafkaCleaner:
    """A broker with one cleaner thread, and a compacted topic of one partition.

    The cleaner does nothing until `clean` is called: ``min.cleanable.dirty.ratio`` is 1 before.
    It syncs a cleaned segment before the segment replaces the old ones
    (``LogCleaner.cleanSegments``).

    Attributes:
        dedupe_mib: the memory for keys (``log.cleaner.dedupe.buffer.size``).
    """

    def __init__(self, directory: Path | None, keys: int) -> None:
        """Return a cleaner; the broker is not started yet.

        Args:
            directory: the parent of the broker's directory; None for the system's temporary one.
            keys: the number of keys that fit into memory.
        """
        # Some MiB more than the keys need, so that one pass is enough.
        self.dedupe_mib = max(16, int(keys * _MAP_ENTRY_BYTES / _MAP_LOAD / _MIB) + 8)
        self._broker = KafkaBroker(
            directory,
            settings={
                "log.cleaner.threads": "1",
                "log.cleaner.dedupe.buffer.size": str(self.dedupe_mib * _MIB),
                "log.cleaner.backoff.ms": "500",
            },
            loggers=("kafka.log", "org.apache.kafka.storage.internals.log"),
        )
        self._cleaned = 0
        self._end_offset = 0

    def __enter__(self) -> Self:
        """Start the broker and create the topic."""
        self._broker.__enter__()
        self._address: dict[str, str | int | float | bool] = {
            "bootstrap.servers": self._broker.bootstrap_servers,
            "log_level": 2,
        }
        self._admin = AdminClient(self._address)
        settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1"}
        topic = NewTopic(_TOPIC, 1, 1, config=settings)
        for done in self._admin.create_topics([topic]).values():
            done.result(30)
        return self

    def __exit__(self, *error: object) -> None:
        """Stop the broker and remove its files."""
        self._broker.__exit__(*error)

    def fill(self, batches: Iterator[pa.RecordBatch], closing: pa.RecordBatch) -> None:
        """Send records, and a last record into a new segment, which stays the active one."""
        self._send(batches)
        self._alter({"segment.ms": "1"})
        self._send(iter([closing]))
        self._alter({"segment.ms": str(_WEEK_MS)})
        os.sync()

    def clean(self) -> Cleaning:
        """Let the cleaner run, and wait until it has cleaned all but the active segment.

        Raises:
            BrokerError: it takes more than ten minutes.
        """
        cpu_began = self._broker.cpu_s()
        self._alter({"min.cleanable.dirty.ratio": "0"})
        deadline = time.monotonic() + _MOST_S
        found: list[re.Match[str]] = []
        while not found or int(found[-1]["end"]) < self._end_offset - 1:
            if time.monotonic() > deadline:
                raise BrokerError(f"the cleaner was not done after {_MOST_S} s")
            time.sleep(0.5)
            lines = self._broker.log_path.read_text(errors="replace")
            cleaned = [each for each in _CLEANED.finditer(lines) if each["log"] == f"{_TOPIC}-0"]
            found = cleaned[self._cleaned :]
        self._cleaned += len(found)
        cpu_ended = self._broker.cpu_s()
        self._alter({"min.cleanable.dirty.ratio": "1"})
        return Cleaning(
            records_read=_number(found[0]["read"]),
            records_written=_number(found[-1]["written"]),
            bytes_read=float(found[0]["mib"].replace(",", "")) * _MIB,
            took_s=sum(float(each["seconds"].replace(",", "")) for each in found),
            cpu_s=None if cpu_began is None or cpu_ended is None else cpu_ended - cpu_began,
        )

    def _send(self, batches: Iterator[pa.RecordBatch]) -> None:
        settings = {
            "enable.idempotence": True,
            "acks": "all",
            "queue.buffering.max.messages": 1_000_000,
        }
        producer = Producer({**self._address, **settings})
        produce = producer.produce
        for batch in batches:
            keys, values = batch.column("key").to_pylist(), batch.column("value").to_pylist()
            for key, value in zip(keys, values, strict=True):
                while True:
                    try:
                        produce(_TOPIC, value, key)
                        break
                    except BufferError:
                        producer.poll(0.01)
            self._end_offset += len(keys)
        if left := producer.flush(120):
            raise BrokerError(f"{left} records were not acknowledged in 120 s")

    def _alter(self, settings: dict[str, str]) -> None:
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in settings.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, _TOPIC, incremental_configs=entries)
        for done in self._admin.incremental_alter_configs([resource]).values():
            done.result(30)
        time.sleep(_CONFIG_S)


def _number(text: str) -> int:
    return int(text.replace(",", ""))
