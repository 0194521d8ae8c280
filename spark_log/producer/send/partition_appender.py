"""One attempt to append batches to a partition, and whether its error can be retried."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final

from spark_log.cluster import Cluster
from spark_log.config import ProducerConfig
from spark_log.errors import (
    InvalidRecordError,
    LogTruncatedError,
    SparkLogError,
    StorageError,
    UnknownOutcomeError,
)
from spark_log.log import (
    ALL,
    LogAppendInfo,
    LogValidator,
    MergeExecutor,
    PartitionLog,
    StagedSegment,
    StagingFailedError,
)
from spark_log.producer.batch import InFlightBatches, PartitionQueue
from spark_log.producer.send.append_errors import TopicDeletedError
from spark_log.producer.send.metadata_lookup import MetadataLookup
from spark_log.producer.send.topic_check import TopicCheck
from spark_log.producer.send.turn import AppendResult, Turn
from spark_log.record import SmallBatch
from spark_log.storage import TRANSIENT_ERRNOS
from spark_log.threads import MergeThread

if TYPE_CHECKING:
    from spark_log.producer.send.stripe_turns import StripeTurns

_log = logging.getLogger(__name__)

_MAX_STAGINGS: Final = 10
"""Maximum number of roots on which one attempt tries to stage its segment, one after the other."""


_Appended = tuple[LogAppendInfo | None, tuple[int | None, ...], int]
"""The first three fields of an `AppendResult`."""


class PartitionAppender:
    """Makes attempts of appends; thread-safe, with one append at a time per partition.

    The partitions of a stripe are appended to by one put (`StripeTurns`).
    """

    def __init__(
        self,
        cluster: Cluster,
        config: ProducerConfig,
        merges: MergeThread | None = None,
    ) -> None:
        """Return an appender for the partitions of a cluster; nothing is opened yet.

        Args:
            cluster: the cluster of the partitions.
            config: the producer's settings.
            merges: the thread that runs the merges of the logs; None: an append that makes a merge
                due runs it, and takes longer.
        """
        self._merge_executor = (
            None if merges is None else MergeExecutor(merges.submit, merges.pause)
        )
        self._merges_make_way: Callable[[], AbstractContextManager[None]] = (
            nullcontext if merges is None else merges.make_way
        )
        self._cluster = cluster
        self._config = config
        self._acks = ALL if config.acks == "all" else 1
        self._topics = TopicCheck(cluster, MetadataLookup(cluster))
        self._stripes: StripeTurns | None = None

    def append(self, turns: Sequence[Turn]) -> None:
        """Append the batches of some partitions, and set the outcome of each.

        Args:
            turns: partitions of one stripe, at least one; or one partition with a log of its own.
        """
        first = turns[0]
        try:
            self._cluster.store.check_root()
            if first.queue.route.stripes:
                self._append_to_stripe(turns)
            else:
                first.outcome = self._append_to_log(first.queue, first.in_flight)
        except Exception as error:
            for turn in turns:
                turn.outcome = turn.outcome or error

    def _append_to_stripe(self, turns: Sequence[Turn]) -> None:
        from spark_log.producer.send.stripe_turns import StripeTurns  # late: few topics have it

        stripes = self._stripes or StripeTurns(
            self._cluster, self._config, self._topics, self._merge_executor
        )
        self._stripes = stripes
        stripes.append(turns)

    def _append_to_log(self, queue: PartitionQueue, in_flight: InFlightBatches) -> AppendResult:
        """Append batches to the log of the partition that the calling thread has acquired.

        Raises:
            TopicDeletedError: the topic was deleted.
            UnknownOutcomeError: the batches may be in the log or not.
            SparkLogError: the batches are not in the log; `is_retriable` says whether to retry.
        """
        began_ms = self._cluster.clock.monotonic_ms()
        log = queue.log or self._open(queue, began_ms)
        try:
            with self._merges_make_way():
                info, log_append_times_us, size_bytes = self._append(log, in_flight)
        except (SparkLogError, OSError) as error:
            topic = queue.route.topic
            if self._topics.is_cause(topic, error):
                if isinstance(error, LogTruncatedError):
                    self._topics.remove_recreated_directory(topic)
                raise TopicDeletedError from error
            raise
        if info is None:
            return AppendResult(None, (), 0)
        image = self._topics.after(
            queue.route.topic, log.config, where=queue, end_observed_ms=queue.end_observed_ms
        )
        queue.on_appended(info, in_flight.producer, began_ms)
        _log.debug(
            "%s: appended offsets %d to %d in %d ms: attempt %d, %d bytes, %s",
            queue,
            info.base_offset,
            info.last_offset,
            self._cluster.clock.monotonic_ms() - began_ms,
            in_flight.attempts,
            size_bytes,
            in_flight.producer,
        )
        return AppendResult(info, log_append_times_us, size_bytes, image)

    def catch_up(self, queue: PartitionQueue) -> None:
        """Bring the other replicas up to the records that were acknowledged with ``acks=1``."""
        if self._acks == ALL or queue.log is None:
            return
        with self._cluster.suppressed.suppress("replication", queue.log.directory, SparkLogError):
            queue.log.catch_up()

    def is_retriable(self, error: Exception) -> bool:
        """Return whether a retry of the same append may succeed."""
        if isinstance(error, SparkLogError) and error.retriable:
            return True
        if isinstance(error, StorageError):
            cause = error.__cause__
            if isinstance(cause, OSError) and cause.errno in TRANSIENT_ERRNOS:
                return True
        # An unmounted root looks like a damaged or missing log.
        return self._is_root_missing()

    def _open(self, queue: PartitionQueue, now_ms: float) -> PartitionLog:
        topic = queue.route.topic
        self._topics.before(topic)
        log = self._cluster.partition_log(
            topic, queue.partition, merge_executor=self._merge_executor
        )
        log.on_log_end(queue.acknowledged_offset)
        queue.use_log(log, now_ms)
        if queue.route.topic is not topic:
            queue.forget_log()  # the topic's configs changed meanwhile
        _log.debug("%s: opened the log %s", queue, log.directory)
        return log

    def _append(self, log: PartitionLog, in_flight: InFlightBatches) -> _Appended:
        """Append batches; if the leader's root fails, stage them at once on the next leader."""
        for _ in range(_MAX_STAGINGS - 1):
            try:
                return self._stage_and_append(log, in_flight)
            except StagingFailedError as error:
                _log.debug("%s: staging failed, try the next leader: %s", log.directory, error)
        return self._stage_and_append(log, in_flight)

    def _stage_and_append(self, log: PartitionLog, in_flight: InFlightBatches) -> _Appended:
        while True:
            staged, log_append_times_us = self._stage(log, in_flight)
            if staged is not None:
                break
            if not in_flight.encoded():
                return None, (), 0
        try:
            info = log.append_segment(staged, acks=self._acks)
            return info, log_append_times_us, staged.size_bytes
        except SparkLogError:
            raise
        except Exception as error:  # a fault of the program, before the put or after it
            raise UnknownOutcomeError(
                f"{log.directory}: it is not known whether an append is in the log: {error!r}",
                path=log.directory,
            ) from error
        finally:
            staged.discard()

    def _stage(
        self, log: PartitionLog, in_flight: InFlightBatches
    ) -> tuple[StagedSegment | None, tuple[int | None, ...]]:
        """Write the records to a segment file; return None if some were refused and dropped."""
        batches = in_flight.encoded()
        if not batches:
            return None, ()
        writer = log.segment_writer(self._config.compression_type, in_flight.producer)
        log_append_times_us: list[int | None] = []
        try:
            for batch in batches:
                try:
                    if isinstance(batch.records, SmallBatch):
                        header = writer.write_small(batch.records)
                    else:
                        header = writer.write(batch.records)
                except InvalidRecordError as error:
                    # If it may be in the log, an earlier attempt has validated all its records.
                    validator = LogValidator(log.config, log.clock)
                    refused = (
                        0 if in_flight.is_outcome_unknown else in_flight.refuse(batch, validator)
                    )
                    if not refused:
                        raise
                    _log.debug("%s: %d records are refused: %s", log.directory, refused, error)
                    writer.discard()
                    return None, ()
                log_append_times_us.append(
                    header.max_timestamp_us if header.timestamp_type else None
                )
            return writer.finish(), tuple(log_append_times_us)
        except BaseException:
            writer.discard()
            raise

    def _is_root_missing(self) -> bool:
        try:
            self._cluster.store.check_root()
        except StorageError as error:
            return error.retriable
        return False
