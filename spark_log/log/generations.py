"""Which rewrite of a compacted log is the newer one: generations, taken by put-if-absent.

Rewrites that leave records out differ where they overlap, so that it matters which one counts: the
one of the highest generation. Who rewrites such a log takes a generation for itself *before* it
looks at the log. So whatever a delayed rewriter puts, however late, a compaction that began after
it stays above it, and what that one left out does not come back (ADR 12).
"""

from __future__ import annotations

import os

from spark_log.errors import AlreadyExistsError
from spark_log.log.file_names import SegmentName, generation_name, parse_generation_name
from spark_log.log.partition_directory import PartitionDirectory


def take_generation(directory: PartitionDirectory) -> int:
    """Take the next generation; nobody else gets it.

    Raises:
        UnknownOutcomeError: it may be taken; take another.
        StorageError: it is not taken.
    """
    generation = 1 + max(
        (
            name.generation
            if (name := SegmentName.parse(file.name)) is not None
            else parse_generation_name(file.name) or 0
            for file in directory.store.list(directory.path)
        ),
        default=0,
    )
    while True:
        path = directory.file_path(generation_name(generation))
        try:
            directory.store.put_if_absent(path, os.urandom(16))
        except AlreadyExistsError:
            generation += 1
        else:
            return generation
