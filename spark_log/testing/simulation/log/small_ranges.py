"""Ranged reading as large files have it, for the small ones of a simulation, in its one thread.

Where a store is not mapped, a segment is read by its end and in ranges of megabytes, and the next
range and the next segments are read ahead in threads. Here the ranges are so small that segments of
kilobytes take several, and what is read ahead is read when it is asked for: each request is a step.
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
    """Read files that are not mapped in such ranges, in one thread; of this process, meanwhile.

    Args:
        range_bytes: of a range, of a file's end that is read first, and of twice what is read for
            one message.
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
    """Does at once what it is given: threads would be a chance that no seed knows of."""

    def __init__(self, *_: Any) -> None:
        """Takes what a `ThreadPoolExecutor` takes."""

    def submit(
        self,
        call: Callable[_Arguments, _Result],
        /,
        *args: _Arguments.args,
        **kwargs: _Arguments.kwargs,
    ) -> Future[_Result]:
        """See `Executor.submit`. A crash of the actor passes through."""
        future: Future[_Result] = Future()
        try:
            future.set_result(call(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future
