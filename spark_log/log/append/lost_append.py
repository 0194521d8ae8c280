"""Lost answers: find a segment whose put may or may not have succeeded, and decide on retries."""

from __future__ import annotations

from collections.abc import Collection

from spark_log.errors import NotFoundError, UnknownOutcomeError
from spark_log.log.directory import LogView, PartitionDirectory
from spark_log.log.segment import StagedSegment

_MAX_LOST_ANSWERS = 10
"""Number of lost answers after which an append is given up, and its outcome is unknown."""


def find_in_log(
    directory: PartitionDirectory, segment: StagedSegment, offsets: Collection[int]
) -> tuple[int | None, LogView]:
    """List the log, and search it for a segment by its append id.

    Args:
        directory: the partition's directory.
        segment: the segment that was put.
        offsets: the offsets of its puts.

    Returns:
        The offset of the segment, None if the log does not have it; and a view of the log.

    Raises:
        UnknownOutcomeError: the segment at an offset was rewritten, or deleted at the log's start.
        CorruptRecordError: the end of the log is damaged.
        StorageError: the storage does not answer.
    """
    while True:
        view = directory.observe()
        try:
            here = {
                offset: _stands_at(directory, segment, offset, view) for offset in sorted(offsets)
            }
        except NotFoundError as error:  # rewritten and deleted since
            directory.on_missed(error, view.observed_ms)
            continue
        if None not in here.values():  # else the listing lacks a segment that appeared during it
            return next((offset for offset in here if here[offset]), None), view


def _stands_at(
    directory: PartitionDirectory, segment: StagedSegment, offset: int, view: LogView
) -> bool | None:
    """Return whether a segment is in the log at an offset; None if the view cannot show it.

    Args:
        directory: the partition's directory.
        segment: the segment that was put.
        offset: the offset of the put.
        view: a view of the log, from a listing after the put.

    Raises:
        UnknownOutcomeError: the segment at the offset was rewritten, or deleted at the log's start.
        NotFoundError: the segment at the offset was rewritten and deleted since the listing.
    """
    if offset >= view.log_end_offset:
        return False
    index = view.live.index_of(offset)
    if index < 0 or view.live.segments[index].name.last_offset is not None:
        raise UnknownOutcomeError(
            f"{directory.path}: the answer to an append at offset {offset} was lost, and the "
            f"segment at this offset was merged or deleted before it could be checked. Read from "
            f"{max(offset, view.log_start_offset)} to see whether the records are in the log",
            path=directory.path,
        )
    reader = directory.open(view.live.segments[index].name)
    if reader.end_offset <= offset:
        return None
    return reader.base_offset == offset and reader.append_id == segment.append_id


def check_may_retry(
    lost_answers: int, age_ms: float, *, producer_id_expiration_ms: int, where: str
) -> None:
    """Check that an append may be searched for in the log, and put again if it is missing.

    An append that is too old may not be put again: the log may have forgotten its producer.

    Args:
        lost_answers: number of puts of this append whose answers were lost.
        age_ms: time since the append began.
        producer_id_expiration_ms: ``producer.id.expiration.ms``.
        where: the partition's directory, for the error message.

    Raises:
        UnknownOutcomeError: too many answers were lost, or the append is too old.
    """
    is_late = age_ms >= producer_id_expiration_ms / 2
    if is_late or lost_answers > _MAX_LOST_ANSWERS:
        raise UnknownOutcomeError(
            f"{where}: the answers to {lost_answers} puts of one append were lost within "
            f"{age_ms / 1000:.0f} s",
            path=where,
        )
