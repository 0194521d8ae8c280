"""Indexes beside rewritten segments: put with a rewrite; key indexes also later, from the segment.

An index is derived: readers work without it. A crash between the two puts leaves a segment without
one. Indexes are not copied to other replicas: a replica builds its own, as a broker of Kafka does.
The next cleaning builds a missing one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from spark_log.errors import NotFoundError, StorageError
from spark_log.log.directory import PartitionDirectory
from spark_log.log.files import SegmentName
from spark_log.log.key_index import MIN_INDEXED_RECORDS, KeyIndexWriter
from spark_log.log.segment import SegmentReader, SegmentWriter, StagedSegment
from spark_log.record import BatchHeader

if TYPE_CHECKING:
    from spark_log.values import TypedValues

_log = logging.getLogger(__name__)


class IndexedParquetWriter:
    """Writes a Parquet segment, and its key index beside it."""

    def __init__(
        self,
        directory: PartitionDirectory,
        name: SegmentName,
        typed: TypedValues | None = None,
        compaction_id: str | None = None,
    ) -> None:
        """Begin a segment.

        Args:
            directory: the partition's directory.
            name: the segment's name.
            typed: the topic's typed columns; None if it has none.
            compaction_id: random id of the compaction that writes it; None for a merge.

        Raises:
            StorageError: the segment cannot be staged.
        """
        # Late: clients without tables start without it.
        from spark_log.log.segment import ParquetSegmentWriter

        self._directory = directory
        self._name = name
        self._keys = KeyIndexWriter()
        self._writer = ParquetSegmentWriter(
            directory.store,
            directory.path,
            topic_id=directory.topic_id,
            partition=directory.partition,
            name=name,
            compaction_id=compaction_id,
            typed=typed,
        )

    @property
    def size_bytes(self) -> int:
        """Bytes of the segment written so far."""
        return self._writer.size_bytes

    def write_rewritten(self, records: pa.RecordBatch, headers: Sequence[BatchHeader]) -> None:
        """Write batches of the log (`ParquetSegmentWriter.write_rewritten`)."""
        self._writer.write_rewritten(records, headers)
        self._keys.add(records.column("key"), headers)

    def finish(self) -> StagedSegment:
        """Close the file, and return the staged segment (`ParquetSegmentWriter.finish`)."""
        return self._writer.finish()

    def put_key_index(self, segment: StagedSegment) -> None:
        """Write the key index of the segment after it was put.

        An error is counted, and costs only the index.

        Args:
            segment: the segment that `finish` returned.
        """
        _put_key_index(
            self._directory, self._name, self._keys, segment.append_id, self._writer.find_pages
        )

    def discard(self) -> None:
        """Delete the staged file. A segment that was put from it stays."""
        self._keys.discard()
        self._writer.discard()


def put_indexes(
    directory: PartitionDirectory,
    name: SegmentName,
    writer: SegmentWriter | IndexedParquetWriter,
    segment: StagedSegment,
) -> None:
    """Write the indexes of a rewritten segment. An error is counted, and costs only the index.

    Args:
        directory: the partition's directory.
        name: the segment's name.
        writer: the writer that wrote the segment.
        segment: the segment, which was put.
    """
    if isinstance(writer, IndexedParquetWriter):
        writer.put_key_index(segment)
        return
    with directory.suppressed.suppress("index", directory.path, StorageError):
        for derived, data in segment.derived_files(name):
            directory.store.put(directory.file_path(derived), data, sync=False)


def build_key_index(directory: PartitionDirectory, name: SegmentName) -> bool:
    """Build the key index of a segment that has none; return whether it exists now.

    An error is counted, and costs only the index. Memory: as for a rewrite.

    Args:
        directory: the partition's directory.
        name: the segment's name. A segment of few records needs no index.

    Raises:
        CorruptRecordError: the segment is damaged.
    """
    try:
        reader = SegmentReader(
            directory.store,
            directory.path,
            name,
            topic_id=directory.topic_id,
            partition=directory.partition,
        )
        with KeyIndexWriter() as writer:
            if reader.row_statistics().num_rows < MIN_INDEXED_RECORDS:
                return False
            writer.add_segment(reader)
            reader.forget()
            is_put = _put_key_index(directory, name, writer, reader.append_id, reader.find_pages)
    except NotFoundError:  # rewritten and deleted since
        return False
    except (StorageError, OSError) as error:
        directory.suppressed.add("key index", directory.path, error)
        return False
    _log.debug("%s: built the key index of %d records", reader.path, writer.record_count)
    return is_put


def _put_key_index(
    directory: PartitionDirectory,
    name: SegmentName,
    writer: KeyIndexWriter,
    append_id: str,
    find_pages: Callable[[], np.ndarray],
) -> bool:
    """Write the key index of a segment; return whether it exists now.

    An error is counted, and costs only the index.

    Args:
        directory: the partition's directory.
        name: the segment's name.
        writer: the keys of the segment.
        append_id: the append id of the segment.
        find_pages: returns the pages of the segment.
    """
    if writer.row_count < MIN_INDEXED_RECORDS:
        return False
    errors = StorageError, OSError, ValueError, pa.ArrowException
    with directory.suppressed.suppress("key index", directory.path, *errors):
        writer.put(directory.store, directory.path, name, append_id, find_pages())
        return True
    return False
