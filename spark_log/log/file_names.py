"""The names of files in a partition's directory. What a name says is part of the protocol."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
START_SUFFIX: Final = ".start"
SNAPSHOT_SUFFIX: Final = ".snapshot"
GENERATION_SUFFIX: Final = ".generation"

MAX_MERGE_GENERATION: Final = 1_000_000
"""Generations up to this one are of merges, those above of compactions (`clean.generations`)."""

_SEGMENT = re.compile(r"(\d{20})(?:-(\d{20})\.(\d+))?\.log")
_START = re.compile(r"(\d{20})-(\d{20})\.start")
_SNAPSHOT = re.compile(r"(\d{20})\.snapshot")
_GENERATION = re.compile(r"(\d{10})\.generation")


@dataclass(frozen=True, slots=True)
class SegmentName:
    """What a segment's file name says.

    Attributes:
        base_offset: offset of its first record; in a rewritten segment, of the first one it covers.
        last_offset: the last offset that a rewritten segment covers; None for a plain one, whose
            end stands in its last batch header.
        generation: of a rewritten segment, from 1; 0 for a plain one.
    """

    base_offset: int
    last_offset: int | None = None
    generation: int = 0

    @property
    def is_compacted(self) -> bool:
        """Whether a compaction wrote it: records may be left out of it."""
        return self.generation > MAX_MERGE_GENERATION

    @property
    def stem(self) -> str:
        """The name without ``.log``: what its indexes share."""
        if self.last_offset is None:
            return f"{self.base_offset:020d}"
        return f"{self.base_offset:020d}-{self.last_offset:020d}.{self.generation}"

    @property
    def log(self) -> str:
        """Name of the segment file."""
        return self.stem + LOG_SUFFIX

    @property
    def index(self) -> str:
        """Name of its offset index."""
        return self.stem + INDEX_SUFFIX

    @property
    def time_index(self) -> str:
        """Name of its time index."""
        return self.stem + TIME_INDEX_SUFFIX

    @classmethod
    def parse(cls, name: str) -> SegmentName | None:
        """Return what ``name`` says, or None if it is not a segment's."""
        match = _SEGMENT.fullmatch(name)
        if match is None:
            return None
        base, last, generation = match.groups()
        if last is None:
            return cls(int(base))
        return cls(int(base), int(last), int(generation))


@dataclass(frozen=True, slots=True)
class StartMarker:
    """A log start offset, and the base offset of the plain segment that it lies in."""

    log_start_offset: int
    segment_base_offset: int

    @property
    def name(self) -> str:
        """Name of the marker file."""
        return f"{self.log_start_offset:020d}-{self.segment_base_offset:020d}{START_SUFFIX}"

    @classmethod
    def parse(cls, name: str) -> StartMarker | None:
        """Return what ``name`` says, or None if it is not a start marker's."""
        match = _START.fullmatch(name)
        return None if match is None else cls(int(match[1]), int(match[2]))


def snapshot_name(offset: int) -> str:
    """Return the name of the snapshot of everything before ``offset``."""
    return f"{offset:020d}{SNAPSHOT_SUFFIX}"


def parse_snapshot_name(name: str) -> int | None:
    """Return the offset that a snapshot's name says, or None if it is not a snapshot's."""
    match = _SNAPSHOT.fullmatch(name)
    return None if match is None else int(match[1])


def generation_name(generation: int) -> str:
    """Return the name of the file by which a compaction takes a generation for itself."""
    return f"{generation:010d}{GENERATION_SUFFIX}"


def parse_generation_name(name: str) -> int | None:
    """Return the generation that a name takes, or None if it takes none."""
    match = _GENERATION.fullmatch(name)
    return None if match is None else int(match[1])
