"""`LogToKafka`: mirrors topics of a log into Kafka."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from spark_log.consumer import Consumer
from spark_log.errors import DataLossError, KafkaTimeoutError, OffsetOutOfRangeError
from spark_log.mirror import topic_settings
from spark_log.mirror.confluent import KafkaError, KafkaException, Message, Producer
from spark_log.mirror.kafka_cluster import TIMEOUT_S
from spark_log.mirror.kafka_errors import kafka_errors
from spark_log.mirror.map_topic import create_in_kafka
from spark_log.mirror.mirror import Mirror
from spark_log.mirror.offset_map import (
    MirroredPartition,
    Side,
    find_runs,
    map_record,
    parts_by_partition,
)
from spark_log.mirror.task_generation import TaskGeneration, write_to_kafka
from spark_log.record import int_array, ints_of
from spark_log.suppressed import IN_PROCESS
from spark_log.types import TopicPartition

_ROWS: Final = 50_000
"""Most rows that are produced before the client's callbacks run."""
_WAIT_MS: Final = 100
_FIRST_AND_LAST: Final = 2
_FULL_WAIT_S: Final = 0.05
_MIN_TIME_MS: Final = 1
"""Librdkafka takes 0 for the present time."""
_US_PER_MS: Final = 1000

Runs = dict[MirroredPartition, np.ndarray]


class _InterleavedError(Exception):
    """Another producer wrote between the records of a transaction."""


class _Produced(NamedTuple):
    """Rows that were produced to one partition, in order, with what the broker reports of them."""

    offsets: np.ndarray
    reported: list[int]


class LogToKafka(Mirror):
    """Reads committed records of the log, and writes them in transactions of Kafka.

    Keys, values, headers and partitions are the same. Timestamps lose their microseconds, and those
    before the epoch's first millisecond become that.

    Kafka reports the offset of each record by a callback, which costs as much as the record. So
    only the first and the last record of a partition are asked for. If these show that another
    producer wrote between them, the transaction is aborted and repeated, and from then on every
    record is asked for.
    """

    source = Side.LOG

    _producer: Producer | None = None
    _consumer: Consumer | None = None
    _asks_for_all = False

    def open(self) -> None:
        """Fence earlier mirrors, find out where to continue, and begin to read ahead."""
        create_in_kafka(self._kafka, self._settings.map_topic)
        self._take_over()
        self._consumer = self._log.consumer()
        self._partitions: dict[TopicPartition, MirroredPartition] = {}
        self.refresh()

    def refresh(self) -> None:
        """Create new topics and partitions in Kafka, take over settings, and read new ones."""
        if self._task is not None:
            own = self._task.partition
            self._assign({TopicPartition(own.log_topic, own.partition)})
            return
        described = [
            each
            for each in self._log.admin().describe_topics(with_offsets=False)
            if self._settings.is_mirrored(each.name, Side.LOG)
        ]
        counts = self._kafka.partition_counts()
        targets = {
            each.name: self._settings.partition(each.name, 0, Side.LOG).kafka_topic
            for each in described
        }
        present = self._kafka.topic_settings(set(targets.values()) & counts.keys())
        for each in described:
            target, count = targets[each.name], len(each.partitions)
            wanted = topic_settings.to_kafka(each.configs)
            if target not in counts:
                self._kafka.create_topic(target, count, wanted)
                continue
            if counts[target] < count:
                self._kafka.create_partitions(target, count)
            # Kafka's gzip is zstd in the log, and stays gzip.
            there = topic_settings.to_log(present[target])
            changed = {key: wanted[key] for key in wanted if there.get(key) != each.configs[key]}
            if changed:
                self._kafka.alter_topic(target, changed)
        self._assign(
            {
                TopicPartition(each.name, one.partition)
                for each in described
                for one in each.partitions
            }
        )

    def transfer(self, wait_s: float = 0.5) -> int:
        """Copy the records of one transaction, and commit it; see `Mirror.transfer`."""
        if not self._partitions:
            time.sleep(wait_s)
            return 0
        first = self._poll(wait_s * 1000)
        if not first.num_rows and not self._with_passed({}, self._positions()):
            return 0
        try:
            return self._transfer(first)
        except _InterleavedError:
            self._asks_for_all = True
            self._seek(self._partitions)
            return self.transfer(wait_s)

    def lag(self) -> dict[MirroredPartition, int]:
        """Return how many offsets of the log are not mirrored yet, by partition."""
        if not self._partitions:
            return {}
        ends = self._opened_consumer().end_offsets(list(self._partitions))
        positions = self._positions()
        return {
            partition: max(0, ends[tp] - positions[partition])
            for tp, partition in self._partitions.items()
        }

    @property
    def is_at_end(self) -> bool:
        """Whether all records that the log has now are mirrored."""
        return not any(self.lag().values())

    def close(self) -> None:
        """Release everything; an open transaction is aborted."""
        self._stop_reading()
        if self._producer is not None:
            self._producer.purge()
            self._producer = None

    def mirrored_partitions(self) -> list[MirroredPartition]:
        """Return the partitions that are mirrored, in the order of topics and partitions."""
        return list(self._partitions.values())

    def _stop_reading(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _write_generation(self, generation: TaskGeneration) -> None:
        write_to_kafka(self._kafka, self._opened_producer(), self._settings, generation)

    def _open_producer(self) -> None:
        partition = None if self._task is None else self._task.partition
        name = self._settings.transactional_id(Side.KAFKA, partition)
        self._producer = self._kafka.producer(name)

    def _transfer(self, first: pa.Table) -> int:
        producer = self._opened_producer()
        settings = self._settings
        due_s = time.monotonic() + settings.commit_interval_ms / 1000
        produced: dict[TopicPartition, list[_Produced]] = {}
        count: int = 0
        size_bytes: int = 0
        with kafka_errors():
            producer.begin_transaction()
        try:
            table = first
            while True:
                self._produce(table, produced)
                count += table.num_rows
                size_bytes += table.nbytes
                left_s = due_s - time.monotonic()
                if left_s <= 0 or size_bytes >= settings.max_transaction_bytes:
                    break
                table = self._poll(min(_WAIT_MS, left_s * 1000))
            self._flush()
            runs = self._with_passed(self._runs(produced), self._positions())
            with kafka_errors():
                for key, value in (map_record(*each) for each in runs.items()):
                    producer.produce(settings.map_topic, value, key, 0)
            self._kafka.commit(producer)
        except BaseException:
            self._abort()
            raise
        self._on_commit(runs, count, size_bytes)
        return count

    def _abort(self) -> None:
        producer = self._opened_producer()
        try:
            producer.purge()
            producer.abort_transaction(TIMEOUT_S)
        except KafkaException as error:  # fenced, or no broker answers: the next mirror aborts it
            IN_PROCESS.add("abort of a transaction in Kafka", self._settings.map_topic, error)

    def _assign(self, wanted: set[TopicPartition]) -> None:
        """Read these partitions: new ones from where they are mirrored, or from their start."""
        if wanted == self._partitions.keys():
            return
        consumer = self._opened_consumer()
        self._partitions = {
            tp: self._settings.partition(tp.topic, tp.partition, Side.LOG) for tp in sorted(wanted)
        }
        consumer.assign(list(self._partitions))
        self._seek(self._partitions)

    def _seek(self, partitions: dict[TopicPartition, MirroredPartition]) -> None:
        consumer = self._opened_consumer()
        for tp, partition in partitions.items():
            end = self.maps[partition].end(Side.LOG)
            if end is None:
                consumer.seek_to_beginning(tp)
            else:
                consumer.seek(tp, end)

    def _positions(self) -> dict[MirroredPartition, int]:
        consumer = self._opened_consumer()
        return {each: consumer.position(tp) for tp, each in self._partitions.items()}

    def _poll(self, wait_ms: float) -> pa.Table:
        consumer = self._opened_consumer()
        try:
            return consumer.poll_table(int(wait_ms), _ROWS)
        except OffsetOutOfRangeError as error:
            if self._settings.fail_on_data_loss:
                raise DataLossError(
                    f"records were deleted before they were mirrored: {error.message}. To continue "
                    f"with the records that are left, give --no-fail-on-data-loss"
                ) from error
            firsts = consumer.beginning_offsets(list(self._partitions))
            for tp, first in firsts.items():
                if consumer.position(tp) < first:
                    consumer.seek(tp, first)
            return consumer.poll_table(int(wait_ms), _ROWS)

    def _produce(self, table: pa.Table, produced: dict[TopicPartition, list[_Produced]]) -> None:
        """Produce the rows of a table, and note whose offsets Kafka will report."""
        producer = self._opened_producer()
        produce = producer.produce
        for tp, rows in _by_partition(table):
            target = self._partitions[tp].kafka_topic
            reported: list[int] = []
            produced.setdefault(tp, []).append(
                _Produced(ints_of(rows.column("offset").combine_chunks(), np.int64), reported)
            )

            def report(
                error: KafkaError | None, message: Message, to: list[int] = reported
            ) -> None:
                if error is None:
                    to.append(message.offset() or 0)

            asking = partial(_produce_row, producer, target, tp.partition, report)
            records = list(_rows(rows))
            asking(*records[0])
            asked = report if self._asks_for_all else None
            for row in records[1:-1]:  # this loop decides how fast a mirror is
                key, value, time_ms, headers = row
                try:
                    if headers is None and asked is None:
                        produce(target, value, key, tp.partition, timestamp=time_ms)
                        continue
                except BufferError:
                    pass
                _produce_row(producer, target, tp.partition, asked, *row)
            if len(records) > 1:
                asking(*records[-1])
            producer.poll(0)

    def _flush(self) -> None:
        with kafka_errors():
            left = self._opened_producer().flush(TIMEOUT_S * 4)
        if left:
            raise KafkaTimeoutError(f"{left} records were not acknowledged by Kafka in time")

    def _runs(self, produced: dict[TopicPartition, list[_Produced]]) -> Runs:
        """Return the runs of each partition; everything is acknowledged.

        Raises:
            _InterleavedError: the offsets of some records are not known.
        """
        runs = {}
        for tp, parts in produced.items():
            kafka_offsets = [_kafka_offsets(*part) for part in parts]
            log_offsets = [part.offsets for part in parts]
            runs[self._partitions[tp]] = find_runs(
                *map(np.concatenate, (kafka_offsets, log_offsets))
            )
        return runs

    def _opened_producer(self) -> Producer:
        assert self._producer is not None, "open the mirror first"
        return self._producer

    def _opened_consumer(self) -> Consumer:
        assert self._consumer is not None, "open the mirror first"
        return self._consumer


def _kafka_offsets(offsets: np.ndarray, reported: list[int]) -> np.ndarray:
    """Return the offsets of rows in Kafka, from those of all, or of the first and the last."""
    if len(reported) == len(offsets):
        return np.array(reported, np.int64)
    if len(reported) != _FIRST_AND_LAST:  # a record was not delivered: the commit fails
        raise KafkaTimeoutError("Kafka did not report the offsets of mirrored records; try again")
    first, last = reported
    if last - first + 1 != len(offsets):
        raise _InterleavedError
    return np.arange(first, last + 1)


def _by_partition(table: pa.Table) -> Iterator[tuple[TopicPartition, pa.Table]]:
    """Yield the rows of each partition, in their order."""
    if not table.num_rows:
        return
    topics = table.column("topic").combine_chunks().dictionary_encode()
    names = topics.dictionary.to_pylist()
    numbers = ints_of(table.column("partition").combine_chunks(), np.int32).astype(np.int64)
    codes = ints_of(topics.indices, np.int32) + numbers * len(names)
    for code, rows in parts_by_partition(codes):
        first, count = int(rows[0]), len(rows)
        if int(rows[-1]) - first + 1 == count:
            part = table.slice(first, count)
        else:
            part = table.take(int_array(rows, pa.int64()))
        yield TopicPartition(names[code % len(names)], code // len(names)), part


def _rows(table: pa.Table) -> Iterator[tuple[bytes | None, bytes | None, int, Any]]:
    """Yield key, value, timestamp in milliseconds and headers of each row."""
    times_us = ints_of(table.column("timestamp").combine_chunks(), np.int64)
    times_ms = np.maximum(times_us // _US_PER_MS, _MIN_TIME_MS).tolist()
    headers = table.column("headers")
    if headers.null_count == len(headers):
        pairs: list[Any] = [None] * len(headers)
    else:
        pairs = [
            None if each is None else [(one["key"], one["value"]) for one in each]
            for each in headers.to_pylist()
        ]
    keys, values = (table.column(name).to_pylist() for name in ("key", "value"))
    yield from zip(keys, values, times_ms, pairs, strict=True)


def _produce_row(
    producer: Producer,
    topic: str,
    partition: int,
    report: Any,
    key: bytes | None,
    value: bytes | None,
    time_ms: int,
    headers: Any,
) -> None:
    """Produce one record, and wait while the client's queue is full."""
    given = {} if headers is None else {"headers": headers}
    while True:
        try:
            producer.produce(
                topic, value, key, partition, on_delivery=report, timestamp=time_ms, **given
            )
            return
        except BufferError:
            producer.poll(_FULL_WAIT_S)
