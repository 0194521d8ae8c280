"""Writing a segment (see `log.segment`): as a stream, in constant memory, before it has a name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
from pyarrow import ipc

from spark_log.errors import (
    InvalidRecordError,
    UnsupportedCompressionTypeError,
)
from spark_log.log.file_names import SegmentName
from spark_log.log.offset_index import offset_index_bytes
from spark_log.log.time_index import time_index_bytes
from spark_log.record.batch_header import (
    METADATA_KEY,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
    encode_headers,
)
from spark_log.record.checksum import batch_crc32c
from spark_log.record.schema import (
    RECORD_SCHEMA,
    segment_schema,
)
from spark_log.storage import StagedFile, Store
from spark_log.storage.store import storage_errors

MAX_SEGMENT_BYTES = 2**32 - 1
"""Positions in the offset index are 32 bits."""

MAX_SEGMENT_RECORDS = 2**31 - 1
"""Offset deltas in a batch header are 32 bits, signed."""


class StagedSegment:
    """A finished segment that has no name yet: staged bytes, and the indexes that go with them.

    Attributes:
        staged: the file.
        append_id: the file's own identity, drawn when it was begun.
        record_count: how many records, and so how many offsets it will take.
        last_header: of its last batch.
    """

    def __init__(
        self,
        staged: StagedFile,
        append_id: str,
        record_count: int,
        last_header: BatchHeader,
        index_bytes: bytes,
        time_index_bytes: bytes,
    ) -> None:
        self.staged = staged
        self.append_id = append_id
        self.record_count = record_count
        self.last_header = last_header
        self._derived = {"index": index_bytes, "time_index": time_index_bytes}

    def derived_files(self, name: SegmentName) -> Iterator[tuple[str, bytes]]:
        """Yield name and content of the index files; none for a small segment."""
        for kind, data in self._derived.items():
            if data:
                yield getattr(name, kind), data


class SegmentWriter:
    """Streams record batches into a staged segment, in constant memory."""

    def __init__(
        self,
        store: Store,
        directory: str,
        *,
        topic_id: str,
        partition: int,
        compression: str = "none",
        index_interval_bytes: int = 4096,
        leader_epoch: int = 0,
    ) -> None:
        self._schema = segment_schema(topic_id, partition)
        self._directory = directory
        self._leader_epoch = leader_epoch
        self._index_interval_bytes = index_interval_bytes
        if compression not in ("none", "lz4", "zstd"):
            raise UnsupportedCompressionTypeError(
                f"compression.type {compression!r} does not exist in Arrow's file format; "
                f"use one of none, lz4, zstd",
                key="compression.type",
            )
        options = ipc.IpcWriteOptions(
            compression=None if compression == "none" else compression, use_threads=False
        )
        self._staged = store.stage(directory)
        try:
            with storage_errors(directory):
                self._writer = ipc.new_file(self._staged.sink, self._schema, options=options)
        except BaseException:
            self._staged.discard()
            raise
        self._next_delta = 0
        self._indexed_up_to = 0
        self._max_timestamp_us: int | None = None
        self._max_timestamp_delta = 0
        self._last_header: BatchHeader | None = None
        self._index: list[tuple[int, int]] = []
        self._time_index: list[tuple[int, int]] = []

    @property
    def record_count(self) -> int:
        """Records written so far."""
        return self._next_delta

    @property
    def size_bytes(self) -> int:
        """Bytes written so far."""
        return self._staged.size_bytes

    def write(
        self,
        records: pa.RecordBatch,
        *,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        attributes: int = 0,
    ) -> BatchHeader:
        """Append one record batch.

        Args:
            records: columns of `RECORD_SCHEMA`, at least one row.
            producer_id: of an idempotent producer.
            producer_epoch: of an idempotent producer.
            base_sequence: the first record's sequence number.
            attributes: the header's bits.

        Raises:
            InvalidRecordError: the columns or their types are not `RECORD_SCHEMA`'s, or no row.
            StorageFullError: nothing of the segment will be visible.
        """
        if not records.num_rows or not records.schema.equals(RECORD_SCHEMA):
            raise InvalidRecordError(
                f"a record batch needs rows and the columns {RECORD_SCHEMA.to_string()}; "
                f"got {records.num_rows} rows of {records.schema.to_string()}"
            )
        timestamps = records.column("timestamp")
        if timestamps.null_count:
            raise InvalidRecordError("a record has no timestamp; every record needs one")
        items = records.column("headers").flatten()
        if items.null_count or items.field(0).null_count:
            raise InvalidRecordError("a record header has no name; every header needs one")
        times_us = timestamps.cast(pa.int64()).to_numpy()
        reached = int(times_us.argmax())
        header = BatchHeader(
            base_offset_delta=self._next_delta,
            last_offset_delta=self._next_delta + records.num_rows - 1,
            leader_epoch=self._leader_epoch,
            attributes=attributes,
            crc32c=0,
            base_timestamp_us=int(times_us[0]),
            max_timestamp_us=int(times_us[reached]),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            record_count=records.num_rows,
        )
        header = replace(header, crc32c=batch_crc32c(header, records))
        position = self._staged.size_bytes
        if (
            self._next_delta + records.num_rows > MAX_SEGMENT_RECORDS
            or position > MAX_SEGMENT_BYTES
        ):
            raise InvalidRecordError(
                f"a segment holds at most {MAX_SEGMENT_RECORDS} records in {MAX_SEGMENT_BYTES} "
                f"bytes; append what is more in another one"
            )
        if position - self._indexed_up_to > self._index_interval_bytes:
            self._add_index_entries(position)
        with storage_errors(self._directory):
            self._writer.write_batch(
                records.replace_schema_metadata(self._schema.metadata),
                custom_metadata={METADATA_KEY: encode_headers([header])},
            )
        if self._max_timestamp_us is None or header.max_timestamp_us > self._max_timestamp_us:
            self._max_timestamp_us = header.max_timestamp_us
            self._max_timestamp_delta = header.base_offset_delta + reached
        self._next_delta += records.num_rows
        self._last_header = header
        return header

    def finish(self) -> StagedSegment:
        """Seal the file and hand it over.

        Raises:
            InvalidRecordError: nothing was written.
            StorageFullError: nothing of the segment will be visible.
        """
        if self._last_header is None:
            raise InvalidRecordError("a segment needs at least one record")
        with storage_errors(self._directory):
            self._writer.close()
            self._staged.seal()
        return StagedSegment(
            self._staged,
            self._schema.metadata[b"spark_log.append_id"].decode(),
            self._next_delta,
            self._last_header,
            offset_index_bytes(self._index),
            time_index_bytes(self._time_index),
        )

    def discard(self) -> None:
        """Give up what was written."""
        self._staged.discard()

    def _add_index_entries(self, position: int) -> None:
        """Index the batch that is about to be written at ``position``."""
        self._index.append((self._next_delta, position))
        latest = self._time_index[-1][0] if self._time_index else None
        assert self._max_timestamp_us is not None
        if latest is None or self._max_timestamp_us > latest:
            self._time_index.append((self._max_timestamp_us, self._max_timestamp_delta))
        self._indexed_up_to = position
