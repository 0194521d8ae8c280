"""The timestamp types of a file's rows, which stand in batch headers and not in a column."""

from __future__ import annotations

from dataclasses import dataclass, replace

from spark_log.errors import NotFoundError
from spark_log.log import PartitionDirectory, SegmentReader
from spark_log.topic_read.plan import FilePart


@dataclass(frozen=True, slots=True)
class TypedPart:
    """A part of a file whose rows all have one timestamp type.

    Attributes:
        part: the part.
        timestamp_type: 0 for create time, 1 for log append time.
    """

    part: FilePart
    timestamp_type: int


def open_file(directory: PartitionDirectory, part: FilePart) -> SegmentReader:
    """Open a file of the table.

    Raises:
        NotFoundError: the file does not exist any more.
        CorruptRecordError: its footer is damaged.
    """
    try:
        return directory.open(part.name, part.size_bytes)
    except NotFoundError as error:
        raise NotFoundError(
            f"{directory.file_path(part.name.file_name)} does not exist any more: it was replaced, "
            f"or its records were deleted, longer than table.deleted.file.retention.ms ago; read "
            f"again, or read a newer version",
            path=error.path,
        ) from error


def typed_parts(reader: SegmentReader, part: FilePart) -> list[TypedPart]:
    """Return the parts of a file by timestamp type, in order.

    A file has two types only if ``message.timestamp.type`` was changed while it was written; its
    batch headers are read then.

    Args:
        reader: the open file.
        part: the part of it that is read.
    """
    types = reader.timestamp_types
    if len(types) < 2:
        return [TypedPart(part, types[0] if types else 0)]
    low = reader.base_offset if part.low is None else part.low
    high = reader.end_offset if part.high is None else part.high
    return [
        TypedPart(replace(part, low=max(low, start), high=min(high, end)), kind)
        for start, end, kind in reader.timestamp_type_ranges()
        if start < high and end > low
    ]
