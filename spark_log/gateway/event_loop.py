"""The event loop of a gateway: uvloop's if it is installed, otherwise asyncio's own."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Coroutine
from importlib import import_module
from typing import Any, Final

_log = logging.getLogger(__name__)

_GARBAGE_THRESHOLDS: Final = (5_000, 20, 20)
"""Thresholds of Python's cyclic garbage collector (``gc.set_threshold``). Fetches that wait look
like a leak to it. With its defaults it took a third of the CPU time of 1,000 idle consumers."""


def run_event_loop(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end; the process is from now on that of a gateway."""
    gc.set_threshold(*_GARBAGE_THRESHOLDS)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop that does not run yet.

    uvloop answers a request sooner (docs/adr/0062), and does not exist on Windows.
    """
    try:
        uvloop: Any = import_module("uvloop")
    except ImportError:
        _log.info(
            "asyncio's event loop serves; pip install 'spark-log[gateway]' brings a faster one"
        )
        return asyncio.new_event_loop()
    _log.info("uvloop %s serves", uvloop.__version__)
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
