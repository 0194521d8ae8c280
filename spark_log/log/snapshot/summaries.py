"""Summaries of a partition's segments, kept so that segments need not be opened again."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from spark_log.log.cache_budget import LOG_CACHES, LogCache
from spark_log.log.directory import PartitionDirectory
from spark_log.log.files import LiveSegment, SegmentName
from spark_log.log.segment import SegmentReader, SegmentSummary, StagedSegment
from spark_log.record import BatchHeader, latest_delete_horizon_us, unpack_headers

_PLAIN: Final = struct.Struct("<qqqqqi")
"""End offset, records, bytes, smallest and largest timestamp, and the length of the headers. Behind
them are the headers and the append id."""

_NO_TIME: Final = -(2**63)
"""The smallest timestamp of a segment whose smallest timestamp is not known."""

_PLAIN_BYTES: Final = 160
"""Approximate memory of a plain segment without its packed fields: key, object, dictionary."""

_REWRITTEN_BYTES: Final = 600
"""Approximate memory of a rewritten segment, without its headers. A log has few of them."""

_Key = int | SegmentName
"""The base offset of a plain segment, the name of a rewritten one."""

_Entry = bytes | tuple[SegmentSummary, bytes]
"""A plain segment's packed fields; or a rewritten one's summary and packed headers."""


class SegmentSummaries(LogCache):
    """The known segment summaries of one partition, and the headers of recent appends.

    Segments never change, so a summary is valid as long as its file exists. An append leaves about
    300 bytes here, until its segment is merged or deleted (`log.cache_budget`).
    """

    def __init__(self, directory: PartitionDirectory) -> None:
        self._directory = directory
        self._share = LOG_CACHES.share(self)
        self._entries = _Entries()

    def drop(self) -> None:
        """Forget all summaries and headers."""
        self._entries = _Entries()

    def known(self, segment: LiveSegment) -> SegmentSummary | None:
        """Return the summary of a listed segment; None if it is not known."""
        entry = self._entries.get(_key(segment.name))
        if entry is None:
            return None
        summary, _ = _unpack(segment.name, entry)
        return summary if summary.size_bytes == segment.file.size_bytes else None

    def get(
        self, segment: LiveSegment, observed_ms: float, reader: SegmentReader | None = None
    ) -> SegmentSummary:
        """Return the summary of a listed segment. Opens the segment if the summary is not known.

        Args:
            segment: a segment of the listing.
            observed_ms: monotonic time before the listing began.
            reader: the segment's reader if it is open; else None.

        Raises:
            NotFoundError: the segment was deleted, or may have been.
            CorruptRecordError: the segment is damaged.
        """
        known = self.known(segment)
        return known or self._open(segment, observed_ms, reader)[0]

    def known_headers(self, segment: LiveSegment) -> tuple[int, Sequence[BatchHeader]] | None:
        """Return end offset and batch headers of a listed segment that was appended recently.

        Returns:
            The end offset and the headers; None if they are not known.
        """
        entry = self._entries.get(_key(segment.name))
        if entry is None:
            return None
        summary, headers = _unpack(segment.name, entry)
        if not headers or summary.size_bytes != segment.file.size_bytes:
            return None
        return summary.end_offset, unpack_headers(headers)

    def headers(
        self, segment: LiveSegment, observed_ms: float, reader: SegmentReader | None = None
    ) -> tuple[int, Sequence[BatchHeader]]:
        """Return end offset and batch headers of a listed segment; keep its summary.

        Opens the segment unless it was appended recently.

        Args:
            segment: a segment of the listing.
            observed_ms: monotonic time before the listing began.
            reader: the segment's reader if it is open; else None.

        Raises:
            NotFoundError: the segment was deleted, or may have been.
            CorruptRecordError: the segment is damaged.
        """
        known = self.known_headers(segment)
        if known is not None:
            return known
        summary, headers = self._open(segment, observed_ms, reader)
        return summary.end_offset, headers

    def _open(
        self, segment: LiveSegment, observed_ms: float, reader: SegmentReader | None
    ) -> tuple[SegmentSummary, Sequence[BatchHeader]]:
        reader = self._directory.open_listed(segment, observed_ms, reader)
        headers = [header for _, found in reader.all_headers() for header in found]
        self._directory.check_unchanged(reader, observed_ms)
        known = self.known(segment)
        if known is not None:
            return known, headers
        summary = SegmentSummary.of_headers(segment.name, reader, headers)
        self._keep(summary)
        return summary, headers

    def read_delete_horizon(self, segment: LiveSegment, observed_ms: float) -> int:
        """Read a segment's delete horizon from its headers, and add it to its summary.

        Args:
            segment: a segment of a listing.
            observed_ms: monotonic time before the listing began.

        Raises:
            NotFoundError: the segment was deleted, or may have been.
            CorruptRecordError: the segment is damaged.
        """
        reader = self._directory.open_listed(segment, observed_ms)
        headers = [header for _, found in reader.all_headers() for header in found]
        self._directory.check_unchanged(reader, observed_ms)
        horizon_us = latest_delete_horizon_us(headers)
        known = self.known(segment) or SegmentSummary.of_headers(segment.name, reader, headers)
        self._keep(replace(known, delete_horizon_us=horizon_us))
        return horizon_us

    def on_own_append(self, segment: StagedSegment, base_offset: int) -> None:
        """Add a segment that was put at an offset, with its headers."""
        fields = (
            base_offset + segment.record_count,
            segment.record_count,
            segment.size_bytes,
            segment.min_timestamp_us,
            segment.max_timestamp_us,
        )
        entries = self._entries
        entries.put(base_offset, _packed(fields, segment.packed_headers, segment.append_id))
        self._share.hold(entries.size_bytes)

    def on_appended(self, summary: SegmentSummary, headers: tuple[BatchHeader, ...]) -> None:
        """Add a segment that was appended, with its headers."""
        self._keep(summary, headers)

    def on_opened(self, name: SegmentName, reader: SegmentReader) -> None:
        """Add a segment that was opened and read whole, with its headers."""
        headers = tuple(header for _, found in reader.all_headers() for header in found)
        self.on_appended(SegmentSummary.of_headers(name, reader, headers), headers)

    def on_rewritten(self, summary: SegmentSummary, covered: Iterable[SegmentName] = ()) -> None:
        """Add a segment that a merge wrote.

        Args:
            summary: the merged segment's summary.
            covered: the segments that it replaces. They are no longer part of the log.
        """
        for name in covered:
            self._entries.remove(_key(name))
        self._keep(summary)

    def load(self, summaries: Iterable[SegmentSummary]) -> None:
        """Add the summaries of a snapshot. Summaries that are known already stay unchanged."""
        self._replace({_key(each.name): _pack(each) for each in summaries} | self._entries)

    def replace(self, live: Mapping[SegmentName, SegmentSummary]) -> None:
        """Keep only the summaries and the headers of these live segments."""
        entries = self._entries
        keys = ((_key(name), summary) for name, summary in live.items())
        self._replace({key: entries.get(key) or _pack(summary) for key, summary in keys})

    def drop_before(self, offset: int, segment_count: int) -> None:
        """Drop headers and summaries that only a snapshot up to ``offset`` needed.

        Args:
            offset: offset of a snapshot that exists.
            segment_count: number of live segments. Summaries before ``offset`` are dropped if
                more than twice this number are kept in all.
        """
        entries = self._entries
        is_full = len(entries) > 2 * segment_count
        kept: dict[_Key, _Entry] = {}
        for key, entry in entries.items():
            is_recent = (key if isinstance(key, int) else key.base_offset) >= offset
            if is_recent or not is_full:
                kept[key] = entry if is_recent else _without_headers(entry)
        self._replace(kept)

    def _keep(self, summary: SegmentSummary, headers: Sequence[BatchHeader] = ()) -> None:
        entries = self._entries
        entries.put(_key(summary.name), _pack(summary, headers))
        self._share.hold(entries.size_bytes)

    def _replace(self, entries: dict[_Key, _Entry]) -> None:
        self._entries = kept = _Entries(entries)
        self._share.hold(kept.size_bytes)


class _Entries(dict[_Key, _Entry]):
    """The summaries and kept headers of segments, and their approximate memory."""

    def __init__(self, entries: Mapping[_Key, _Entry] | None = None) -> None:
        super().__init__(entries or {})
        self.size_bytes = sum(map(_size, self.values()))

    def put(self, key: _Key, entry: _Entry) -> None:
        self.remove(key)
        self[key] = entry
        self.size_bytes += _size(entry)

    def remove(self, key: _Key) -> None:
        entry = self.pop(key, None)
        if entry is not None:
            self.size_bytes -= _size(entry)


def _key(name: SegmentName) -> _Key:
    return name.base_offset if name.last_offset is None else name


def _size(entry: _Entry) -> int:
    """Return the approximate memory of an entry."""
    if isinstance(entry, bytes):
        return len(entry) + _PLAIN_BYTES
    return len(entry[1]) + _REWRITTEN_BYTES


def _pack(summary: SegmentSummary, headers: Sequence[BatchHeader] = ()) -> _Entry:
    packed = b"".join([each.pack() for each in headers])
    if summary.name.last_offset is not None:
        return summary, packed
    least_us = summary.min_timestamp_us
    fields = (
        summary.end_offset,
        summary.record_count,
        summary.size_bytes,
        _NO_TIME if least_us is None else least_us,
        summary.max_timestamp_us,
    )
    return _packed(fields, packed, summary.append_id)


def _packed(fields: tuple[int, int, int, int, int], headers: bytes, append_id: str) -> bytes:
    """Return the entry of a plain segment.

    Args:
        fields: end offset, records, bytes, smallest and largest timestamp.
        headers: the packed headers; empty if they are not kept.
        append_id: the segment's append id.
    """
    return b"".join([_PLAIN.pack(*fields, len(headers)), headers, append_id.encode()])


def _unpack(name: SegmentName, entry: _Entry) -> tuple[SegmentSummary, bytes]:
    """Return the summary of a segment, and its packed headers; empty if they are not known."""
    if not isinstance(entry, bytes):
        return entry
    end_offset, records, size_bytes, least_us, max_us, headers_bytes = _PLAIN.unpack_from(entry)
    behind = _PLAIN.size + headers_bytes
    known_us = None if least_us == _NO_TIME else least_us
    append_id = entry[behind:].decode()
    summary = SegmentSummary(name, end_offset, records, size_bytes, known_us, max_us, append_id)
    return summary, entry[_PLAIN.size : behind]


def _without_headers(entry: _Entry) -> _Entry:
    if not isinstance(entry, bytes):
        return entry[0], b""
    *others, headers_bytes = _PLAIN.unpack_from(entry)
    if not headers_bytes:
        return entry
    return _PLAIN.pack(*others, 0) + entry[_PLAIN.size + headers_bytes :]
