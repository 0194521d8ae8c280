"""Which names are spent: no offset of the log is, or ever will be, read from their files.

A pure function of a listing, like `log.live_log`. Cleaners, and the verifier when it repairs, free
nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from spark_log.log.file_names import SegmentName, StartMarker
from spark_log.storage import FileInfo


def spent_segments(
    files: Iterable[FileInfo], appeared_before_us: float = float("inf")
) -> Iterator[SegmentName]:
    """Yield the segments of a listing whose names are spent.

    That a rewritten segment covers them, or a start marker lies above them, is durable, so that
    they are spent for ever. A name may be freed ``file.delete.delay.ms`` after that became so:
    until then writers rely on finding it taken.

    Args:
        files: the listing.
        appeared_before_us: only what is spent since before that time, in microseconds since the
            epoch, by the storage's clock.
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
    """Whether whoever reads any offset of ``name`` that counts reads it from ``rewritten``.

    Nobody reads what lies before the start.
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
