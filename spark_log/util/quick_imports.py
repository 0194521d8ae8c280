"""Imports without the garbage collector, which would visit new objects that all stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the garbage collector while modules are imported (docs/adr/0082).

    Imports make many objects, and hardly any garbage. Afterwards all objects count as old, as after
    a collection, so the collector does not visit them as soon as it runs again. A collector that is
    off stays off.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        if not gc.get_freeze_count():  # what a program has frozen stays frozen
            gc.freeze()
            gc.unfreeze()  # into the oldest generation
        gc.enable()
