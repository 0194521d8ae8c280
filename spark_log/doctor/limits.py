"""`Limits`: the limits beyond which the doctor reports a problem."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits beyond which the doctor reports a problem, and the limits of a run.

    Attributes:
        stuck_ms: the maximum time for which a group with unread records may commit nothing, if the
            first unread record has been in the log for this time, too.
        overdue_ms: the maximum time for which a cleaner's work may be due: more than a day, since a
            cleaner may run once a day.
        open_transaction_ms: the maximum time for which a transaction may be open; at least its own
            timeout.
        small_segments: the maximum number of a partition's small segments that could be merged.
        objects_not_home: the maximum number of a stripe's objects that are not at home: each
            process that opens the stripe reads all of them.
        metadata_files: the maximum number of files that a process reads after the metadata's
            checkpoint.
        patience_ms: the time without an answer after which a check, or the check of one partition,
            is abandoned.
        findings: the maximum number of findings of one kind that are reported in full; further ones
            are counted.
        threads: the number of partitions, groups or directories that are read at the same time.
    """

    stuck_ms: int = 600_000
    overdue_ms: int = 129_600_000
    open_transaction_ms: int = 900_000
    small_segments: int = 1_000
    objects_not_home: int = 50_000
    metadata_files: int = 100
    patience_ms: int = 60_000
    findings: int = 100
    threads: int = 16
