"""Freeing: objects and home markers below a home marker that is old enough are deleted.

Any number of processes may delete at once, and be killed: the next one finds the remaining files
(protocol P6).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from spark_log.log.rewrite import ABANDONED_US, delete_files
from spark_log.log.stripe.directory import StripeDirectory, StripeListing
from spark_log.storage import FileInfo, storage_time_us

_US_PER_MS: Final = 1000


def find_freeable(directory: StripeDirectory, *, now_us: int | None = None) -> Sequence[FileInfo]:
    """Return the files of a stripe that may be deleted now, by one listing and the storage's time.

    They are those below an old home marker, and temporary files of crashed processes.

    Args:
        directory: the stripe's directory.
        now_us: the storage's time, or earlier; None reads it from the storage.

    Raises:
        StorageError: the storage does not answer.
    """
    # Read the time before the listing: a marker must never seem older than it is.
    if now_us is None:
        now_us = storage_time_us(directory.store, directory.path)
    delay_us = directory.config.file_delete_delay_ms * _US_PER_MS
    old_us = now_us - delay_us - directory.store.time_resolution_us
    files, hidden = directory.store.list_with_hidden(directory.path)
    listing = StripeListing.of(files)
    below = freed_below(listing, old_us)
    abandoned_us = min(old_us, now_us - ABANDONED_US)
    return [
        *(file for name, file in listing.files if name.number < below),
        *(file for file in hidden if file.modified_us <= abandoned_us),
    ]


def freed_below(listing: StripeListing, old_us: int) -> int:
    """Return the number below which files may be deleted: that of the newest old home marker.

    Every listing shows this marker or a higher one, since it has existed for the delay. So nobody
    who may rely on a listing needs what is below it.

    Args:
        listing: the files of the stripe.
        old_us: last-modified time from which on a marker is too young, microseconds since the
            epoch.
    """
    return max(
        (
            name.number
            for name, file in listing.files
            if name.is_home and file.modified_us <= old_us
        ),
        default=0,
    )


def free(
    directory: StripeDirectory,
    *,
    now_us: int | None = None,
    found: Sequence[FileInfo] | None = None,
) -> int:
    """Delete the files of a stripe that nobody needs; return their number.

    Args:
        directory: the stripe's directory.
        now_us: the storage's time, or earlier; None reads it from the storage.
        found: the files, from `find_freeable`; None finds them.

    Raises:
        StorageError: a file could not be deleted; others may have been deleted.
    """
    files = find_freeable(directory, now_us=now_us) if found is None else found
    delete_files(directory.store, [file.path for file in files])
    return len(files)
