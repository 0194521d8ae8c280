"""The ways to run something on another thread.

- `timed_call`: one call, whose caller waits no longer than its time limit.
- `daemon_pool`: a call for each of many items, by a bounded number of threads.
- `fan_out`: the same call of each root of a quorum, without waiting for a root that hangs.
- `merge_thread`: merges of logs, one at a time, which make way for appends.
- `client_thread`: all calls of one blocking client, in order, for asyncio.

Calls whose results are always waited for use `ThreadPoolExecutor`. Requests that do not need each
other's answers use `spark_log.storage.map_requests`.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
