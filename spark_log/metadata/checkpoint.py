"""The checkpoint of the metadata log: its state at the log's end, so that no process replays it.

On storage: ``__witnesses/__cluster_metadata-0``. Each process that changes the metadata replaces
this file after the change. The file is derived data. A missing, damaged or outdated checkpoint
costs time and changes no answer: the log keeps all of its records, and is replayed from the
checkpoint's offset, or from its beginning. The file is also the log's existence
marker (`log.ExistenceMarker`): if the log ends before the checkpoint's offset, files were removed.
A crash between a change and its checkpoint leaves the previous checkpoint.

The file begins with a checksum of the rest, eight hexadecimal digits and a colon. A line of JSON
follows, and then two parts that are compressed with zstd: the records of the state at an earlier
offset, and the records of the log from that offset on. Each part has one record per line. Versions
without checkpoints put only the log's end offset into the file, in digits.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
from google_crc32c import extend

from spark_log.errors import NotFoundError
from spark_log.metadata.image import MetadataImage
from spark_log.metadata.records import from_json
from spark_log.storage import Store
from spark_log.util import parse_json

_MIN_CHANGES_BYTES: Final = 65_536
_CHANGES_SHARE: Final = 4
"""The state is encoded anew when the records after it exceed 1 / `_CHANGES_SHARE` of its size, and
`_MIN_CHANGES_BYTES`. A small change of a large cluster does not encode all of the metadata."""

_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class MetadataCheckpoint:
    """The state after a prefix of the metadata log, as records.

    Attributes:
        cluster_id: the id of the root's cluster; empty if the writer did not know it.
        offset: the log offset after the last record of the prefix.
        last_segment: the base offset of the segment that ends at `offset`.
        state: the records that make the state at an earlier offset, compressed.
        state_bytes: the uncompressed size of these records.
        changes: the values of the log's records from that earlier offset to `offset`.
    """

    cluster_id: str
    offset: int
    last_segment: int
    state: bytes
    state_bytes: int
    changes: tuple[bytes, ...] = ()

    @classmethod
    def of_image(
        cls, image: MetadataImage, offset: int, last_segment: int, cluster_id: str
    ) -> MetadataCheckpoint | None:
        """Return the checkpoint of an image.

        Returns:
            None if the image lacks a part of the log's content, which a newer version of spark-log
            wrote: the checkpoint would lose that part.
        """
        if not image.is_complete:
            return None
        lines = _lines([record.to_json() for record in image.records()])
        return cls(cluster_id, offset, last_segment, _compressed(lines), len(lines))

    def after(
        self, values: Sequence[bytes], last_segment: int, offset: int
    ) -> MetadataCheckpoint | None:
        """Return the checkpoint after further records; None if its state should be encoded anew."""
        changes = (*self.changes, *values)
        most = max(_MIN_CHANGES_BYTES, self.state_bytes // _CHANGES_SHARE)
        if sum(map(len, changes)) > most or any(b"\n" in value for value in values):
            return None
        return replace(self, offset=offset, last_segment=last_segment, changes=changes)

    def image(self) -> MetadataImage:
        """Return the state.

        Raises:
            CorruptRecordError: a newer version of spark-log wrote one of the records.
        """
        image = MetadataImage()
        # The checksum was right, so a writer put these bytes.
        for value in (*_decompressed(self.state).split(b"\n"), *self.changes):
            if value:
                image.replay(from_json(value))
        image.offset = self.offset
        return image

    def to_bytes(self) -> bytes:
        """Return the content of the file."""
        changes = _compressed(_lines(self.changes))
        header = {
            "version": _VERSION,
            "clusterId": self.cluster_id,
            "offset": self.offset,
            "lastSegment": self.last_segment,
            "stateBytes": self.state_bytes,
            "parts": [len(self.state), len(changes)],
        }
        content = b"%b\n%b%b" % (json.dumps(header).encode(), self.state, changes)
        return b"%08x:%b" % (extend(0, content), content)

    @classmethod
    def parse(cls, data: bytes) -> MetadataCheckpoint:
        """Return the checkpoint that a file contains.

        Raises:
            ValueError: the file is damaged, of an older version, or of a newer one.
        """
        checksum, _, content = data.partition(b":")
        if checksum != b"%08x" % extend(0, content):
            raise ValueError("its checksum does not fit")
        line, _, parts = content.partition(b"\n")
        try:
            header = parse_json(line)
            if header["version"] != _VERSION:
                raise ValueError(f"it has version {header['version']}")
            state, changes = header["parts"]
            if len(parts) != state + changes:
                raise ValueError("its length does not fit")
            return cls(
                str(header["clusterId"]),
                int(header["offset"]),
                int(header["lastSegment"]),
                parts[:state],
                int(header["stateBytes"]),
                tuple(filter(None, _decompressed(parts[state:]).split(b"\n"))),
            )
        except (KeyError, TypeError, OSError, pa.ArrowException) as error:
            raise ValueError(f"it is no checkpoint: {error}") from None


def read_checkpoint(store: Store, path: str) -> MetadataCheckpoint | int:
    """Return the checkpoint of the metadata log.

    Returns:
        The checkpoint. Without a valid one, a lower bound of the log end offset: the offset in an
        older version's file, 1 if the file is damaged, 0 without a file.

    Raises:
        StorageError: the storage does not answer.
    """
    try:
        data = store.open_buffer(path).to_pybytes()
    except NotFoundError:
        return 0
    try:
        return MetadataCheckpoint.parse(data)
    except ValueError:
        return int(data) if data.strip().isdigit() else 1


def _lines(values: Sequence[bytes]) -> bytes:
    return b"".join(b"%b\n" % value for value in values)


def _compressed(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue().to_pybytes())


def _decompressed(data: bytes) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        return bytes(stream.read())
