"""A segment that another appender has put: what an appender takes into its state.

An appender that shares a partition with others reads each of their segments, which mostly have few
records. The file of such a segment has known bytes at all places but a few (`FileTemplate`). So it
is read without a reader for Arrow files, which would take longer than an append.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from spark_log.log.files import SegmentName
from spark_log.log.segment.reader import SegmentReader
from spark_log.record import (
    COLUMN_SUMS_BYTES,
    RECORD_SCHEMA,
    BatchHeader,
    content_crc32c,
    decode_check,
    decode_headers,
    file_template,
)

_MAX_FILE_BYTES = 2 * COLUMN_SUMS_BYTES
"""Size from which a file is not one of a small batch: the batch is smaller than half of it."""


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
        if all_headers and count > 1:
            headers = tuple(header for _, found in reader.all_headers() for header in found)
        return cls(
            reader.base_offset,
            reader.end_offset,
            reader.size_bytes,
            reader.append_id,
            headers,
            all_headers or count == 1,
        )


def read_small_segment(
    file: pa.Buffer, name: SegmentName, topic_id: str, partition: int
) -> AppendedSegment | None:
    """Return the plain segment of one small batch whose whole file was read.

    Args:
        file: the file's bytes.
        name: parsed name of the file.
        topic_id: the topic's id; the file must have the same.
        partition: number of the partition; the file must have the same.

    Returns:
        None for any other file, also for a damaged one: a `SegmentReader` tells what it is.
    """
    if name.last_offset is not None or file.size >= _MAX_FILE_BYTES:
        return None
    try:
        found = file_template(topic_id, partition).read(file.to_pybytes())
        if found is None:
            return None
        append_id, value, check, rows, compression, content = found
        decode_check(check, append_id, value, len(RECORD_SCHEMA))
        headers = decode_headers(value)
    except (ValueError, OSError, pa.ArrowException):
        return None
    (header,) = headers
    last = rows - 1
    if (header.record_count, header.base_offset_delta, header.last_offset_delta) != (rows, 0, last):
        return None
    crc32c = content_crc32c(
        last,
        header.leader_epoch,
        header.attributes,
        header.base_timestamp_us,
        header.max_timestamp_us,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        rows,
        content=content,
    )
    if crc32c != header.crc32c:
        return None
    return AppendedSegment(
        name.base_offset,
        name.base_offset + rows,
        file.size,
        append_id.decode("ascii"),
        headers,
        compression=compression,
        content=content,
    )
