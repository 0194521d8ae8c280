"""Pauses of the garbage collector, while many objects are made that are no garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused(*, makes_old: bool = False) -> Iterator[None]:
    """Pause the garbage collector, as Python 3.12 does by itself within one built-in call.

    The collector counts new objects. Without the pause it would visit them repeatedly while they
    are made, without finding garbage. A collector that is off stays off.

    Args:
        makes_old: whether all objects count as old afterwards, as after a collection, so that the
            collector does not visit them as soon as it runs again: for imports, whose objects stay
            (docs/adr/0082).
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        if makes_old and not gc.get_freeze_count():  # what a program has frozen stays frozen
            gc.freeze()
            gc.unfreeze()  # into the oldest generation
        gc.enable()
