"""Rows in a temporary file, for data that has to be sorted and does not fit into memory."""

from __future__ import annotations

import mmap
import os
import tempfile

import pyarrow as pa
from pyarrow import ipc


class TemporaryRows:
    """Rows in an unlinked temporary file, which the system deletes when the process ends.

    Attributes:
        row_count: number of rows that were written.
        size_bytes: their size in memory.
    """

    def __init__(self, schema: pa.Schema, purpose: str) -> None:
        """Create the empty file, in `tempfile.gettempdir`.

        Args:
            schema: the columns of the rows.
            purpose: a word for the file's name.
        """
        self._descriptor, path = tempfile.mkstemp(prefix=f"spark-log-{purpose}-")
        try:
            self._sink = pa.OSFile(path, "wb")
        finally:
            os.unlink(path)
        self._writer = ipc.new_file(self._sink, schema)
        self.row_count = self.size_bytes = 0

    def write(self, rows: pa.RecordBatch) -> None:
        """Append rows."""
        self.row_count += rows.num_rows
        self.size_bytes += int(rows.nbytes)
        self._writer.write_batch(rows)

    def reader(self) -> ipc.RecordBatchFileReader:
        """End writing; return a reader of all rows."""
        self._writer.close()
        self._sink.close()
        mapped = mmap.mmap(self._descriptor, 0, access=mmap.ACCESS_READ)
        return ipc.open_file(pa.py_buffer(mapped))

    def close(self) -> None:
        """Close the file, which deletes it. Arrays that were read stay valid."""
        self._sink.close()
        os.close(self._descriptor)
