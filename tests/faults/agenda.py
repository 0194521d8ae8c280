"""What is to be done when."""

import heapq
import time
from itertools import count


class Agenda:
    """Actions in the order of their times."""

    def __init__(self):
        self._due = []
        self._order = count()

    def do_later(self, wait_s, action):
        heapq.heappush(self._due, (time.monotonic() + wait_s, next(self._order), action))

    def run(self, wait_until):
        """Do all of it, also what is put on it meanwhile.

        Args:
            wait_until: called with the time of the next one on the monotonic clock, to wait.
        """
        while self._due:
            at_s, _, action = heapq.heappop(self._due)
            wait_until(at_s)
            action()
