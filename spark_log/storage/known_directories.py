"""Directories that a store remembers: those whose names are durable, and those it has seen."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

_MAX_NAMES: Final = 65_536
"""Maximum number of directories. Those of topics that other processes delete would pile up; a
directory that is forgotten too early does no harm.
"""


class KnownDirectories:
    """A bounded set of absolute paths of directories. Thread-safe."""

    def __init__(self) -> None:
        self._names: OrderedDict[str, None] = OrderedDict()

    def __contains__(self, directory: str) -> bool:
        return directory in self._names

    def add(self, directory: str) -> None:
        """Remember a directory; forget the one that was added first if there are too many."""
        self._names[directory] = None
        while len(self._names) > _MAX_NAMES:
            self._names.popitem(last=False)

    def forget(self, directory: str) -> None:
        """Forget a directory and those below it."""
        for name in list(self._names):
            if f"{name}/".startswith(f"{directory}/"):
                self._names.pop(name, None)

    def clear(self) -> None:
        """Forget all directories."""
        self._names.clear()
