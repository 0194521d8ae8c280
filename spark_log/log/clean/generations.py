"""Which compaction of a log is the newer one: generations, taken by put-if-absent (ADR 16).

Rewrites that leave records out differ where they overlap, so that it matters which one counts: the
one of the highest generation. Merges leave nothing out; theirs are below those of compactions.

A compaction looks at the log, and then takes the generation that follows the newest one of that
look. Where another took it meanwhile, it gives up: so what a later generation puts was looked at
after an earlier one was taken. A name is removed only when a higher one has stood for
``file.delete.delay.ms``, so that every listing shows the newest.
"""

from __future__ import annotations

import os

from spark_log.errors import AlreadyExistsError
from spark_log.log.file_names import generation_name
from spark_log.log.partition_directory import LogView, PartitionDirectory


def take_generation(directory: PartitionDirectory, view: LogView) -> int | None:
    """Take the generation that follows the newest one of a view; nobody else gets it.

    Args:
        directory: the partition's.
        view: what is to be rewritten.

    Returns:
        The generation; None where somebody has taken it since.

    Raises:
        UnknownOutcomeError: it may be taken, and is nobody's then.
        StorageError: it is not taken.
    """
    generation = view.live.compaction_generation + 1
    try:
        directory.store.put_if_absent(
            directory.file_path(generation_name(generation)), os.urandom(16)
        )
    except AlreadyExistsError:
        return None
    return generation
