"""Numbers of the package that simulations of a log make small, and the threads they do without.

A simulation gives what it can: configs of the topic, arguments such as ``fan_in``, and attributes
of its store. The numbers here are replaced in their modules and classes instead. They belong to
code several layers below `LocalLog`, and nobody but a simulation has a reason to choose them:
arguments for them would be passed through classes that do not use them.

If a store's files cannot be memory-mapped, a segment is read by its end and in ranges of megabytes,
and the next range and the next segments are read ahead in threads. Here the ranges are so small
that a segment of kilobytes takes several, and there are no threads: each request is a step.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, ParamSpec, TypeVar

from spark_log.log.append.appender import Appender
from spark_log.log.directory import opened_segments
from spark_log.log.directory import opener as segment_opener
from spark_log.log.segment import file as segment_file
from spark_log.storage import parallel_requests
from tests.simulation.log.profile import Profile
from tests.simulation.patches import Patch

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


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
        (segment_file, "ThreadPoolExecutor", SameThread),
        (segment_opener, "ThreadPoolExecutor", SameThread),
        (opened_segments, "ThreadPoolExecutor", SameThread),
        (parallel_requests, "ThreadPoolExecutor", SameThread),
    )


class SameThread(Executor):
    """Runs calls at once: with threads, the order of steps would not depend on the seed alone."""

    def __init__(self, *_: Any) -> None:
        """Accept the arguments of a `ThreadPoolExecutor`."""

    def submit(
        self,
        call: Callable[_Arguments, _Result],
        /,
        *args: _Arguments.args,
        **kwargs: _Arguments.kwargs,
    ) -> Future[_Result]:
        """Run the call, and return its result; a `Crash` of the actor is raised."""
        future: Future[_Result] = Future()
        try:
            future.set_result(call(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def call_at_once(call: Callable[[], _Result]) -> Callable[[], _Result]:
    """Run the call that `spark_log.storage.call_beside` would run on another thread."""
    future = SameThread().submit(call)
    return future.result
