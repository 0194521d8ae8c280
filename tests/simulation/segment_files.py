"""Segment files whose footers are parsed once in a simulation, not at each opening."""

from __future__ import annotations

import pyarrow as pa

from spark_log.log.segment import reader
from spark_log.log.segment.file import SegmentFile, mapped_segment_file
from spark_log.storage import Store
from tests.simulation.patches import Patch


class SegmentFiles:
    """The files that the stores of one simulation have shown, by the address of their bytes.

    Simulated files lie in memory, and none is changed in place. Opening one is a step as before.
    """

    def __init__(self) -> None:
        self._files: dict[int, tuple[pa.Buffer, SegmentFile]] = {}

    @property
    def patches(self) -> tuple[Patch, ...]:
        """The patches that let the shipped code open segments by `open`."""
        return ((reader, "open_segment_file", self.open),)

    def open(self, store: Store, path: str, size_bytes: int | None = None) -> SegmentFile:
        """Open a segment file of a store whose files are mapped (`open_segment_file`)."""
        buffer = store.open_buffer(path)
        found = self._files.get(buffer.address)
        if found is None:  # the buffer is kept, so that its address is not used again
            found = self._files[buffer.address] = buffer, mapped_segment_file(store, buffer)
        return found[1]
