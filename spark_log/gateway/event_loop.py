"""The event loop of a process that is a gateway: asyncio's (docs/adr/0062)."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any, Final

_GARBAGE_THRESHOLDS: Final = (5_000, 20, 20)
"""Thresholds of Python's cyclic garbage collector (``gc.set_threshold``). Fetches that wait look
like a leak to it. With its defaults it took a third of the CPU time of 1,000 idle consumers."""


def run_event_loop(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end; the process is from now on that of a gateway."""
    gc.set_threshold(*_GARBAGE_THRESHOLDS)
    asyncio.run(main)
