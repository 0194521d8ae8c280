"""A store whose requests take some milliseconds, and the number of rounds of its requests."""

import threading
import time

from tests.log.support import HookedStore

REQUEST_S = 0.03


class SlowStore(HookedStore):
    """A store each of whose requests takes ``REQUEST_S``, as on an object store."""

    def __init__(self, inner):
        super().__init__(inner, is_mapped=False)
        self.requests = []
        self._lock = threading.Lock()

    def _do(self, operation, path, call):
        if operation == "stage":
            return call()
        began_s = time.monotonic()
        try:
            return call()
        finally:
            # The duration of a request: nothing else ends this wait.
            threading.Event().wait(began_s + REQUEST_S - time.monotonic())
            with self._lock:
                if operation != "delete":  # quorums delete behind the caller's back
                    self.requests.append((began_s, time.monotonic()))

    def is_gone(self, path):
        return False  # as an object store does, without a request


def rounds(requests):
    """Return the length of the longest chain of requests, each begun after the one before ended."""
    count, ended_s = 0, 0.0
    for began_s, end_s in sorted(requests, key=lambda each: each[1]):
        if began_s >= ended_s:
            count, ended_s = count + 1, end_s
    return count
