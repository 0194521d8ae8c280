"""A store whose requests take their time, and how many of them waited for each other."""

import threading
import time

from tests.log.support import HookedStore

REQUEST_S = 0.03


class SlowStore(HookedStore):
    """A store that answers like an object store: each request takes a while."""

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
            # What a request takes, and no wait for something that is going to happen.
            threading.Event().wait(began_s + REQUEST_S - time.monotonic())
            with self._lock:
                if operation != "delete":  # quorums delete behind the caller's back
                    self.requests.append((began_s, time.monotonic()))

    def is_gone(self, path):
        return False  # as an object store, which is not asked


def rounds(requests):
    """Return the most requests of which each began after the one before had ended."""
    count, ended_s = 0, 0.0
    for began_s, end_s in sorted(requests, key=lambda each: each[1]):
        if began_s >= ended_s:
            count, ended_s = count + 1, end_s
    return count
