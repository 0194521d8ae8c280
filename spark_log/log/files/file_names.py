"""File names in a partition's directory. They carry offsets and are part of the format."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from google_crc32c import extend

LOG_SUFFIX: Final = ".log"
PARQUET_SUFFIX: Final = ".parquet"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
START_SUFFIX: Final = ".start"
SNAPSHOT_SUFFIX: Final = ".snapshot"
GENERATION_SUFFIX: Final = ".generation"

MAX_MERGE_GENERATION: Final = 1_000_000
"""Merges use generations up to this one, compactions use higher ones (`log.clean.generations`)."""

GENERATION_BYTES: Final = 16
"""Size of the file with which a compaction reserves a generation. The file has one more byte
for each generation since the last compaction that read all keys (`log.clean.generations`)."""

_SEGMENT = re.compile(r"(\d{20})(?:\.log|-(\d{20})\.(\d+)\.(log|parquet))")
_START = re.compile(r"(\d{20})-(\d{20})\.start")
_LEADER_EPOCH = re.compile(rb"([0-9a-f]{8}):(leaderEpoch=(-?\d+)\n)")
_SNAPSHOT = re.compile(r"(\d{20})\.snapshot")
_GENERATION = re.compile(r"(\d{10})\.generation")


@dataclass(frozen=True, slots=True)
class SegmentName:
    """The parts of a segment's file name.

    A plain segment, written by an append, is ``<base>.log``. A rewritten segment, written by a
    merge or a compaction, is ``<base>-<last>.<generation>.log``; or, of a topic that is a table
    (``table.format``), ``<base>-<last>.<generation>.parquet``.

    Attributes:
        base_offset: offset of the first record. In a rewritten segment, first offset that it
            covers.
        last_offset: last offset that a rewritten segment covers. None for a plain segment, whose
            last batch header holds it.
        generation: generation of a rewrite, from 1; 0 for a plain segment.
        is_parquet: whether a rewritten segment is a Parquet file; else it is an Arrow file.
    """

    base_offset: int
    last_offset: int | None = None
    generation: int = 0
    is_parquet: bool = False

    @property
    def is_compacted(self) -> bool:
        """Whether a compaction wrote the segment: it may lack records."""
        return self.generation > MAX_MERGE_GENERATION

    @property
    def precedence(self) -> tuple[int, int, int, bool]:
        """Rank of a rewritten segment: an offset is read from the segment of the highest rank.

        The higher generation ranks higher, then the wider segment, then the one that begins first,
        then the Parquet file.
        """
        assert self.last_offset is not None
        width = self.last_offset - self.base_offset
        return self.generation, width, -self.base_offset, self.is_parquet

    @property
    def stem(self) -> str:
        """The name without its suffix. The indexes of an Arrow file have the same stem."""
        if self.last_offset is None:
            return f"{self.base_offset:020d}"
        return f"{self.base_offset:020d}-{self.last_offset:020d}.{self.generation}"

    @property
    def file_name(self) -> str:
        """Name of the segment file."""
        return self.stem + (PARQUET_SUFFIX if self.is_parquet else LOG_SUFFIX)

    @property
    def index_names(self) -> tuple[str, ...]:
        """Names of its index files, which may exist; none of a Parquet file, whose footer tells."""
        return () if self.is_parquet else (self.index, self.time_index)

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
        """Parse a file name; return None if no segment has such a name."""
        match = _SEGMENT.fullmatch(name)
        if match is None:
            return None
        base, last, generation, suffix = match.groups()
        if last is None:
            return cls(int(base))
        return cls(int(base), int(last), int(generation), suffix == "parquet")

    @classmethod
    def parse_index(cls, name: str) -> SegmentName | None:
        """Parse the file name of an index; return None if no index has such a name.

        Returns:
            The name of the index's segment.
        """
        if not name.endswith((INDEX_SUFFIX, TIME_INDEX_SUFFIX)):
            return None
        return cls.parse(name.rpartition(".")[0] + LOG_SUFFIX)


@dataclass(frozen=True, slots=True)
class StartMarker:
    """The parts of a start marker's file name, ``<log start offset>-<segment base>.start``.

    Attributes:
        log_start_offset: first offset that can be read.
        segment_base_offset: base offset of the plain segment that contains this offset.
    """

    log_start_offset: int
    segment_base_offset: int

    @property
    def name(self) -> str:
        """Name of the marker file."""
        return f"{self.log_start_offset:020d}-{self.segment_base_offset:020d}{START_SUFFIX}"

    @classmethod
    def parse(cls, name: str) -> StartMarker | None:
        """Parse a file name; return None if no start marker has such a name."""
        match = _START.fullmatch(name)
        return None if match is None else cls(int(match[1]), int(match[2]))


def encode_leader_epoch(leader_epoch: int) -> bytes:
    """Return the content of a start marker; the last batch before it has this leader epoch."""
    line = b"leaderEpoch=%d\n" % leader_epoch
    return b"%08x:%b" % (extend(0, line), line)


def decode_leader_epoch(content: bytes) -> int | None:
    """Return the leader epoch in a start marker; None if the marker has none, or is damaged."""
    match = _LEADER_EPOCH.fullmatch(content)
    if match is None or match[1] != b"%08x" % extend(0, match[2]):
        return None
    return int(match[3])


def snapshot_name(offset: int) -> str:
    """Return the file name of the snapshot of all records before ``offset``."""
    return f"{offset:020d}{SNAPSHOT_SUFFIX}"


def parse_snapshot_name(name: str) -> int | None:
    """Return the offset in a snapshot's file name; None if no snapshot has such a name."""
    match = _SNAPSHOT.fullmatch(name)
    return None if match is None else int(match[1])


def generation_name(generation: int) -> str:
    """Return the name of the file with which a compaction reserves a generation."""
    return f"{generation:010d}{GENERATION_SUFFIX}"


def parse_generation_name(name: str) -> int | None:
    """Return the generation that a file name reserves; None if no generation's file has it."""
    match = _GENERATION.fullmatch(name)
    return None if match is None else int(match[1])
