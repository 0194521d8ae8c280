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
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_log.delta import DataFile, DataFiles
from spark_log.errors import NotFoundError
from spark_log.record import int_array, ints_of
from spark_log.storage import Store
from spark_log.util import parse_json

COMMIT_PREFIX = "commit"
"""Prefix of the names of files that were written by a commit, not by compaction."""

TOLERANCE_US = 60_000_000
"""A timestamp is right if it differs from the commit time by at most this much: commits are retried
for that long, and clocks differ. Offsets expire later by this much than their timestamps say."""

_ROWS_TOGETHER = 16_384
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

    The files of commits are read as a whole, compacted files only by their footers. On an object
    store one listing returns the times of all commits; on a local disk each file's time is read,
    because the directory also holds the files that were compacted days ago.

    Args:
        store: the store of the table.
        directory: the table's directory, relative to the store's root.
        files: the reader of the table's files.
        present: the files of the table.

    Raises:
        StorageError: a file cannot be read, or is damaged.
    """
    found: dict[RowId, int] = {}
    commits = []
    for file in present:
        if file.path.startswith(COMMIT_PREFIX):
            commits.append(file)
        else:
            text = files.footer_value(file, _KEY)
            found.update((RowId(*row[:5]), row[5]) for row in parse_json(text or "[]"))
    for parts in _some_rows(files, commits, _appeared(store, directory, commits)):
        found.update(_wrong(parts))
    return found


def row_ids(rows: pa.Table) -> list[RowId]:
    """Return the ids of rows, in their order."""
    columns = [rows.column(name) for name in _COLUMNS]
    columns[-1] = pc.cast(columns[-1], pa.int64())
    lists = [column.to_pylist() for column in columns]
    return [RowId(*values) for values in zip(*lists, strict=True)]


def to_footer(times: CommitTimes) -> dict[str, str]:
    """Return the key-value metadata for the footer of a file with these rows."""
    return {_KEY: json.dumps([[*row, time_us] for row, time_us in times.items()])} if times else {}


def _appeared(store: Store, directory: str, commits: Collection[DataFile]) -> dict[str, int]:
    """Return path → the time at which a file was written; deleted files are left out."""
    if not store.is_local:
        wanted = {file.path for file in commits}
        listed = store.list(directory) if commits else ()
        return {file.name: file.modified_us for file in listed if file.name in wanted}
    found = {}
    for file in commits:
        with suppress(NotFoundError):
            found[file.path] = store.head(f"{directory}/{file.path}").modified_us
    return found


def _some_rows(
    files: DataFiles, commits: Iterable[DataFile], appeared: Mapping[str, int]
) -> Iterator[list[tuple[pa.Table, int]]]:
    """Yield rows of files with the time of their commit; many small files are read at once."""
    parts: list[tuple[pa.Table, int]] = []
    num_rows = 0
    for file in commits:
        if (time_us := appeared.get(file.path)) is None:
            continue
        for part in files.parts(file, columns=_COLUMNS):
            parts.append((part, time_us))
            num_rows += part.num_rows
            if num_rows >= _ROWS_TOGETHER:
                yield parts
                parts, num_rows = [], 0
    if parts:
        yield parts


def _wrong(parts: list[tuple[pa.Table, int]]) -> Iterator[tuple[RowId, int]]:
    """Yield the rows whose timestamps are wrong, each with the time of its commit."""
    rows = pa.concat_tables([part for part, _ in parts])
    times_us = np.repeat([time_us for _, time_us in parts], [part.num_rows for part, _ in parts])
    stamps_us = ints_of(rows.column("commit_timestamp").combine_chunks(), np.int64)
    is_early, is_late = stamps_us < times_us - TOLERANCE_US, stamps_us > times_us + TOLERANCE_US
    places = np.flatnonzero(is_early | is_late)
    if len(places):
        wrong = rows.take(int_array(places, pa.int64()))
        yield from zip(row_ids(wrong), times_us[places].tolist(), strict=True)
