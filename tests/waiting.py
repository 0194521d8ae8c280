"""`wait_until`: how tests wait for another thread or process."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

TIMEOUT_S = 120
"""Far longer than any wait takes, even on a busy machine."""


def wait_until(
    condition: Callable[[], T],
    complaint: str = "the condition does not become true",
    *,
    meanwhile: Callable[[], object] = lambda: None,
    timeout_s: float = TIMEOUT_S,
    interval_s: float = 0.01,
) -> T:
    """Poll a condition until it is true, and return its value.

    Args:
        condition: called repeatedly.
        complaint: what the test says after the timeout.
        meanwhile: called between two polls.
        timeout_s: seconds until the test fails.
        interval_s: seconds between two polls.
    """
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, complaint
        meanwhile()
        time.sleep(interval_s)
    return found
