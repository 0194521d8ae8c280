"""`KafkaToLog`: mirrors topics of Kafka into a log."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import pyarrow as pa

from spark_log.errors import DataLossError
from spark_log.log import Lag
from spark_log.mirror.commit_timer import CommitTimer
from spark_log.mirror.kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaPartition,
    Message,
    MessageTable,
    is_end,
    kafka_errors,
    message_tables,
    parts_by_partition,
    settings_for_log,
)
from spark_log.mirror.mirror import Mirror
from spark_log.mirror.mirrored_partition import MirroredPartition, Side
from spark_log.mirror.offsets import create_in_log, find_runs, sync_record, write_to_log
from spark_log.producer import Producer, TableFuture
from spark_log.record import binary_array
from spark_log.types import ConfigResource, ConfigResourceType, NewTopic

_log = logging.getLogger(__name__)

_MESSAGES: Final = 50_000
"""Maximum number of messages in one table."""
_WAIT_S: Final = 0.1
"""Time for which messages are collected for one table."""

Runs = dict[MirroredPartition, np.ndarray]
_Sent = list[tuple[MessageTable, TableFuture]]


class KafkaToLog(Mirror):
    """Reads committed records of Kafka, and writes them as tables in transactions of the log.

    Keys, values, headers and partitions stay the same. Timestamps are those of Kafka, in
    milliseconds, of either timestamp type.
    """

    source = Side.KAFKA

    _producer: Producer | None = None
    _consumer: Consumer | None = None

    def open(self) -> None:
        """Fence earlier mirrors, find out where to continue, and begin to read ahead."""
        settings = self._settings
        create_in_log(self._log, settings.offset_sync_topic)
        self._take_over()
        self._consumer = self._kafka.consumer(
            auto_offset_reset="error" if settings.fail_on_data_loss else "earliest",
            queued_min_messages=500_000,
            queued_max_messages_kbytes=262_144,
            fetch_max_bytes=67_108_864,
            max_partition_fetch_bytes=8_388_608,
        )
        self._partitions: dict[tuple[str, int], MirroredPartition] = {}
        self._ended: dict[MirroredPartition, int] = {}
        self.refresh()

    def refresh(self) -> None:
        """Create new topics and partitions in the log, copy changed settings, and read new ones."""
        if self._task is not None:
            own = self._task.partition
            self._assign({(own.kafka_topic, own.partition)})
            return
        counts = {
            topic: count
            for topic, count in self._kafka.partition_counts().items()
            if self._settings.is_mirrored(topic, Side.KAFKA)
        }
        settings = self._kafka.topic_settings(counts)
        admin = self._log.admin()
        present = {each.name: each for each in admin.describe_topics(with_offsets=False)}
        for topic, count in counts.items():
            target = self._settings.partition(topic, 0, Side.KAFKA).log_topic
            wanted = settings_for_log(settings[topic])
            found = present.get(target)
            if found is None:
                admin.create_topics([NewTopic(target, count, topic_configs=wanted)])
                _log.info("created topic %s in the log with %d partitions", target, count)
                continue
            if len(found.partitions) < count:
                admin.create_partitions({target: count})
                _log.info("topic %s in the log has %d partitions now", target, count)
            changed = {
                key: value for key, value in wanted.items() if found.configs.get(key) != value
            }
            if changed:
                kind = ConfigResourceType.TOPIC
                admin.alter_configs([ConfigResource(kind, target, changed)])
                _log.info("altered settings of topic %s in the log: %s", target, changed)
        self._check_topics(self._kafka.topic_ids(counts))
        self._assign({(topic, number) for topic in counts for number in range(counts[topic])})
        self._prune()

    def transfer(self, wait_s: float = 0.5) -> int:
        """Copy the records of one transaction, and commit it (`Mirror.transfer`)."""
        producer = self._opened_producer()
        first = self._consume(wait_s)
        if not first and not self._has_passed(self._ended):
            return 0
        with producer.transaction():
            sent, timer = self._send(producer, first)
            runs = self._with_passed(self._runs(sent), self._ended)
            if runs:
                records = [sync_record(*each) for each in runs.items()]
                columns = [binary_array(column) for column in zip(*records, strict=True)]
                table = pa.Table.from_arrays(columns, ["key", "value"])
                producer.send_table(self._settings.offset_sync_topic, table, partition=0)
        self._on_commit(runs, timer.count, timer.size_bytes)
        return timer.count

    def lag(self) -> dict[MirroredPartition, int]:
        """Return the number of readable offsets in Kafka that are not mirrored yet, by partition.

        The end offsets are those of the last fetch. A partition that was not fetched yet has no
        lag.
        """
        found = {}
        for (topic, number), partition in self._partitions.items():
            assert self._consumer is not None
            tp = KafkaPartition(topic, number)
            # Both are negative before the first fetch.
            low, high = self._consumer.get_watermark_offsets(tp, cached=True)
            position = self.offset_syncs[partition].end(Side.KAFKA) or 0
            found[partition] = Lag.of(position, low, high).unread
        return found

    @property
    def is_at_end(self) -> bool:
        """Whether all records that Kafka had when it was last read are mirrored."""
        ends = (
            (self._ended.get(each), self.offset_syncs[each]) for each in self._partitions.values()
        )
        return all(end is not None and end >= (runs.end(Side.KAFKA) or 0) for end, runs in ends)

    def close(self) -> None:
        """Release everything; an open transaction is aborted."""
        self._stop_reading()
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    def mirrored_partitions(self) -> list[MirroredPartition]:
        """Return the partitions that are mirrored, in the order of topics and partitions."""
        return [self._partitions[each] for each in sorted(self._partitions)]

    def _stop_reading(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _write(self, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        write_to_log(self._opened_producer(), self._settings, records)

    def _open_producer(self) -> None:
        if self._producer is not None:
            self._producer.close()
        partition = None if self._task is None else self._task.partition
        self._producer = self._log.producer(self._settings.transactional_id(Side.LOG, partition))

    def _opened_producer(self) -> Producer:
        assert self._producer is not None, "open the mirror first"
        return self._producer

    def _assign(self, wanted: set[tuple[str, int]]) -> None:
        """Read these partitions. New ones are read from their mirrored end, or from their start."""
        assert self._consumer is not None
        gone = self._partitions.keys() - wanted
        for each in gone:
            self._ended.pop(self._partitions.pop(each), None)
        added = []
        for topic, number in sorted(wanted - self._partitions.keys()):
            partition = self._settings.partition(topic, number, Side.KAFKA)
            if number not in self._opened_producer().partitions_for(partition.log_topic):
                continue  # the producer will know the partition at the next refresh
            self._partitions[topic, number] = partition
            end = self.offset_syncs[partition].end(Side.KAFKA)
            added.append(KafkaPartition(topic, number, OFFSET_BEGINNING if end is None else end))
        with kafka_errors():
            if gone:
                _log.info("no longer mirrored: %s", sorted(gone))
                self._consumer.incremental_unassign([KafkaPartition(*each) for each in gone])
            if added:
                self._consumer.incremental_assign(added)

    def _consume(self, wait_s: float) -> list[Message]:
        """Return the next records; store the offset at which a partition's end was reached."""
        assert self._consumer is not None
        with kafka_errors():
            messages = self._consumer.consume(_MESSAGES, wait_s)
        if not any(map(Message.error, messages)):
            return messages
        records = []
        for message in messages:
            if message.error() is None:
                records.append(message)
                continue
            self._check_for_loss(message)
            if is_end(message):
                place: Any = message.topic(), message.partition()
                partition = self._partitions.get(place)
                if partition is not None:
                    self._ended[partition] = message.offset() or 0
        return records

    def _check_for_loss(self, message: Message) -> None:
        error: Any = message.error()
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            raise DataLossError(
                f"{message.topic()}-{message.partition()} in Kafka does not have the next offset "
                f"to mirror: records were deleted, or the topic was created again "
                f"({error.str()}). To continue with the records that are left, give "
                f"--no-fail-on-data-loss",
                topic=message.topic() or "",
            )

    def _send(self, producer: Producer, messages: list[Message]) -> tuple[_Sent, CommitTimer]:
        """Send messages, and further messages that arrive in the time of the transaction."""
        timer = CommitTimer(self._settings)
        sent: _Sent = []
        while messages or sent:
            for each in message_tables(messages):
                topic = self._settings.partition(each.topic, 0, Side.KAFKA).log_topic
                sent.append((each, producer.send_table(topic, each.table)))
                timer.add(
                    len(each.offsets), each.table.nbytes, is_behind=len(messages) >= _MESSAGES
                )
            if not messages:
                timer.add(0, 0, is_behind=False)
            if (left_s := timer.left_s()) <= 0:
                break
            messages = self._consume(min(_WAIT_S, left_s))
        return sent, timer

    def _runs(self, sent: _Sent) -> Runs:
        """Wait until all tables are in the log, and return the runs of each partition."""
        by_topic: dict[str, list[tuple[np.ndarray, np.ndarray, np.ndarray]]] = {}
        for each, future in sent:
            order = np.argsort(each.partitions, kind="stable")  # the ranges are by partition
            ranges = [
                np.arange(found.base_offset, found.last_offset + 1) for found in future.result()
            ]
            columns = each.partitions[order], each.offsets[order], np.concatenate(ranges)
            by_topic.setdefault(each.topic, []).append(columns)
        runs: Runs = {}
        for topic, parts in by_topic.items():
            partitions, kafka_offsets, log_offsets = map(np.concatenate, zip(*parts, strict=True))
            for number, rows in parts_by_partition(partitions):
                found_runs = find_runs(kafka_offsets[rows], log_offsets[rows])
                runs[self._partitions[topic, number]] = found_runs
        return runs
