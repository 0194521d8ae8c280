"""Removes tombstones from a compacted log to which little or nothing is appended (protocol W12).

A compaction removes the tombstones whose delete horizons have passed. But a log that gets no new
records is never dirty, and is not compacted again (KAFKA-8522). For such a log, a pass removes the
tombstones, and the transaction markers whose delete horizons have passed, without reading keys.

A segment is rewritten only if its *last* delete horizon has passed. Each segment is therefore
rewritten at most once between two compactions, and each tombstone is removed at most
``delete.retention.ms`` after its own horizon. Snapshots have the horizons, so a log without such
segments costs no request.

Clean segments stay clean after a pass (`generations`). A pass needs all clean segments to be the
output of one compaction, as their compaction ids show: otherwise it might remove a tombstone whose
key has an older record in a segment that was copied from another replica. If the ids differ, or if
an earlier version wrote no id, the log is compacted as a whole. A crash leaves the new segments
that were written, and the old ones that were not replaced yet; the next pass replaces them.
"""

from __future__ import annotations

import math
from dataclasses import replace

from spark_log.log.clean.compacted_segment import CompactedSegment, OnProgress
from spark_log.log.clean.compactor import (
    DEDUPE_BUFFER_BYTES,
    CompactionResult,
    batch_filter_of,
    compact,
)
from spark_log.log.clean.generations import take_generation
from spark_log.log.clean.log_to_clean import is_recently_compacted, log_to_clean
from spark_log.log.directory import OpenedSegments, open_in_order
from spark_log.log.local_log import LocalLog
from spark_log.log.segment import MAX_SEGMENT_BYTES


def remove_expired_tombstones(
    log: LocalLog,
    *,
    now_us: int,
    memory_bytes: int = DEDUPE_BUFFER_BYTES,
    on_progress: OnProgress = lambda done_bytes: None,
    limit_offset: float = math.inf,
    opened: OpenedSegments | None = None,
) -> CompactionResult:
    """Remove the tombstones and markers of the clean segments whose delete horizons have passed.

    Nothing is done within ``file.delete.delay.ms`` after the previous compaction or pass. The
    process may be killed at any point, and may run at the same time as all others that `compact`
    may.

    The arguments are those of `compact`. It is called if the log has to be compacted as a whole.

    Raises:
        SparkLogError: See `compact`.
    """
    found, view = log_to_clean(log, log.observe(), now_us=now_us, limit_offset=limit_offset)
    first_dirty = found.first_dirty_offset
    done = CompactionResult(view.log_start_offset, first_dirty, first_dirty)
    if not found.expired or is_recently_compacted(log, view, found, now_us):
        return done
    clean = [each for each in view.live.segments if each.start_offset < first_dirty]
    readers = list(open_in_order(log.files, clean, view.observed_ms, opened))
    ids = {reader.compaction_id for _, reader in readers}
    if len(ids) > 1 or "" in ids:
        if first_dirty > limit_offset:
            return done
        return compact(
            log,
            now_us=now_us,
            memory_bytes=memory_bytes,
            on_progress=on_progress,
            limit_offset=limit_offset,
            opened=opened,
            even_if_clean=True,
        )
    generation = take_generation(log.files, view, keeps_clean=True)
    if generation is None:
        return replace(done, is_complete=False)
    (compaction_id,) = ids
    batch_filter = batch_filter_of(
        log,
        view,
        None,
        first_dirty_offset=first_dirty,
        limit_offset=limit_offset,
        now_us=now_us,
        opened=OpenedSegments(readers),
    )
    expired = {each.name for each in found.expired}
    for segment, reader in readers:
        if segment.name not in expired:
            continue
        rewrite = CompactedSegment(log, view, generation, compaction_id)
        # Not compressed anew: the size without compression is not known, and may be too large.
        group = [(segment.start_offset, reader)]
        rewrite.write(group, MAX_SEGMENT_BYTES, batch_filter, on_progress)
        reader.forget()
        done = done.with_rewritten(rewrite, batch_filter)
    return replace(
        done,
        records_read=sum(each.record_count for each in found.expired),
        bytes_read=found.expired_bytes,
        segments_read=len(found.expired),
    )
