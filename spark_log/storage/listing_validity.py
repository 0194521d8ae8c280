"""The time for which a listing of a log stays valid: one rule for every log (protocol L7).

A log is a directory of files whose names follow each other. Each file is made by put-if-absent.
A name is *spent* when no reader needs its file any more, and *freed* when that file is deleted:
no earlier than some delay after the name became spent (``file.delete.delay.ms`` in a partition log,
at least an hour for a version of a Delta log). A freed name looks like a name that was never used.
A reader would take it for the log's end, and a writer that puts a file there would succeed although
nobody reads that file.

Therefore a process may trust its last listing only while less than *half of the delay* has passed
since the listing: a name that was unused then cannot have been used and freed meanwhile. While the
listing is valid, "the next name is missing" means that the log has ended, and a put at that name is
an append. The other half of the delay is for requests that are on their way. After that the process
lists the log again, and a gap in that listing is not the log's end.

Time is measured by the monotonic clock of the process, from before the listing began.
"""

from __future__ import annotations

from spark_log.util import Clock


def listing_validity_ms(free_delay_ms: float) -> float:
    """Return how long a listing is valid, in milliseconds.

    Args:
        free_delay_ms: the delay after which a spent name may be freed.
    """
    return free_delay_ms / 2


def is_listing_valid(clock: Clock, observed_ms: float, valid_ms: float) -> bool:
    """Return whether a listing may still be trusted.

    Args:
        clock: the clock of this process.
        observed_ms: the clock's monotonic time before the listing began.
        valid_ms: the time for which the listing is valid, from `listing_validity_ms`.
    """
    return clock.monotonic_ms() - observed_ms < valid_ms
