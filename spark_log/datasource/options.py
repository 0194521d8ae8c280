"""The options of ``format("spark_log")``: one table, parsed and checked in one place.

Names are those of Spark's Kafka connector, case-insensitive as everywhere in Spark. ``path`` is
the cluster root; ``storage.<key>`` options go to the file system.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from spark_log.config import ConsumerConfig, ProducerConfig
from spark_log.errors import InvalidOptionError, nearest
from spark_log.storage import open_store
from spark_log.types import TopicPartition

STORAGE_PREFIX = "storage."

COMMON_OPTIONS = {"path": "the cluster root: a directory or a URL"}
READ_OPTIONS = COMMON_OPTIONS | {
    "subscribe": "topics to read, separated by commas",
    "assign": 'partitions to read, as JSON: {"topicA": [0, 1], "topicB": [2]}',
    "startingOffsets": "earliest, latest, or JSON by topic and partition; -2 earliest, -1 latest",
    "endingOffsets": "latest, or JSON by topic and partition; -1 latest",
    "startingTimestamp": "milliseconds since the epoch: from the first record at or after it",
    "endingTimestamp": "milliseconds since the epoch: to before the first record at or after it",
    "includeHeaders": "whether to add the column headers (default false)",
    "check.crcs": "whether to check every batch's checksum (default true)",
}
WRITE_OPTIONS = COMMON_OPTIONS | {
    "topic": "the topic to write to; wins over a column of that name",
    "compression.type": "none, lz4 or zstd, where the topic says producer",
}


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a batch read was asked for; offsets still as text.

    Attributes:
        topics: all that are subscribed, or that have a partition assigned.
        assigned: only these partitions of them; None for all.
    """

    root: str
    storage_options: Mapping[str, str]
    topics: tuple[str, ...]
    assigned: frozenset[TopicPartition] | None
    starting_offsets: str
    ending_offsets: str
    starting_timestamp_ms: int | None
    ending_timestamp_ms: int | None
    include_headers: bool
    check_crcs: bool


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """What a write was asked for."""

    root: str
    storage_options: Mapping[str, str]
    topic: str | None
    compression: str


def parse_read_options(options: Mapping[str, str]) -> ReadOptions:
    """Check the options of a read.

    Raises:
        InvalidOptionError: an option is unknown (names the nearest), missing, or has a bad value.
    """
    given = _Options(options, READ_OPTIONS)
    assigned = given.assigned()
    subscribed = [name.strip() for name in given.get("subscribe").split(",") if name.strip()]
    if bool(assigned) == bool(subscribed):
        raise InvalidOptionError(
            "give exactly one of the options 'subscribe' (topics separated by commas) and "
            f"'assign' ({READ_OPTIONS['assign']})",
            key="subscribe",
        )
    topics = subscribed or [named.topic for named in sorted(assigned or ())]
    consumer = ConsumerConfig.parse(given.subset("check.crcs"))
    return ReadOptions(
        root=given.root(),
        storage_options=given.storage_options,
        topics=tuple(dict.fromkeys(topics)),
        assigned=assigned,
        starting_offsets=given.get("startingOffsets", "earliest"),
        ending_offsets=given.get("endingOffsets", "latest"),
        starting_timestamp_ms=given.integer("startingTimestamp"),
        ending_timestamp_ms=given.integer("endingTimestamp"),
        include_headers=given.boolean("includeHeaders", default=False),
        check_crcs=consumer.check_crcs,
    )


def parse_write_options(options: Mapping[str, str]) -> WriteOptions:
    """Check the options of a write.

    Raises:
        InvalidOptionError: an option is unknown (names the nearest), missing, or has a bad value.
    """
    given = _Options(options, WRITE_OPTIONS)
    producer = ProducerConfig.parse(given.subset("compression.type"))
    return WriteOptions(
        root=given.root(),
        storage_options=given.storage_options,
        topic=given.get("topic") or None,
        compression=producer.compression_type,
    )


class _Options:
    def __init__(self, options: Mapping[str, str], known: Mapping[str, str]) -> None:
        by_lower = {name.lower(): name for name in known}
        self._values: dict[str, str] = {}
        self.storage_options: dict[str, str] = {}
        for name, value in options.items():
            if name.lower().startswith(STORAGE_PREFIX):
                self.storage_options[name[len(STORAGE_PREFIX) :]] = value
            elif name.lower() in by_lower:
                self._values[by_lower[name.lower()]] = value
            else:
                close = nearest(name, known)
                hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
                raise InvalidOptionError(
                    f"unknown option {name!r} for format spark_log; {hint}",
                    key=name,
                    nearest=close[0] if close else None,
                )

    def get(self, name: str, default: str = "") -> str:
        return self._values.get(name, default)

    def subset(self, *names: str) -> dict[str, str]:
        return {name: self._values[name] for name in names if name in self._values}

    def required(self, name: str) -> str:
        value = self._values.get(name, "")
        if not value:
            raise InvalidOptionError(
                f"option {name!r} is missing: {READ_OPTIONS.get(name)}", key=name
            )
        return value

    def assigned(self) -> frozenset[TopicPartition] | None:
        text = self._values.get("assign")
        if text is None:
            return None
        try:
            return frozenset(
                TopicPartition(topic, int(number))
                for topic, numbers in json.loads(text).items()
                for number in numbers
            )
        except (ValueError, AttributeError, TypeError):
            raise InvalidOptionError(
                f"option 'assign' is {text!r}, expected {READ_OPTIONS['assign']}", key="assign"
            ) from None

    def root(self) -> str:
        """Return the root so that tasks, whose working directory is another, find it too."""
        return open_store(self.required("path"), self.storage_options).url

    def integer(self, name: str) -> int | None:
        value = self._values.get(name)
        if value is None:
            return None
        try:
            return int(value)
        except ValueError:
            raise InvalidOptionError(
                f"option {name!r} is {value!r}, expected {READ_OPTIONS[name]}", key=name
            ) from None

    def boolean(self, name: str, *, default: bool) -> bool:
        value = self._values.get(name, str(default)).lower()
        if value not in ("true", "false"):
            raise InvalidOptionError(
                f"option {name!r} is {value!r}, expected true or false", key=name
            )
        return value == "true"
