"""`LogToKafka`: mirrors topics of a log into Kafka."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from spark_log.consumer import Consumer
from spark_log.errors import (
    DataLossError,
    InvalidRecordError,
    KafkaTimeoutError,
    OffsetOutOfRangeError,
)
from spark_log.mirror.commit_timer import CommitTimer
from spark_log.mirror.kafka import (
    BATCH_BYTES,
    TIMEOUT_S,
    InterleavedError,
    KafkaError,
    KafkaException,
    PartitionRows,
    ProducedRows,
    Producer,
    as_own_error,
    kafka_errors,
    produce_rows,
    rows_by_partition,
    settings_for_kafka,
    settings_for_log,
)
from spark_log.mirror.mirror import Mirror
from spark_log.mirror.mirrored_partition import MirroredPartition, Side
from spark_log.mirror.offsets import create_in_kafka, find_runs, sync_record, write_to_kafka
from spark_log.types import TopicPartition
from spark_log.util import IN_PROCESS

_log = logging.getLogger(__name__)

_ROWS: Final = 50_000
"""Maximum number of rows that are produced before the client's callbacks run."""
_WAIT_MS: Final = 100
_BATCH_OVERHEAD: Final = 1_024
"""Maximum bytes of a batch that librdkafka does not count before compression."""
_AHEAD_BYTES: Final = 67_108_864
"""Number of bytes after which reading stops while a transaction is being committed."""

Runs = dict[MirroredPartition, np.ndarray]


@dataclass(frozen=True, slots=True)
class _Fetched:
    """Records that were read and are ready to be produced.

    Attributes:
        rows: the records of each partition.
        count: the number of records.
        size_bytes: the size of the records' columns.
        positions: the offset up to which each partition of the log was read.
    """

    rows: list[PartitionRows]
    count: int
    size_bytes: int
    positions: dict[MirroredPartition, int]


class LogToKafka(Mirror):
    """Reads committed records of the log, and writes them in transactions of Kafka.

    Keys, values, headers and partitions stay the same. Timestamps are cut to milliseconds; those
    before the first millisecond of the epoch become the first millisecond.

    Kafka reports the offset of each record by a callback, which costs as much as the record.
    Only the offsets of a partition's first and last record are requested. If these show that
    another producer wrote between them, or that Kafka refused a record, the transaction is aborted
    and repeated, and from then on the offset of every record is requested. Batches are no larger
    than the smallest ``max.message.bytes`` of the topics, which in Kafka limits a batch.
    """

    source = Side.LOG

    _producer: Producer | None = None
    _consumer: Consumer | None = None
    _asks_for_all = False
    _ahead: Future[list[_Fetched]] | None = None
    _batch_bytes = BATCH_BYTES

    def open(self) -> None:
        """Fence earlier mirrors, find out where to continue, and begin to read ahead."""
        create_in_kafka(self._kafka, self._settings.offset_sync_topic)
        self._take_over()
        self._consumer = self._log.consumer()
        self._partitions: dict[TopicPartition, MirroredPartition] = {}
        self._fetched: deque[_Fetched] = deque()
        self._reader = ThreadPoolExecutor(1, "mirror-reader")
        self.refresh()

    def refresh(self) -> None:
        """Create new topics and partitions in Kafka, copy changed settings, and read new ones."""
        if self._task is not None:
            own = self._task.partition
            self._limit_batches(self._kafka.topic_settings([own.kafka_topic]).values())
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
            wanted = settings_for_kafka(each.configs)
            if target not in counts:
                self._kafka.create_topic(target, count, wanted)
                _log.info("created topic %s in Kafka with %d partitions", target, count)
                continue
            if counts[target] < count:
                self._kafka.create_partitions(target, count)
                _log.info("topic %s in Kafka has %d partitions now", target, count)
            # Kafka's gzip is zstd in the log, and stays gzip.
            there = settings_for_log(present[target])
            changed = {key: wanted[key] for key in wanted if there.get(key) != each.configs[key]}
            if changed:
                self._kafka.alter_topic(target, changed)
                _log.info("altered settings of topic %s in Kafka: %s", target, changed)
        self._check_topics({each.name: str(each.topic_id) for each in described})
        made = (settings_for_kafka(each.configs) for each in described)
        self._limit_batches([*made, *present.values()])
        self._assign(
            {
                TopicPartition(each.name, one.partition)
                for each in described
                for one in each.partitions
            }
        )
        self._prune()

    def transfer(self, wait_s: float = 0.5) -> int:
        """Copy the records of one transaction, and commit it (`Mirror.transfer`)."""
        if not self._partitions:
            time.sleep(wait_s)
            return 0
        first = self._fetch(wait_s * 1000)
        if not first.count and not self._has_passed(first.positions):
            return 0
        try:
            return self._transfer(first)
        except InterleavedError:
            _log.info(
                "a transaction is repeated, because another producer wrote to its partitions, or "
                "Kafka refused a record: from now on Kafka is asked for the offset of each record"
            )
            self._asks_for_all = True
            self._open_producer()  # librdkafka may refuse all records after an error of one
            self._forget_fetched()
            self._seek(self._partitions)
            return self.transfer(wait_s)

    def lag(self) -> dict[MirroredPartition, int]:
        """Return the number of offsets in the log that are not mirrored yet, by partition.

        Deleted records count only until the mirror next reads: then it fails, or skips them.
        """
        if not self._partitions:
            return {}
        self._join_reader()
        consumer = self._opened_consumer()
        ends = consumer.end_offsets(list(self._partitions))
        found = {}
        for tp, partition in self._partitions.items():
            position = self.offset_syncs[partition].end(Side.LOG)
            if position is None:
                position = 0 if self._fetched else consumer.position(tp)
            found[partition] = max(0, ends[tp] - position)
        return found

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

    def _limit_batches(self, settings: Iterable[Mapping[str, str]]) -> None:
        """Replace the producer if its batches may be larger than a topic accepts."""
        limits = [int(each.get("max.message.bytes", BATCH_BYTES)) for each in settings]
        limit = min(max(1, min(limits, default=BATCH_BYTES) - _BATCH_OVERHEAD), BATCH_BYTES)
        if limit < self._batch_bytes:
            self._batch_bytes = limit
            self._open_producer()

    def mirrored_partitions(self) -> list[MirroredPartition]:
        """Return the partitions that are mirrored, in the order of topics and partitions."""
        return list(self._partitions.values())

    def _stop_reading(self) -> None:
        if self._consumer is not None:
            self._forget_fetched()
            self._reader.shutdown()
            self._consumer.close()
            self._consumer = None

    def _write(self, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        write_to_kafka(self._kafka, self._opened_producer(), self._settings, records)

    def _open_producer(self) -> None:
        partition = None if self._task is None else self._task.partition
        name = self._settings.transactional_id(Side.KAFKA, partition)
        self._producer = self._kafka.producer(name, self._batch_bytes)

    def _transfer(self, first: _Fetched) -> int:
        producer = self._opened_producer()
        settings = self._settings
        timer = CommitTimer(settings)
        produced: dict[TopicPartition, list[ProducedRows]] = {}
        with kafka_errors():
            producer.begin_transaction()
        try:
            fetched = first
            while True:
                self._produce(fetched, produced)
                timer.add(fetched.count, fetched.size_bytes, is_behind=fetched.count >= _ROWS)
                if (left_s := timer.left_s()) <= 0:
                    break
                fetched = self._fetch(min(_WAIT_MS, left_s * 1000))
            self._read_ahead()
            self._flush()
            runs = self._with_passed(self._runs(produced), fetched.positions)
            with kafka_errors():
                for key, value in (sync_record(*each) for each in runs.items()):
                    producer.produce(settings.offset_sync_topic, value, key, 0)
            self._kafka.commit(producer)
        except BaseException:
            self._abort()
            raise
        self._on_commit(runs, timer.count, timer.size_bytes)
        return timer.count

    def _abort(self) -> None:
        producer = self._opened_producer()
        try:
            producer.purge()
            producer.abort_transaction(TIMEOUT_S)
        except KafkaException as error:  # fenced, or no broker answers: the next mirror aborts it
            IN_PROCESS.add(
                "abort of a transaction in Kafka", self._settings.offset_sync_topic, error
            )

    def _assign(self, wanted: set[TopicPartition]) -> None:
        """Read these partitions. New ones are read from their mirrored end, or from their start."""
        if wanted == self._partitions.keys():
            return
        consumer = self._opened_consumer()
        self._forget_fetched()
        self._partitions = {
            tp: self._settings.partition(tp.topic, tp.partition, Side.LOG) for tp in sorted(wanted)
        }
        consumer.assign(list(self._partitions))
        self._seek(self._partitions)

    def _seek(self, partitions: dict[TopicPartition, MirroredPartition]) -> None:
        consumer = self._opened_consumer()
        for tp, partition in partitions.items():
            end = self.offset_syncs[partition].end(Side.LOG)
            if end is None:
                consumer.seek_to_beginning(tp)
            else:
                consumer.seek(tp, end)

    def _positions(self) -> dict[MirroredPartition, int]:
        consumer = self._opened_consumer()
        return {each: consumer.position(tp) for tp, each in self._partitions.items()}

    def _fetch(self, wait_ms: float) -> _Fetched:
        """Return the next records, read ahead or read now."""
        self._join_reader()
        if self._fetched:
            return self._fetched.popleft()
        return self._read(wait_ms)

    def _read(self, wait_ms: float) -> _Fetched:
        table = self._poll(wait_ms)
        rows = list(rows_by_partition(table))
        return _Fetched(rows, table.num_rows, table.nbytes, self._positions())

    def _read_ahead(self) -> None:
        """Read in another thread while this one waits for Kafka without the interpreter lock."""
        if self._ahead is None and not self._fetched:
            self._ahead = self._reader.submit(self._read_some)

    def _read_some(self) -> list[_Fetched]:
        found: list[_Fetched] = []
        while sum(each.size_bytes for each in found) < _AHEAD_BYTES:
            fetched = self._read(0)
            if not fetched.count:
                break
            found.append(fetched)
        return found

    def _join_reader(self) -> None:
        """Wait until the other thread has finished reading; keep its records."""
        if self._ahead is not None:
            ahead, self._ahead = self._ahead, None
            self._fetched.extend(ahead.result())

    def _forget_fetched(self) -> None:
        """Drop the records that were read ahead; the caller has to seek to read them again."""
        if self._ahead is not None:
            wait([self._ahead])
            self._ahead = None
        self._fetched.clear()

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

    def _produce(
        self, fetched: _Fetched, produced: dict[TopicPartition, list[ProducedRows]]
    ) -> None:
        """Produce records, and add the produced rows, by partition, to ``produced``."""
        producer = self._opened_producer()
        for rows in fetched.rows:
            tp = rows.topic_partition
            topic = self._partitions[tp].kafka_topic
            try:
                done = produce_rows(producer, topic, rows, asks_for_all=self._asks_for_all)
            except KafkaException as raised:
                raise as_own_error(self._cause(raised.args[0])) from None
            produced.setdefault(tp, []).append(done)
            with kafka_errors():
                producer.poll(0)

    def _cause(self, error: KafkaError) -> KafkaError:
        """Return the reason of the producer's fatal error, which producing does not show."""
        if error.code() == KafkaError._FATAL:
            try:
                self._opened_producer().abort_transaction(TIMEOUT_S)
            except KafkaException as raised:
                cause: KafkaError = raised.args[0]
                return cause
        return error

    def _flush(self) -> None:
        with kafka_errors():
            left = self._opened_producer().flush(TIMEOUT_S * 4)
        if left:
            raise KafkaTimeoutError(
                f"Kafka did not acknowledge {left} records in {TIMEOUT_S * 4:.0f} s; try again"
            )

    def _runs(self, produced: dict[TopicPartition, list[ProducedRows]]) -> Runs:
        """Return the runs of each partition, after all records were acknowledged.

        Raises:
            InterleavedError: the offsets of some records are not known.
        """
        runs = {}
        for tp, parts in produced.items():
            try:
                kafka_offsets = [part.kafka_offsets() for part in parts]
            except InvalidRecordError as error:
                topic = self._partitions[tp].kafka_topic
                raise type(error)(f"{topic}-{tp.partition}: {error.message}") from None
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
