"""For how long what a process knows of a log's names counts: one rule, for every log.

A log is a directory of files whose names follow each other, each made by put-if-absent. Names that
are spent are freed: their files are deleted, no earlier than some delay after they became spent
(``file.delete.delay.ms`` of a partition log; at least an hour for a version of a Delta log). A name
that was freed looks like one that was never used: a reader would take it for the log's end, and a
writer that puts there is told of success although nobody reads what it put.

So a process that knows a log up to some point may take "the next name is missing" for "nothing is
new", and a put at that name for an append, only while less than *half of the delay* has passed
since it last knew: what it knew as unused then cannot have been used and freed by now. The other
half is for what was on its way. Later it lists the log, and a gap in the listing is not the end.

Time is measured on the process's own monotonic clock, from before the look began.
"""

from __future__ import annotations

from spark_log.clock import Clock


def listing_validity_ms(free_delay_ms: float) -> float:
    """Return for how many milliseconds a look counts where names are freed after a delay."""
    return free_delay_ms / 2


def is_listing_valid(clock: Clock, observed_ms: float, valid_ms: float) -> bool:
    """Whether what was seen of a log's names still counts.

    Args:
        clock: of this process.
        observed_ms: its monotonic time before the look began.
        valid_ms: from `listing_validity_ms`.
    """
    return clock.monotonic_ms() - observed_ms < valid_ms
