"""Verification of the key index of a compacted Parquet segment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from spark_log.errors import NotFoundError, StorageError
from spark_log.log.directory import PartitionDirectory
from spark_log.log.files import SegmentName
from spark_log.log.key_index import (
    MIN_INDEXED_RECORDS,
    KeyIndex,
    KeyIndexWriter,
    digest_of_rows,
    index_rows,
)
from spark_log.log.segment import SegmentReader
from spark_log.log.verify.finding import LogFinding, LogFindingKind, LogSeverity
from spark_log.record import BatchHeader

_DIGEST_BITS = 2**64


class KeyIndexCheck:
    """Compares the key index of a segment with the segment's records."""

    def __init__(self, directory: PartitionDirectory, name: SegmentName) -> None:
        """Begin without records; touches nothing.

        Args:
            directory: the partition's directory.
            name: the segment's name.
        """
        self._directory = directory
        self._name = name
        self._path = directory.file_path(name.key_index)
        self._is_needed = name.is_parquet and name.is_compacted
        self._digest = 0
        self._records = 0

    def add(self, records: pa.RecordBatch, headers: tuple[BatchHeader, ...]) -> None:
        """Add the records of an Arrow batch of the segment."""
        if self._is_needed:
            rows = index_rows(records, headers, self._name.base_offset)
            self._digest = (self._digest + digest_of_rows(rows)) % _DIGEST_BITS
            self._records += rows.num_rows

    def findings(
        self, reader: SegmentReader, *, is_settled: bool, repair: bool
    ) -> Iterator[LogFinding]:
        """Yield the problem of the index if there is one, after all records were added.

        Args:
            reader: the segment's reader. Its records are sound.
            is_settled: whether the segment is so old that its writer must have put the index.
            repair: whether to build a damaged or missing index anew.

        Raises:
            StorageError: the storage does not answer.
        """
        if not self._is_needed:
            return
        warning = LogSeverity.WARNING
        try:
            problem = self._problem(reader.append_id)
        except NotFoundError:
            if not is_settled or self._records < MIN_INDEXED_RECORDS:
                return
            message = "a look-up of a key reads all keys of the segment instead"
            finding = LogFinding(self._path, LogFindingKind.MISSING_INDEX, warning, message)
        else:
            if problem is None:
                return
            finding = LogFinding(self._path, LogFindingKind.DAMAGED_INDEX, warning, problem)
        yield replace(finding, repaired=repair and self._rebuild(reader))

    def _problem(self, append_id: str) -> str | None:
        directory = self._directory
        try:
            index = KeyIndex(directory.store, directory.path, self._name, append_id)
            found = sum(map(digest_of_rows, index.blocks())) % _DIGEST_BITS
        except ValueError as error:
            return str(error)
        if (index.record_count, found) != (self._records, self._digest):
            return "its records are not those of its segment"
        return None

    def _rebuild(self, reader: SegmentReader) -> bool:
        directory = self._directory
        writer = KeyIndexWriter(directory.store, directory.path, self._name)
        try:
            for ordinal in reader.in_order():
                headers, records = reader.read_batch(ordinal)
                writer.add(records, headers)
            directory.store.delete(self._path)
            writer.put(reader.append_id)
        except (StorageError, OSError) as error:
            directory.suppressed.add("repair", directory.path, error)
            return False
        finally:
            writer.discard()
        return True
