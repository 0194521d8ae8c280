"""Independent requests, sent in parallel."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, TypeVar

from spark_log.storage.store import Store

_MAX_CONCURRENT_REQUESTS: Final = 16

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def map_requests(
    store: Store, read: Callable[[_Item], _Result], items: Collection[_Item]
) -> list[_Result]:
    """Return the results of ``read`` for each item; on an object store it is called in parallel.

    On a local root threads would save nothing: a read costs only Python's own time.
    """
    if store.is_local or len(items) < 2:
        return [read(each) for each in items]
    with store.executor_class(_MAX_CONCURRENT_REQUESTS, "spark-log-requests") as pool:
        return list(pool.map(read, items))
