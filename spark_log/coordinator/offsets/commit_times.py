"""When positions were committed by the storage's time, where their stamps say something else.

``commit_timestamp`` is of the clock of whoever committed, which may be days wrong: a position must
not be forgotten early for it. What tells the truth is when the storage showed the file of the
commit. Compaction moves rows into files that are younger: there the footer keeps, for the positions
whose stamps are wrong, when they were committed::

    spark_log.committed_us = [[group, topic id, partition, generation, stamp, time], …]

Times are microseconds since the epoch. Stamps themselves never change: they order a group's rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from spark_log.delta.files import DataFile, DataFiles
from spark_log.storage import Store

COMMIT_PREFIX = "commit"
"""How the name of a file begins that holds commits as they were made, all at one moment."""

TOLERANCE_US = 60_000_000
"""A stamp that is no further from the time when its commit appeared is right: by so much later than
the stamp says a position expires. For so long commits are tried again, and clocks differ."""

_KEY = "spark_log.committed_us"
_COLUMNS = ["group", "topic_id", "partition", "generation", "commit_timestamp"]


class RowId(NamedTuple):
    """What tells a row from all others: stamps of a group only go up."""

    group: str
    topic_id: str
    partition: int
    generation: int
    stamp_us: int


CommitTimes = Mapping[RowId, int]
"""Rows whose stamps are wrong, and when they were committed by the storage's time."""


def commit_times(
    store: Store, directory: str, files: DataFiles, present: Iterable[DataFile]
) -> CommitTimes:
    """Return which rows of some files have wrong stamps. One listing, and the young files.

    Args:
        store: where the table lies.
        directory: the table's.
        files: reads them.
        present: which; of those that were compacted only the footers are read.

    Raises:
        StorageError: they cannot be read, or are damaged.
    """
    appeared = {file.name: file.modified_us for file in store.list(directory)}
    found: dict[RowId, int] = {}
    for file in present:
        if not file.path.startswith(COMMIT_PREFIX):
            text = files.footer_value(file, _KEY)
            found.update((RowId(*row[:5]), row[5]) for row in json.loads(text or "[]"))
        elif file.path in appeared:
            for part in files.parts(file, columns=_COLUMNS):
                time_us = appeared[file.path]
                found.update((row, time_us) for row in _wrong(part, time_us))
    return found


def row_ids(rows: pa.Table) -> list[RowId]:
    """Return what tells each of these rows from others."""
    columns = [rows.column(name) for name in _COLUMNS]
    columns[-1] = pc.cast(columns[-1], pa.int64())
    lists = [column.to_pylist() for column in columns]
    return [RowId(*values) for values in zip(*lists, strict=True)]


def to_footer(times: CommitTimes) -> dict[str, str]:
    """Return what a file's footer keeps."""
    return {_KEY: json.dumps([[*row, time_us] for row, time_us in times.items()])} if times else {}


def _wrong(part: pa.Table, time_us: int) -> list[RowId]:
    stamps = pc.cast(part.column("commit_timestamp"), pa.int64())
    is_wrong = pc.or_(
        pc.less(stamps, time_us - TOLERANCE_US), pc.greater(stamps, time_us + TOLERANCE_US)
    )
    return row_ids(part.filter(is_wrong))
