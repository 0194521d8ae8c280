"""Generations, which order the compactions of a log; taken by put-if-absent (ADR 16).

Compactions remove records, so two compacted segments that overlap differ: the one of the highest
generation counts. Merges remove no records; their generations are below those of compactions.

A compaction lists the log, and then takes the generation after the newest one in this listing. If
another compaction has taken it since, this one gives up. This ensures that a compaction lists the
log after the generation before its own was taken. A generation's file is deleted only after a
higher one has existed for ``file.delete.delay.ms``, so that every listing shows the newest.

A pass that only removes tombstones (`expired_tombstones`) takes a generation, too, so that its
segments count in place of those that they replace. But the segments that the compaction before it
wrote stay clean. This is recorded in the size of the generation's file, which costs no request.

The rules: (protocol W10).
"""

from __future__ import annotations

import os

from spark_log.errors import AlreadyExistsError
from spark_log.log.directory import LogView, PartitionDirectory
from spark_log.log.files import GENERATION_BYTES, generation_name


def take_generation(
    directory: PartitionDirectory, view: LogView, *, keeps_clean: bool = False
) -> int | None:
    """Take the generation after the newest one of a view. Only one compaction gets it.

    Args:
        directory: the partition's directory.
        view: the view of the log that will be compacted.
        keeps_clean: whether only tombstones will be removed, so that clean segments stay clean.

    Returns:
        The generation; None if another compaction has taken it.

    Raises:
        UnknownOutcomeError: the generation may have been taken; then no compaction uses it.
        StorageError: the generation was not taken.
    """
    live = view.live
    generation = live.compaction_generation + 1
    passes = generation - live.clean_generation if keeps_clean else 0
    try:
        directory.store.put_if_absent(
            directory.file_path(generation_name(generation)),
            os.urandom(GENERATION_BYTES + passes),
        )
    except AlreadyExistsError:
        return None
    return generation
