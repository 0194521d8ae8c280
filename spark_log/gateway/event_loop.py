"""The event loop of a gateway: uvloop's if it is installed, otherwise asyncio's own."""

from __future__ import annotations

import asyncio
import logging
from importlib import import_module
from typing import Any

_log = logging.getLogger(__name__)


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
