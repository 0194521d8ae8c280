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

from spark_log.errors import AlreadyExistsError, NotFoundError
from spark_log.log.clean.compaction_end import (
    decode_compaction_end,
    encode_compaction_end,
    end_to_name,
)
from spark_log.log.directory import LogView, PartitionDirectory
from spark_log.log.files import GENERATION_BYTES, MAX_MERGE_GENERATION, generation_name
from spark_log.storage import Store


def take_generation(
    directory: PartitionDirectory,
    view: LogView,
    *,
    keeps_clean: bool = False,
    own_end: int | None = None,
) -> int | None:
    """Take the generation after the newest one of a view. Only one compaction gets it.

    Args:
        directory: the partition's directory.
        view: the view of the log that will be compacted.
        keeps_clean: whether only tombstones will be removed, so that clean segments stay clean.
        own_end: the offset that the compaction's files will reach, if the topic's table has to know
            it; else None.

    Returns:
        The generation; None if another compaction has taken it.

    Raises:
        UnknownOutcomeError: the generation may have been taken; then no compaction uses it.
        StorageError: the generation was not taken.
    """
    live = view.live
    generation = live.compaction_generation + 1
    passes = generation - live.clean_generation if keeps_clean else 0
    content = os.urandom(GENERATION_BYTES + passes)
    if own_end is not None:
        newest = live.compaction_generation
        is_first = newest == MAX_MERGE_GENERATION
        named = None if is_first else named_end(directory.store, directory.path, newest)
        end = end_to_name(own_end, named, view.log_end_offset, is_first=is_first)
        content = encode_compaction_end(end, generation, passes)
    try:
        directory.store.put_if_absent(directory.file_path(generation_name(generation)), content)
    except AlreadyExistsError:
        return None
    return generation


def named_end(store: Store, directory: str, generation: int) -> int | None:
    """Return the end that a compaction named when it took its generation (protocol B6).

    Args:
        store: the store that holds the log.
        directory: the log's directory, relative to the store's root.
        generation: the compaction's generation.

    Returns:
        The end; None if it named none, or the generation's file was deleted since.

    Raises:
        StorageError: the storage does not answer.
    """
    try:
        content = store.open_buffer(f"{directory}/{generation_name(generation)}").to_pybytes()
    except NotFoundError:
        return None
    return decode_compaction_end(content, generation)
