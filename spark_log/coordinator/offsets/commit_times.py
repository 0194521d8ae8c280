"""Commit times by the storage's clock, for rows whose timestamps are wrong.

``commit_timestamp`` is the time of the committing process, whose clock may be days off; an offset
must not expire early because of it. The true commit time is the last-modified time of the commit's
file. Compaction moves rows into newer files. The footer of a compacted file keeps the commit times
of rows with wrong timestamps::

    spark_log.committed_us = [[group, topic id, partition, generation, timestamp, time], …]

Times are microseconds since the epoch. The timestamps never change: they order a group's rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from spark_log.delta import DataFile, DataFiles
from spark_log.record import int_scalar
from spark_log.storage import Store
from spark_log.untrusted_json import parse_json

COMMIT_PREFIX = "commit"
"""Prefix of the names of files that were written by a commit, not by compaction."""

TOLERANCE_US = 60_000_000
"""A timestamp is right if it differs from the commit time by at most this much: commits are retried
for that long, and clocks differ. Offsets expire later by this much than their timestamps say."""

_KEY = "spark_log.committed_us"
_COLUMNS = ["group", "topic_id", "partition", "generation", "commit_timestamp"]


class RowId(NamedTuple):
    """Identifies a row: the timestamps of a group only increase."""

    group: str
    topic_id: str
    partition: int
    generation: int
    stamp_us: int


CommitTimes = Mapping[RowId, int]
"""Rows with wrong timestamps → their commit times by the storage's clock."""


def commit_times(
    store: Store, directory: str, files: DataFiles, present: Iterable[DataFile]
) -> CommitTimes:
    """Return the rows of some files that have wrong timestamps.

    This costs one listing. The files of commits are read, of compacted files only the footers.

    Args:
        store: the store of the table.
        directory: the table's, relative to the store's root.
        files: reads the files.
        present: the files.

    Raises:
        StorageError: a file cannot be read, or is damaged.
    """
    appeared = {file.name: file.modified_us for file in store.list(directory)}
    found: dict[RowId, int] = {}
    for file in present:
        if not file.path.startswith(COMMIT_PREFIX):
            text = files.footer_value(file, _KEY)
            found.update((RowId(*row[:5]), row[5]) for row in parse_json(text or "[]"))
        elif file.path in appeared:
            for part in files.parts(file, columns=_COLUMNS):
                time_us = appeared[file.path]
                found.update((row, time_us) for row in _wrong(part, time_us))
    return found


def row_ids(rows: pa.Table) -> list[RowId]:
    """Return the id of each row."""
    columns = [rows.column(name) for name in _COLUMNS]
    columns[-1] = pc.cast(columns[-1], pa.int64())
    lists = [column.to_pylist() for column in columns]
    return [RowId(*values) for values in zip(*lists, strict=True)]


def to_footer(times: CommitTimes) -> dict[str, str]:
    """Return the key-value metadata for the footer of a file with these rows."""
    return {_KEY: json.dumps([[*row, time_us] for row, time_us in times.items()])} if times else {}


def _wrong(part: pa.Table, time_us: int) -> list[RowId]:
    stamps = pc.cast(part.column("commit_timestamp"), pa.int64())
    first, last = (int_scalar(time_us + sign * TOLERANCE_US, pa.int64()) for sign in (-1, 1))
    is_wrong = pc.or_(pc.less(stamps, first), pc.greater(stamps, last))
    return row_ids(part.filter(is_wrong))
