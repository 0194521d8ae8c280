"""Numbers of the package that simulations of a log make small.

A simulation gives what it can: configs of the topic, arguments such as ``fan_in``, and attributes
of its store. The numbers here are replaced in their modules and classes instead. They belong to
code several layers below `LocalLog`, and nobody but a simulation has a reason to choose them:
arguments for them would be passed through classes that do not use them.

If a store's files cannot be memory-mapped, a segment is read by its end and in ranges of megabytes.
Here the ranges are so small that a segment of kilobytes takes several.
"""

from __future__ import annotations

from spark_log.log.append.appender import Appender
from spark_log.log.segment import file as segment_file
from tests.simulation.log.profile import Profile
from tests.simulation.patches import Patch


def small_numbers(profile: Profile) -> tuple[Patch, ...]:
    """Return the patches for the conditions of a simulation of a log."""
    patches: tuple[Patch, ...] = ((Appender, "races_per_listing", profile.races_per_listing),)
    range_bytes = profile.range_bytes
    if not range_bytes:
        return patches
    return (
        *patches,
        (segment_file, "WHOLE_BYTES", range_bytes),
        (segment_file, "TAIL_BYTES", range_bytes),
        (segment_file, "RANGE_BYTES", range_bytes),
        (segment_file, "FIRST_RANGE_BYTES", range_bytes),
        (segment_file, "PROBE_BYTES", range_bytes // 2),
    )
