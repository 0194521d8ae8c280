"""`Limits`: from when on the doctor calls something a problem."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """From when on something is a problem.

    Attributes:
        stuck_ms: a group with unread records is stuck if it has committed nothing for so long, and
            the first unread record has been there for as long.
        overdue_ms: how long work of a cleaner may be due: more than a day, since a cleaner may run
            once a day.
        open_transaction_ms: how long a transaction may be open; at least its own timeout.
        small_segments: number of small segments of a partition that could be merged.
        metadata_files: number of files that a process reads behind the metadata's checkpoint.
        patience_ms: a check, or the look at one partition, that has no answer for so long is given
            up.
        findings: findings of one kind that are reported in full; further ones are counted.
        threads: partitions, groups or directories that are read at the same time.
    """

    stuck_ms: int = 600_000
    overdue_ms: int = 129_600_000
    open_transaction_ms: int = 900_000
    small_segments: int = 1_000
    metadata_files: int = 100
    patience_ms: int = 60_000
    findings: int = 100
    threads: int = 16
