"""Calls that are made at once: with threads, the order of steps would not depend on the seed."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


class SameThread(ThreadPoolExecutor):
    """Runs each call in the thread that submits it (`Store.executor_class`)."""

    def submit(
        self,
        fn: Callable[_Arguments, _Result],
        /,
        *args: _Arguments.args,
        **kwargs: _Arguments.kwargs,
    ) -> Future[_Result]:
        """Run the call, and return its result; a `Crash` of the actor is raised."""
        future: Future[_Result] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def call_at_once(call: Callable[[], _Result]) -> Callable[[], _Result]:
    """Run the call that `spark_log.threads.call_beside` would run on another thread."""
    return SameThread(1).submit(call).result
