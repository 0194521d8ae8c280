"""A complete segment before it is appended: its file has no name in the log yet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import pyarrow as pa

from spark_log.log.files import SegmentName
from spark_log.log.segment.staged_copies import StagedCopies
from spark_log.record import NO_SEQUENCE, BatchHeader, EndTransactionMarker, ProducerAppend
from spark_log.storage import StagedFile
from spark_log.util import lazy

_NO_COPIES: Final = StagedCopies((), sync=False)


class StagedSegment:
    """A complete segment that has no name yet: a staged file, and the content of its indexes.

    Attributes:
        staged: the staged file.
        staged_for: URL of the directory that it can be put into.
        compression: ``none``, ``lz4`` or ``zstd``.
        size_bytes: the file's size.
        append_id: random id of this file, which it contains (docs/adr/0003).
        record_count: number of records, which is the number of offsets that the segment will take.
        last_header: header of the segment's last batch.
        producer: the producer of an idempotent append; None for another append.
        producers: the producer of each of `headers`, if the segment has the batches of several
            producers, of which any may be None; empty for another segment.
        markers: the transaction markers of a segment of markers; empty for another segment.
        content: the columns of a segment of one small batch (`SmallBatch.content`); None for
            another segment.
        needs_producers: whether the producer state of the log before it decides whether it may be
            appended.
        min_timestamp_us: smallest timestamp of the records, microseconds since the epoch.
        max_timestamp_us: largest timestamp of the records, microseconds since the epoch.
        copies: the copies that are staged on the roots of followers.
    """

    def __init__(
        self,
        staged: StagedFile,
        append_id: str,
        record_count: int,
        last_header: BatchHeader,
        headers: tuple[BatchHeader, ...],
        index_bytes: bytes,
        time_index_bytes: bytes,
        *,
        producer: ProducerAppend | None,
        producers: tuple[ProducerAppend | None, ...] = (),
        markers: tuple[EndTransactionMarker, ...] = (),
        content: bytes | None = None,
        min_timestamp_us: int,
        max_timestamp_us: int,
        staged_for: str,
        compression: str,
        copies: StagedCopies | None = None,
    ) -> None:
        self.staged_for = staged_for
        self.compression = compression
        self.producer = producer
        self.producers = producers
        self.markers = markers
        self.content = content
        self.min_timestamp_us = min_timestamp_us
        self.max_timestamp_us = max_timestamp_us
        self.staged = staged
        self.copies = _NO_COPIES if copies is None else copies
        self.size_bytes = staged.size_bytes
        self.append_id = append_id
        self.record_count = record_count
        self.last_header = last_header
        self._headers = headers
        self.needs_producers = producer is not None or bool(markers) or any(producers)
        self._data: pa.Buffer | None = None
        self._derived = {"index": index_bytes, "time_index": time_index_bytes}

    def load(self) -> pa.Buffer:
        """Return the file's bytes. Once loaded, they stay valid when the staged file is gone.

        Raises:
            StorageError: the staged file cannot be read.
        """
        if self._data is None:
            self._data = self.staged.read_back()
        return self._data

    def take_copies(self) -> StagedCopies:
        """Return the copies, which the caller discards. The segment has none any more."""
        copies, self.copies = self.copies, _NO_COPIES
        return copies

    def discard(self) -> None:
        """Delete the staged file and its copies. What was put stays. Harmless when called twice."""
        self.staged.discard()
        self.copies.discard()

    @lazy
    def headers(self) -> tuple[BatchHeader, ...]:
        """The batch headers for the producer state.

        All headers of a segment of markers, and of one with batches of several producers; else one
        header for all records.
        """
        if self._headers:
            return self._headers
        last = self.last_header
        if not last.base_offset_delta and last.record_count == self.record_count:
            return (last,)
        header = replace(
            last,
            base_offset_delta=0,
            last_offset_delta=self.record_count - 1,
            base_sequence=self.producer.base_sequence if self.producer else NO_SEQUENCE,
            max_timestamp_us=self.max_timestamp_us,
            record_count=self.record_count,
        )
        return (header,)

    @lazy
    def packed_headers(self) -> bytes:
        """`headers`, as `BatchHeader.pack` returns each."""
        return b"".join([header.pack() for header in self.headers])

    @property
    def leader_epoch(self) -> int:
        """Leader epoch of its batches."""
        return self.last_header.leader_epoch

    @property
    def is_barrier(self) -> bool:
        """Whether it is the barrier at the beginning of a leader epoch (protocol R4)."""
        return self.last_header.is_control and not self.last_header.is_transactional

    @property
    def has_indexes(self) -> bool:
        """Whether the segment is large enough to have indexes."""
        return any(self._derived.values())

    def derived_files(self, name: SegmentName) -> Iterator[tuple[str, bytes]]:
        """Yield name and content of the index files. A small segment has none."""
        for kind, data in self._derived.items():
            if data:
                yield getattr(name, kind), data
