"""Makes a simulation read its small files in ranges, as the package reads large ones.

If a store's files cannot be memory-mapped, a segment is read by its end and in ranges of megabytes,
and the next range and the next segments are read ahead in threads. Here the ranges are so small
that a segment of kilobytes takes several, and there are no threads: each request is a step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar
from unittest import mock

from spark_log.log.clean import file_deletion
from spark_log.log.segment import file as segment_file
from spark_log.log.segment import opener as segment_opener

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


@contextmanager
def small_ranges(range_bytes: int) -> Iterator[None]:
    """Read in small ranges and in one thread, in this process, within the context.

    Args:
        range_bytes: size of a range, and of the end of a file that is read first; twice the size
            that is read for one message.
    """
    with (
        mock.patch.multiple(
            segment_file,
            TAIL_BYTES=range_bytes,
            RANGE_BYTES=range_bytes,
            _FIRST_RANGE_BYTES=range_bytes,
            _PROBE_BYTES=range_bytes // 2,
            ThreadPoolExecutor=_SameThread,
        ),
        mock.patch.object(segment_opener, "ThreadPoolExecutor", _SameThread),
        mock.patch.object(file_deletion, "ThreadPoolExecutor", _SameThread),
    ):
        yield


class _SameThread(Executor):
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
