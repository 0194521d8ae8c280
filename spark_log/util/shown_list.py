"""The first items of a list, as text for log lines and error messages."""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice


def shown(items: Collection[object], limit: int = 3) -> str:
    """Return the first items, separated by commas, and ``…`` if there are more."""
    text = ", ".join(map(str, islice(items, limit)))
    return f"{text}, …" if len(items) > limit else text
