"""`Mirror`: copies topics from one side to the other, transaction by transaction."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Self

import numpy as np

from spark_log.errors import DataLossError, InvalidConfigurationError, ProducerFencedError
from spark_log.mirror.kafka import KafkaCluster
from spark_log.mirror.mirror_settings import LogAddress, MirrorSettings
from spark_log.mirror.mirrored_partition import MirroredPartition, Side
from spark_log.mirror.offsets import (
    MirrorTask,
    OffsetSyncStore,
    TaskGeneration,
    fence_mirror,
    fence_tasks,
    has_offset_sync_topic,
    read_offset_sync_topic,
    sources_of_others,
    sync_record,
    topic_id_record,
)
from spark_log.types import TopicPartition

_log = logging.getLogger(__name__)

_PRUNED_RUNS: Final = 10_000
"""Minimum number of runs of a partition before its offset syncs are pruned."""


class Mirror(ABC):
    """Copies topics of a source to a target, each record exactly once.

    A transaction of the target contains the records and their offset syncs. If the process is
    killed at any point, the next mirror aborts or completes that transaction, reads the offset
    syncs, and continues after their end. A mirror with the same aliases fences earlier ones.

    A mirror of a single partition is a task of a job (`begin_tasks`).

    Not thread-safe.

    Attributes:
        offset_syncs: the committed offset syncs of all mirrored partitions.
    """

    source: Side

    def __init__(
        self,
        kafka: KafkaCluster,
        log: LogAddress,
        settings: MirrorSettings,
        task: MirrorTask | None = None,
    ) -> None:
        """Return a mirror; neither side is accessed yet.

        Args:
            kafka: the Kafka cluster.
            log: the log.
            settings: the settings of the mirror.
            task: the single partition to mirror; None for all partitions that the settings select.
        """
        self._task = task
        self._kafka = kafka
        self._log = log
        self._settings = settings
        self.offset_syncs = OffsetSyncStore()
        self._records = self._bytes = self._transactions = 0

    @property
    def target(self) -> Side:
        """The side that is written."""
        return self.source.other

    @abstractmethod
    def open(self) -> None:
        """Fence earlier mirrors, find out where to continue, and begin to read ahead."""

    @abstractmethod
    def refresh(self) -> None:
        """Mirror new topics, new partitions and changed settings from now on."""

    def begin_tasks(self) -> list[MirrorTask]:
        """Return one task for each partition, to mirror them at the same time; stop reading.

        The topics and partitions of the target exist already. Pass each task to a mirror of its
        own, in any process. A mirror that is opened later without a task fences all tasks. Call
        `end_tasks` after the tasks have ended.

        Raises:
            ProducerFencedError: another mirror has taken over.
        """
        generation = TaskGeneration.of(self.mirrored_partitions())
        self._stop_reading()
        self._write([generation.record()])
        _log.info(
            "began generation %s of %d tasks, which write to %s",
            generation.generation_id,
            len(generation.partitions),
            self.target.name,
        )
        return [MirrorTask(generation.generation_id, each) for each in generation.partitions]

    def end_tasks(self) -> None:
        """Refuse all tasks that this mirror has begun, so that the next mirror need not fence them.

        Raises:
            ProducerFencedError: another mirror has taken over.
        """
        self._write([TaskGeneration.of(()).record()])

    @abstractmethod
    def _stop_reading(self) -> None:
        """Release the consumer."""

    @abstractmethod
    def _write(self, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Commit keys and values to the offset-sync topic; the value None removes its key."""

    def _check_topics(self, topic_ids: Mapping[str, str]) -> None:
        """Refuse topics of the source that were re-created; store the ids of new ones.

        Args:
            topic_ids: the ids of the mirrored topics, by name.

        Raises:
            DataLossError: the offset syncs belong to a topic that was deleted.
        """
        for topic, topic_id in topic_ids.items():
            if self._topic_ids.get(topic, topic_id) != topic_id:
                side = self.source.name.lower()
                raise DataLossError(
                    f"topic {topic!r} was deleted and created again in the source ({side}), so "
                    f"that its offsets began anew. To mirror the new topic, delete the mirrored "
                    f"one, and give another --{side}-alias; or exclude the topic",
                    topic=topic,
                )
        self._check_not_back(topic_ids)
        new = {each: topic_ids[each] for each in topic_ids if each not in self._topic_ids}
        if new:
            self._write(topic_id_record(*each) for each in new.items())
            self._topic_ids |= new
            _log.info("now mirrored to %s: %s", self.target.name, ", ".join(sorted(new)))

    def _check_not_back(self, topics: Iterable[str]) -> None:
        """Refuse topics of the source that were mirrored from their own topic of the target.

        Their records would return to the topic that they came from. A mirror with the same aliases
        knows such records by the offset syncs; a mirror with other aliases does not.

        Raises:
            InvalidConfigurationError: a mirror with other aliases has written one of the topics.
        """
        known = [each for each in topics if each in self._sources_of_others]
        if not known:
            return
        if self.target is Side.KAFKA:
            ids = self._kafka.topic_ids(known)
        else:
            described = self._log.admin().describe_topics(known, with_offsets=False)
            ids = {each.name: str(each.topic_id) for each in described}
        for topic, topic_id in ids.items():
            if name := self._sources_of_others[topic].get(topic_id):
                _, kafka_alias, log_alias, _ = name.split(".")
                raise InvalidConfigurationError(
                    f"topic {topic!r} was mirrored from the topic that it would be mirrored to, "
                    f"with other aliases: its records would return to the topic that they came "
                    f"from. Give --kafka-alias {kafka_alias} --log-alias {log_alias}, or exclude "
                    f"the topic",
                    key="kafka-alias",
                )

    def _prune(self) -> None:
        """Prune the offset syncs that have become twice as long since the last time."""
        due = [each for each in self.mirrored_partitions() if self._is_due(each)]
        if not due:
            return
        earliest = {
            Side.KAFKA: self._kafka.earliest_offsets(
                TopicPartition(each.kafka_topic, each.partition) for each in due
            ),
            Side.LOG: self._log.earliest_offsets(
                TopicPartition(each.log_topic, each.partition) for each in due
            ),
        }
        pruned: list[tuple[bytes, bytes | None]] = []
        for each in due:
            first = {
                side: earliest[side][TopicPartition(each.topic(side), each.partition)]
                for side in Side
            }
            runs = self.offset_syncs[each].prune((first[Side.KAFKA], first[Side.LOG]), self.target)
            pruned += [(sync_record(each, runs[at : at + 1])[0], None) for at in range(len(runs))]
            self._pruned_sizes[each] = len(self.offset_syncs[each])
        if pruned:
            self._write(pruned)
            _log.debug("pruned %d offset syncs of %d partitions", len(pruned), len(due))

    def _is_due(self, partition: MirroredPartition) -> bool:
        pruned_size = self._pruned_sizes.get(partition, 0)
        return len(self.offset_syncs[partition]) >= max(_PRUNED_RUNS, 2 * pruned_size)

    @abstractmethod
    def mirrored_partitions(self) -> list[MirroredPartition]:
        """Return the partitions that are mirrored, in the order of topics and partitions."""

    @abstractmethod
    def transfer(self, wait_s: float = 0.5) -> int:
        """Copy the records of one transaction, and commit it.

        Args:
            wait_s: the maximum time to wait for the first record.

        Returns:
            The number of records; 0 if none arrived.

        Raises:
            ProducerFencedError: another mirror has taken over.
            DataLossError: records were deleted before they were mirrored.
            SparkLogError: the source or the target failed. The transaction has its whole effect or
                none: open another mirror.
        """

    @abstractmethod
    def lag(self) -> dict[MirroredPartition, int]:
        """Return the number of offsets in the source that are not mirrored yet, by partition."""

    @property
    @abstractmethod
    def is_at_end(self) -> bool:
        """Whether all records that the source had when it was last read are mirrored."""

    @abstractmethod
    def close(self) -> None:
        """Release everything; an open transaction is aborted."""

    def metrics(self, lag: Mapping[MirroredPartition, int] | None = None) -> dict[str, float]:
        """Return metrics since the mirror was opened, by name.

        ``record-count``, ``byte-count`` (keys and values) and ``transaction-count`` count committed
        transactions. ``records-lag`` is the number of offsets that are not mirrored yet, in all
        partitions, and ``records-lag-max`` is the highest number of a single partition.
        ``partition-count`` is the number of mirrored partitions.

        Args:
            lag: the result of `lag`; None to call it.
        """
        lag = self.lag() if lag is None else lag
        return {
            "record-count": self._records,
            "byte-count": self._bytes,
            "transaction-count": self._transactions,
            "records-lag": sum(lag.values()),
            "records-lag-max": max(lag.values(), default=0),
            "partition-count": len(lag),
        }

    def run(
        self,
        is_stopped: Callable[[], bool],
        *,
        refresh_interval_s: float = 30.0,
        until_end: bool = False,
        on_transaction: Callable[[], object] = lambda: None,
        on_refresh: Callable[[], object] = lambda: None,
    ) -> None:
        """Mirror until told to stop.

        Args:
            is_stopped: called between two transactions; returns whether to stop.
            refresh_interval_s: the interval between two calls of `refresh`.
            until_end: whether to stop when everything is mirrored.
            on_transaction: called after each transaction.
            on_refresh: called after each `refresh`, and at the end.

        Raises:
            SparkLogError: the errors of `transfer` and `refresh`.
        """
        refreshed_s = time.monotonic()
        while not is_stopped():
            if self.transfer():
                on_transaction()
            elif until_end and self.is_at_end:
                break
            if time.monotonic() - refreshed_s >= refresh_interval_s:
                self.refresh()
                on_refresh()
                refreshed_s = time.monotonic()
        on_refresh()

    @abstractmethod
    def _open_producer(self) -> None:
        """Create the producer, which fences earlier mirrors with the same transactional id."""

    def _take_over(self) -> None:
        """Fence the mirrors and tasks that this mirror replaces, and read the offset-sync topic.

        The target side is fenced first. If two mirrors of opposite directions begin at the same
        time, one of them fences the other in any case.

        Raises:
            ProducerFencedError: this mirror is a task, and another mirror has begun since.
        """
        kafka, log, settings, task = self._kafka, self._log, self._settings, self._task
        while True:
            self._open_producer()
            if task is not None:
                complete = self.target  # other tasks have open transactions
                found = read_offset_sync_topic(
                    kafka, log, settings.offset_sync_topic, complete=complete
                )
                generation = found.generations.get(self.target)
                if generation is None or generation.generation_id != task.generation_id:
                    raise ProducerFencedError(
                        "another mirror with the same aliases was started after the job of this "
                        "task"
                    )
                break
            sides = [self.target]
            if settings.is_exclusive and has_offset_sync_topic(
                kafka, log, settings.offset_sync_topic, self.source
            ):
                fence_mirror(kafka, log, settings, self.source)
                sides.append(self.source)
            found = read_offset_sync_topic(kafka, log, settings.offset_sync_topic)
            tasks = {side: found.generations.get(side) for side in sides}
            for side, generation in tasks.items():
                if generation is not None and generation.partitions:
                    fence_tasks(kafka, log, settings, side, generation)
            if not any(each is not None and each.partitions for each in tasks.values()):
                break
        name = settings.transactional_id(self.target, None if task is None else task.partition)
        _log.info("mirroring to %s as transactional id %s", self.target.name, name)
        self.offset_syncs = found.offset_syncs
        self._topic_ids = found.topic_ids[self.target]
        self._sources_of_others: Mapping[str, Mapping[str, str]] = {}
        if settings.is_exclusive and task is None:
            own, side = settings.offset_sync_topic, self.source
            self._sources_of_others = sources_of_others(kafka, log, own, side)
        self._pruned_sizes: dict[MirroredPartition, int] = {}

    def _on_commit(
        self, runs: Mapping[MirroredPartition, np.ndarray], count: int, size_bytes: int
    ) -> None:
        """Add a committed transaction to the offset syncs and the metrics."""
        for partition, added in runs.items():
            self.offset_syncs[partition].add(added, self.target)
        self._records += count
        self._bytes += size_bytes
        self._transactions += 1
        _log.debug(
            "committed transaction %d to %s: %d records, %d bytes, %d partitions",
            self._transactions,
            self.target.name,
            count,
            size_bytes,
            len(runs),
        )

    def _with_passed(
        self, runs: dict[MirroredPartition, np.ndarray], positions: Mapping[MirroredPartition, int]
    ) -> dict[MirroredPartition, np.ndarray]:
        """Return the runs of a transaction, with empty runs where reading passed the last record.

        Markers, and aborted or compacted records, take offsets at which a group may have committed.
        In a partition without a mirrored record, for example one that was emptied before, the next
        record will be at the end of the target's partition or after it.

        Args:
            runs: the runs of the transaction's records, by partition.
            positions: the offset up to which the source was read, by partition.
        """
        found = dict(runs)
        passed = [
            each for each in positions if each not in runs and self._is_passed(each, positions)
        ]
        known = {each: self.offset_syncs[each].end(self.target) for each in passed}
        ends = {each: end for each, end in known.items() if end is not None}
        if len(ends) < len(passed):
            ends |= self._target_ends(known.keys() - ends.keys())
        for partition, rows in runs.items():
            if positions.get(partition, -1) > rows[-1, self.source] + rows[-1, 2]:
                ends[partition] = int(rows[-1, self.target] + rows[-1, 2])
        for partition, end in ends.items():
            run = np.zeros((1, 3), np.int64)
            run[0, self.source], run[0, self.target] = positions[partition], end
            found[partition] = np.concatenate((runs[partition], run)) if partition in runs else run
        return found

    def _has_passed(self, positions: Mapping[MirroredPartition, int]) -> bool:
        """Return whether the source was read beyond any partition's offset syncs."""
        return any(self._is_passed(each, positions) for each in positions)

    def _is_passed(
        self, partition: MirroredPartition, positions: Mapping[MirroredPartition, int]
    ) -> bool:
        """Return whether the source was read beyond the end of a partition's offset syncs."""
        end = self.offset_syncs[partition].end(self.source)
        return end is None or positions[partition] > end

    def _target_ends(self, partitions: Iterable[MirroredPartition]) -> dict[MirroredPartition, int]:
        """Return the log end offsets in the target, which no other mirror writes to."""
        side = self._kafka if self.target is Side.KAFKA else self._log
        by_target = {
            TopicPartition(each.topic(self.target), each.partition): each for each in partitions
        }
        return {by_target[tp]: end for tp, end in side.latest_offsets(by_target).items()}

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
