"""The spent segments of a log: no reader needs their files, now or later.

A pure function of a listing, like `log.live_log`. Cleaners, and the verifier when it repairs,
delete only segments that are spent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from spark_log.log.file_names import SegmentName, StartMarker
from spark_log.storage import FileInfo


def spent_segments(
    files: Iterable[FileInfo], appeared_before_us: float = float("inf")
) -> Iterator[SegmentName]:
    """Yield the segments of a listing whose names are spent.

    A segment is spent when a rewritten segment covers it, or a start marker is above it. Both are
    durable, so the name stays spent. It may be freed ``file.delete.delay.ms`` after it became
    spent: until then writers rely on finding it taken.

    Args:
        files: the listing.
        appeared_before_us: yield only segments that became spent before this time, in microseconds
            since the epoch, by the storage's clock.
    """
    files = list(files)
    names = [name for file in files if (name := SegmentName.parse(file.name))]
    markers = [marker for file in files if (marker := StartMarker.parse(file.name))]
    old = {file.name for file in files if file.modified_us <= appeared_before_us}
    start = max(markers, key=lambda marker: marker.log_start_offset, default=StartMarker(0, 0))
    rewritten = [name for name in names if name.generation and name.log in old]
    is_start_covered = any(
        name.base_offset <= start.log_start_offset <= (name.last_offset or 0) for name in rewritten
    )
    old_start = max(
        (marker.log_start_offset for marker in markers if marker.name in old), default=0
    )
    for name in names:
        last_offset = name.base_offset if name.last_offset is None else name.last_offset
        is_entry = not name.generation and name.base_offset == start.segment_base_offset
        is_behind = last_offset < old_start and (not is_entry or is_start_covered)
        if is_behind or any(_covers(other, name, old_start) for other in rewritten):
            yield name


def _covers(rewritten: SegmentName, name: SegmentName, start_offset: int) -> bool:
    """Return whether readers read all offsets of ``name`` from ``rewritten``.

    Offsets before the log's start do not count.
    """
    assert rewritten.last_offset is not None
    if name.last_offset is None:
        return rewritten.base_offset <= name.base_offset <= rewritten.last_offset
    return (
        rewritten.base_offset <= max(name.base_offset, start_offset)
        and name.last_offset <= rewritten.last_offset
        and (rewritten.generation, rewritten.last_offset - rewritten.base_offset)
        > (name.generation, name.last_offset - name.base_offset)
    )
