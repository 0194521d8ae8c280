"""A local store that counts requests and bytes written."""

from collections.abc import Iterator
from pathlib import PurePosixPath

import pyarrow as pa

from spark_log.storage import FileInfo, StagedFile
from spark_log.storage.local import LocalStore


class CountingStore(LocalStore):
    """A local store that counts the log's requests.

    Attributes:
        reads: the number of requests for bytes of a file, or for its size.
        listings: the number of requests for the files of a directory.
        appended_bytes: the bytes of segments written by appends.
        rewritten_bytes: the bytes of segments written by merges and compactions.
    """

    def __init__(self, root: str) -> None:
        """Return a store without requests.

        Args:
            root: the URL of the store, which must exist.
        """
        super().__init__(root)
        self.reads = self.listings = self.appended_bytes = self.rewritten_bytes = 0

    def put_if_absent(
        self, path: str, source: bytes | pa.Buffer | StagedFile, *, sync: bool = True
    ) -> None:
        super().put_if_absent(path, source, sync=sync)
        if path.endswith(".log"):
            size_bytes = source.size_bytes if isinstance(source, StagedFile) else len(source)
            # A rewritten segment has both of its offsets in its name.
            if "-" in PurePosixPath(path).name:
                self.rewritten_bytes += size_bytes
            else:
                self.appended_bytes += size_bytes

    def list(self, directory: str, start_after: str | None = None) -> Iterator[FileInfo]:
        self.listings += 1
        return super().list(directory, start_after)

    def read(self, path: str, start: int, length: int) -> pa.Buffer:
        self.reads += 1
        return super().read(path, start, length)

    def read_tail(self, path: str, length: int) -> pa.Buffer:
        self.reads += 1
        return super().read_tail(path, length)

    def open_buffer(self, path: str) -> pa.Buffer:
        self.reads += 1
        return super().open_buffer(path)

    def head(self, path: str) -> FileInfo:
        self.reads += 1
        return super().head(path)

    @property
    def amplification(self) -> float:
        """Number of bytes written for each byte appended."""
        return (self.appended_bytes + self.rewritten_bytes) / self.appended_bytes
