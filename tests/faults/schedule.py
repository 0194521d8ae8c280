"""Actions that run at their times."""

import heapq
import time
from itertools import count


class Schedule:
    """Actions, run in the order of their times."""

    def __init__(self):
        self._due = []
        self._order = count()

    def do_later(self, wait_s, action):
        heapq.heappush(self._due, (time.monotonic() + wait_s, next(self._order), action))

    def run(self, wait_until):
        """Run all actions, and those that are added meanwhile.

        Args:
            wait_until: waits; called with the monotonic time of the next action.
        """
        while self._due:
            at_s, _, action = heapq.heappop(self._due)
            wait_until(at_s)
            action()
