"""Appends what a task has staged: to each partition log, and to the stripes of striped partitions.

The segments of all partitions of a stripe that a task writes go into few objects: as many segments
share an object as have `MAX_GROUP_BYTES` of records together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from spark_log.config import ProducerConfig
from spark_log.datasource.write.partition_writer import PartitionWriter
from spark_log.errors import SparkLogError
from spark_log.log import LogAppendInfo
from spark_log.storage import OutageWait
from spark_log.threads import Deadline

_DELIVERY_TIMEOUT_MS: Final = ProducerConfig().delivery_timeout_ms
"""Maximum time that an append waits for the storage, the default of Kafka's producers."""


def append_all(writers: Iterable[PartitionWriter]) -> None:
    """Append all segments that writers have staged; wait while the storage does not answer.

    Args:
        writers: the writers, in the order in which they append; each is finished.

    Raises:
        NotRepeatableError: an earlier attempt has appended other records.
        InvalidProducerEpochError: a later micro-batch of the query has written.
        KafkaTimeoutError: ``delivery.timeout.ms`` has passed. The records may be in the log if the
            message says that an outcome is unknown.
        UnknownOutcomeError: it is unknown whether all records are in the log.
        StorageError: some records were not appended.
    """
    groups: dict[object, list[PartitionWriter]] = {}
    for writer in writers:
        groups.setdefault(writer.log.stripe or writer, []).append(writer)
    for group in groups.values():
        _append_group(group)


def _append_group(writers: Sequence[PartitionWriter]) -> None:
    """Append the segments of one partition log, or of the partitions of one stripe.

    Those of a partition are appended one after the other, since each expects the sequence number
    behind the one before.
    """
    wait = OutageWait(
        lambda: Deadline(
            f"appending to {writers[0].log.directory}", "delivery.timeout.ms", _DELIVERY_TIMEOUT_MS
        )
    )
    while waiting := [writer for writer in writers if writer.next_segment is not None]:
        chosen = _of_one_append(waiting)
        failure: SparkLogError | None = None
        for writer, result in zip(chosen, _append(chosen), strict=True):
            if isinstance(result, SparkLogError) and writer.may_append_again(result):
                failure = result
            else:
                writer.settle(result)
        if failure is None:
            wait.end()
        else:
            wait.check(failure)
            wait.pause()


def _of_one_append(waiting: Sequence[PartitionWriter]) -> Sequence[PartitionWriter]:
    """Return the first writers whose next segments may be appended together."""
    size_bytes = 0
    for count, writer in enumerate(waiting):
        size_bytes += writer.next_bytes
        if count and size_bytes > writer.log.max_append_bytes:
            return waiting[:count]
    return waiting


def _append(
    writers: Sequence[PartitionWriter],
) -> Sequence[Sequence[LogAppendInfo] | SparkLogError]:
    """Append the next segment of each writer; return the offsets of its batches, or its error."""
    segments = [
        (writer.log.partition, writer.next_segment)
        for writer in writers
        if writer.next_segment is not None
    ]
    log, stripe = writers[0].log, writers[0].log.stripe
    try:
        if stripe is not None:
            return stripe.append_segments(segments)
        ((_, segment),) = segments
        return [[log.append_segment(segment, acks=writers[0].acks)]]
    except SparkLogError as error:
        return [error] * len(writers)
