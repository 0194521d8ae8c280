"""A segment that another appender has put: what an appender takes into its state.

An appender that shares a partition with others reads each of their segments, which mostly have few
records.
"""

from __future__ import annotations

from typing import NamedTuple

from spark_log.log.segment.reader import SegmentReader
from spark_log.record import BatchHeader


class AppendedSegment(NamedTuple):
    """A segment at the end of the log, put by another appender.

    Attributes:
        base_offset: its first offset.
        end_offset: the offset after its last.
        size_bytes: the file's size.
        append_id: random id of the file (docs/adr/0003).
        headers: its batch headers; those of its last Arrow batch alone, if no others were wanted.
        has_all_headers: whether ``headers`` are those of all batches.
        compression: ``none``, ``lz4`` or ``zstd``; empty if ``content`` is None.
        content: the columns, as they enter the checksum of the batch, which was checked; None for a
            segment that is not one small batch.
    """

    base_offset: int
    end_offset: int
    size_bytes: int
    append_id: str
    headers: tuple[BatchHeader, ...]
    has_all_headers: bool = True
    compression: str = ""
    content: bytes | None = None

    @property
    def leader_epoch(self) -> int:
        """Leader epoch of the last batch."""
        return self.headers[-1].leader_epoch

    @classmethod
    def of_reader(cls, reader: SegmentReader, *, all_headers: bool) -> AppendedSegment:
        """Return what a reader of a plain segment shows.

        On an object store this may take one request, and one for some hundred batches if all
        headers are wanted.

        Args:
            reader: the segment's reader.
            all_headers: whether the headers of all batches are wanted.

        Raises:
            CorruptRecordError: the segment is damaged.
            StorageError: it cannot be read.
        """
        count = reader.batch_count
        headers = reader.headers(count - 1)
        small = reader.small
        if all_headers and count > 1:
            headers = tuple(header for _, found in reader.all_headers() for header in found)
        return cls(
            reader.base_offset,
            reader.end_offset,
            reader.size_bytes,
            reader.append_id,
            headers,
            all_headers or count == 1,
            compression="" if small is None else small.compression,
            content=None if small is None else small.batch.content,
        )
