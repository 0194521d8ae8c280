"""The record batches of a segment file, each with its header and whether it is valid."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from pyarrow import ipc, parquet

from spark_log.errors import CorruptRecordError
from spark_log.log import FetchedRecords, SegmentReader
from spark_log.log.files import SegmentName
from spark_log.record import OFFSET_DELTA_FIELD, BatchHeader, batch_crc32c, ints_of
from spark_log.storage import open_store

_PARTITION_DIRECTORY: Final = re.compile(
    r".*/(?P<topic>[^/]+)\.(?P<topic_id>[\w-]{22})/(?P=topic)[^/]*-(?P<partition>\d+)(\.\d+)?"
)


@dataclass(frozen=True, slots=True)
class BatchDump:
    """One record batch of a segment file; it may be damaged.

    Attributes:
        position: the byte position of its Arrow block in the file.
        size_bytes: the size of the block, which may hold several batches.
        compression: the compression of the block: none, lz4 or zstd.
        header: the batch's header; None if it cannot be read.
        records: the records; None if they do not match the header.
        problem: the fault of the batch; None if it is valid.
    """

    position: int
    size_bytes: int
    compression: str
    header: BatchHeader | None
    records: FetchedRecords | None
    problem: str | None


class SegmentDump:
    """A segment file in any directory. A damaged batch does not hide the batches after it.

    Attributes:
        name: the name of the segment.
        topic_id: the id of its topic, from its directory, or else from the file.
        partition: the number of its partition, from its directory, or else from the file.
        size_bytes: the size of the file.
    """

    def __init__(self, path: Path, name: SegmentName) -> None:
        """Open the file and read its footer.

        Raises:
            CorruptRecordError: the file is not a segment, or its footer is damaged.
        """
        path = path.absolute()
        store = open_store(path.parent.parent)
        self.name = name
        content = store.open_buffer(f"{path.parent.name}/{name.file_name}")
        self.topic_id, self.partition = _owner(path, name, content)
        # Its error is more precise than pyarrow's about why a file is not a segment.
        self._reader = SegmentReader(
            store, path.parent.name, name, topic_id=self.topic_id, partition=self.partition
        )
        self.size_bytes = self._reader.size_bytes
        self.append_id = self._reader.append_id

    @property
    def base_offset(self) -> int:
        """The first offset of the segment, from the name of the file."""
        return self.name.base_offset

    def headers(self) -> Iterator[tuple[int, tuple[BatchHeader, ...]]]:
        """Yield the position of each block with its headers, without decoding records.

        Raises:
            CorruptRecordError: a header cannot be read.
        """
        return self._reader.all_headers()

    def batches(self) -> Iterator[BatchDump]:
        """Yield every batch in the order of the file, with its checksum verified."""
        # Offset delta at which the next batch must begin; unknown after a damaged batch, and in a
        # compacted or merged file.
        is_plain = self.name.last_offset is None
        following = 0 if is_plain else None
        for ordinal in range(self._reader.batch_count):
            block = self._reader.block(ordinal)
            size_bytes = block.metadata_bytes + block.body_bytes
            codec = "unknown"
            try:
                codec = self._reader.compression(ordinal)
                headers = self._reader.headers(ordinal)
            except CorruptRecordError as error:
                reason = problem_of(error)
                yield BatchDump(block.position, size_bytes, codec, None, None, reason)
                following = None
                continue
            rows, problem = self._decode(ordinal)
            row = 0
            for header in headers:
                records, wrong = None, problem
                if rows is not None:
                    part = rows.slice(row, header.record_count)
                    wrong = batch_problem(header, part, following)
                    records = None if wrong else self._fetched(header, part)
                yield BatchDump(block.position, size_bytes, codec, header, records, wrong)
                row += header.record_count
                following = header.last_offset_delta + 1 if is_plain and not wrong else None

    def _decode(self, ordinal: int) -> tuple[pa.RecordBatch | None, str | None]:
        try:
            return self._reader.read_batch(ordinal, check_crcs=False)[1], None
        except CorruptRecordError as error:
            return None, problem_of(error)

    def _fetched(self, header: BatchHeader, rows: pa.RecordBatch) -> FetchedRecords:
        if OFFSET_DELTA_FIELD.name in rows.schema.names:
            deltas = ints_of(rows.column(OFFSET_DELTA_FIELD.name), np.int32).astype(np.int64)
        else:
            deltas = np.arange(header.base_offset_delta, header.last_offset_delta + 1)
        return FetchedRecords(
            self.partition,
            self.base_offset + deltas,
            rows,
            header.timestamp_type,
            header.leader_epoch,
        )


def _owner(path: Path, name: SegmentName, segment: pa.Buffer) -> tuple[str, int]:
    """Return the topic id and partition of a segment, by its directory or else by its metadata."""
    place = _PARTITION_DIRECTORY.fullmatch(str(path.parent))
    if place is not None:
        return place["topic_id"], int(place["partition"])
    try:
        if name.is_parquet:
            metadata = parquet.read_metadata(pa.BufferReader(segment)).metadata or {}
        else:
            metadata = ipc.open_file(segment).schema.metadata or {}
        topic_id = metadata.get(b"spark_log.topic_id", b"").decode()
        return topic_id, int(metadata.get(b"spark_log.partition", b"0"))
    except (OSError, ValueError, pa.ArrowException):
        return "", 0


def batch_problem(header: BatchHeader, rows: pa.RecordBatch, base_delta: int | None) -> str | None:
    """Return the fault of a batch; None if it is valid.

    Args:
        header: the header of the batch.
        rows: the records of the batch.
        base_delta: the offset delta at which the batch must begin; None for any.
    """
    if base_delta is not None and header.base_offset_delta != base_delta:
        return (
            f"begins {header.base_offset_delta} offsets into the segment, the one before it ends "
            f"at {base_delta}"
        )
    try:
        actual = batch_crc32c(header, rows)
    except (ValueError, LookupError, pa.ArrowException) as error:
        return f"is inconsistent: {error}"
    if actual != header.crc32c:
        return f"checksum is {actual:#010x}, the batch header says {header.crc32c:#010x}"
    return None


def problem_of(error: CorruptRecordError) -> str:
    """Return the problem without its place in the file, which the dump shows anyway."""
    message = error.message.removeprefix(f"{error.path}, position {error.position}: ")
    return message.partition(". Restore")[0].removeprefix("the record batch ")
