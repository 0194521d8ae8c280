"""Verification of the key index of a Parquet segment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from spark_log.errors import CorruptRecordError, NotFoundError, StorageError
from spark_log.log.directory import PartitionDirectory
from spark_log.log.files import SegmentName
from spark_log.log.key_index import MIN_INDEXED_RECORDS, KeyIndex, KeyIndexWriter
from spark_log.log.segment import SegmentReader
from spark_log.log.verify.finding import LogFinding, LogFindingKind, LogSeverity
from spark_log.record import BatchHeader


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
        self._is_needed = name.is_parquet
        self._keys = KeyIndexWriter()

    def add(self, records: pa.RecordBatch, headers: tuple[BatchHeader, ...]) -> None:
        """Add the records of an Arrow batch of the segment."""
        if self._is_needed:
            self._keys.add(records.column("key"), headers)

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
        with self._keys:
            yield from self._findings(reader, is_settled=is_settled, repair=repair)

    def _findings(
        self, reader: SegmentReader, *, is_settled: bool, repair: bool
    ) -> Iterator[LogFinding]:
        if not self._is_needed:
            return
        warning = LogSeverity.WARNING
        try:
            problem = self._problem(reader)
        except NotFoundError:
            if not is_settled or self._keys.row_count < MIN_INDEXED_RECORDS:
                return
            message = "a look-up of a key reads all keys of the segment instead"
            finding = LogFinding(self._path, LogFindingKind.MISSING_INDEX, warning, message)
        else:
            if problem is None:
                return
            finding = LogFinding(self._path, LogFindingKind.DAMAGED_INDEX, warning, problem)
        yield replace(finding, repaired=repair and self._rebuild(reader))

    def _problem(self, reader: SegmentReader) -> str | None:
        """Return what is wrong with the index.

        An index is a function of its segment, so all of it is compared.
        """
        directory = self._directory
        try:
            index = KeyIndex.open(directory.store, directory.path, self._name, reader.append_id)
            expected = KeyIndex.of_buffer(self._keys.build(reader.append_id, reader.find_pages()))
            found = zip(index.entries(), expected.entries(), strict=True)
            is_same = (
                index.record_count == expected.record_count
                and index.row_count == expected.row_count
                and all(map(np.array_equal, index.tables, expected.tables))
                and all(
                    np.array_equal(hashes, others) and np.array_equal(rows, other_rows)
                    for (hashes, rows), (others, other_rows) in found
                )
            )
        except (ValueError, OSError, CorruptRecordError) as error:
            return str(error)
        return None if is_same else "its entries are not those of its segment"

    def _rebuild(self, reader: SegmentReader) -> bool:
        directory = self._directory
        try:
            with KeyIndexWriter() as writer:
                writer.add_segment(reader)
                directory.store.delete(self._path)
                pages = reader.find_pages()
                writer.put(directory.store, directory.path, self._name, reader.append_id, pages)
        except (StorageError, OSError) as error:
            directory.suppressed.add("repair", directory.path, error)
            return False
        return True
