"""Converts a segment that a compaction wrote as an Arrow file to Parquet (protocol W1, B15).

A topic that is not compacted any more may have such segments from the time when it was. A merge
leaves them alone, so its table would end before the first of them. The Parquet file has the name of
the Arrow file but for the suffix, with the compaction's generation: so the order of compactions
stays as it is, and of the two files the Parquet file counts (protocol L3).

Any process may do this at any time, also late: the file replaces nothing but the Arrow file of the
same compaction, which has the same records. A crash leaves the Arrow file.
"""

from __future__ import annotations

from dataclasses import replace

from spark_log.log.clean.compacted_segment import CompactedSegment, OnProgress
from spark_log.log.directory import LogView
from spark_log.log.files import LiveSegment
from spark_log.log.local_log import LocalLog
from spark_log.log.segment import SegmentSummary


def is_convertible(segment: LiveSegment, log_start_offset: int) -> bool:
    """Return whether a segment is a compaction's Arrow file of which the log has all records.

    Records before the log's start do not count. If another compaction's segment replaces the first
    part, the Parquet file would be no file of the table, whose files do not overlap (protocol B2).
    """
    name = segment.name
    is_whole = segment.start_offset in (name.base_offset, log_start_offset)
    return name.is_compacted and not name.is_parquet and is_whole


def convert_compacted(
    log: LocalLog, view: LogView, index: int, summary: SegmentSummary, on_progress: OnProgress
) -> SegmentSummary:
    """Write a segment as Parquet, from the log's start on; return the summary of the new file.

    Args:
        log: the partition's log, whose topic is a table.
        view: a view of the log.
        index: the index of the segment in ``view.live.segments``; it `is_convertible`.
        summary: the segment's summary.
        on_progress: called with numbers of bytes as they are read and written; may block.

    Raises:
        CorruptRecordError: the segment is damaged.
        NotFoundError: the segment was rewritten or freed; list the log again.
        StorageError: the new segment was not written.
    """
    segment = view.live.segments[index]
    reader = log.files.open_listed(segment, view.observed_ms)
    generation = segment.name.generation
    rewrite = CompactedSegment(log, view, generation, reader.compaction_id or None)
    rewrite.write(
        [(segment.start_offset, reader)],
        reader.size_bytes,
        None,
        on_progress,
        base_offset=segment.name.base_offset,
    )
    reader.forget()
    return replace(
        summary,
        name=replace(segment.name, is_parquet=True),
        record_count=rewrite.records_written,
        size_bytes=rewrite.bytes_written,
        append_id="",
    )
