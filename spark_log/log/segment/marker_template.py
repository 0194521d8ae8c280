"""Segments of one transaction marker, whose bytes are copied from an earlier one.

Two such segments differ in append id, topic id, partition, batch header, header check and timestamp
alone. If topic id and partition number have as many characters, each of these values lies at the
same place of the file. So `SegmentWriter` writes the first segment of a process, and every further
one is a copy of its bytes with other values at these places: the bytes that `SegmentWriter` would
write, in a fifth of the time. A transaction puts a marker into each of its partitions.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

from spark_log.log.segment.staged_segment import StagedSegment
from spark_log.record import (
    BatchHeader,
    EndTransactionMarker,
    encode_headers,
    encode_small_check,
    new_append_id,
)
from spark_log.storage import Store, storage_errors

_TIMESTAMP: Final = struct.Struct("<q")
_LENGTH: Final = struct.Struct("<I")

Place = tuple[int, int]
"""The place of a value in a file: position of its first byte, and of the byte after it."""


@dataclass(frozen=True, slots=True)
class MarkerTemplate:
    """The bytes of a segment with one marker, and the places of the values that are its own.

    Attributes:
        data: the bytes of the whole file.
        topic_ids: the places of the topic id.
        partitions: the places of the partition number, as decimal text.
        append_ids: the places of the append id.
        header: the place of the value under `METADATA_KEY`.
        check: the place of the value under `CHECK_KEY`.
        timestamp: the place of the control record's timestamp.
    """

    data: bytes
    topic_ids: Sequence[Place]
    partitions: Sequence[Place]
    append_ids: Sequence[Place]
    header: Place
    check: Place
    timestamp: Place

    @classmethod
    def of(cls, segment: StagedSegment, topic_id: str, partition: int) -> Self | None:
        """Return the template of a staged segment that `SegmentWriter` has written.

        Args:
            segment: the segment, with one marker.
            topic_id: the topic id in its file.
            partition: the partition number in its file.

        Returns:
            None if a value is found more often than it was written, so that its place is not known.

        Raises:
            StorageError: the staged file cannot be read.
        """
        data = segment.load().to_pybytes()
        append_id = segment.append_id.encode()
        (header,) = segment.headers
        value = encode_headers([header])
        check = encode_small_check(append_id, value)
        number = str(partition).encode()
        # A text is preceded by its length and followed by a zero byte, in Arrow's metadata.
        places = [
            _places(data, topic_id.encode()),
            _places(data, number, _LENGTH.pack(len(number)), b"\0"),
            _places(data, append_id),
            _places(data, value),
            _places(data, check),
            _places(data, _TIMESTAMP.pack(header.base_timestamp_us)),
        ]
        # The schema is in the file twice: at its beginning, and in its footer.
        if [len(found) for found in places] != [2, 2, 2, 1, 1, 1]:
            return None
        topic_ids, partitions, append_ids, (in_header,), (in_check,), (in_timestamp,) = places
        return cls(data, topic_ids, partitions, append_ids, in_header, in_check, in_timestamp)

    def fill(self, topic_id: str, partition: int, append_id: str, header: BatchHeader) -> bytearray:
        """Return the bytes of a segment with other values.

        Args:
            topic_id: the topic id, as long as the template's.
            partition: the partition number, with as many digits as the template's.
            append_id: the append id.
            header: the header of the marker's batch, whose record has the template's outcome.
        """
        data = bytearray(self.data)
        value, identity = encode_headers([header]), append_id.encode()
        for places, content in (
            (self.topic_ids, topic_id.encode()),
            (self.partitions, str(partition).encode()),
            (self.append_ids, identity),
            ((self.header,), value),
            ((self.check,), encode_small_check(identity, value)),
            ((self.timestamp,), _TIMESTAMP.pack(header.base_timestamp_us)),
        ):
            for start, end in places:
                data[start:end] = content
        assert len(data) == len(self.data)
        return data


class MarkerTemplates:
    """The templates of a process, by the lengths of their values and by the marker's outcome.

    Safe to use from several threads: a template that two of them make at once is the same.
    """

    def __init__(self) -> None:
        """Begin without templates."""
        self._templates: dict[tuple[int, int, bool], MarkerTemplate] = {}

    def learn(self, segment: StagedSegment, topic_id: str, partition: int) -> None:
        """Keep a template of a segment that `SegmentWriter` has written, if it has one marker.

        Raises:
            StorageError: the staged file cannot be read.
        """
        if len(segment.markers) == 1:
            key = _key(topic_id, partition, segment.markers[0])
            template = MarkerTemplate.of(segment, topic_id, partition)
            if template is not None:
                self._templates[key] = template

    def stage(
        self,
        store: Store,
        directory: str,
        marker: EndTransactionMarker,
        *,
        topic_id: str,
        partition: int,
        leader_epoch: int,
        timestamp_us: int,
    ) -> StagedSegment | None:
        """Stage a segment of one marker; return None if no template fits.

        Args:
            store: the store that will hold the segment.
            directory: the partition's directory, relative to the store's root.
            marker: the marker.
            topic_id: the topic's id.
            partition: number of the partition.
            leader_epoch: the leader epoch in the batch header.
            timestamp_us: timestamp of the control record, microseconds since the epoch.

        Raises:
            StorageError: the segment cannot be staged.
        """
        template = self._templates.get(_key(topic_id, partition, marker))
        if template is None:
            return None
        header = marker.header(0, leader_epoch, timestamp_us)
        append_id = new_append_id()
        data = template.fill(topic_id, partition, append_id, header)
        with storage_errors(directory):
            staged = store.stage(directory)
        try:
            with storage_errors(directory):
                staged.sink.write(data)
                staged.seal()
                return StagedSegment(
                    staged,
                    append_id,
                    1,
                    header,
                    (header,),
                    b"",
                    b"",
                    producer=None,
                    min_timestamp_us=timestamp_us,
                    max_timestamp_us=timestamp_us,
                    staged_for=f"{store.url}/{directory}",
                    compression="none",
                )
        except BaseException:
            staged.discard()
            raise


def _key(topic_id: str, partition: int, marker: EndTransactionMarker) -> tuple[int, int, bool]:
    return len(topic_id), len(str(partition)), marker.is_committed


def _places(data: bytes, value: bytes, before: bytes = b"", after: bytes = b"") -> list[Place]:
    """Return the places of a value that lies between some bytes."""
    found: list[Place] = []
    pattern = before + value + after
    at = data.find(pattern)
    while at >= 0:
        start = at + len(before)
        found.append((start, start + len(value)))
        at = data.find(pattern, at + 1)
    return found
