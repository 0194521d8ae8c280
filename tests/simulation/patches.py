"""Attributes that a simulation replaces in this process: of unsafe variants, and small numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final
from unittest import mock

Patch = tuple[object, str, object]
"""An object or module, the name of an attribute, and the value that replaces it."""


@dataclass(frozen=True, slots=True)
class PatchVariant:
    """The changes to the shipped code in one simulation.

    Attributes:
        patches: the attributes that are replaced.
    """

    patches: tuple[Patch, ...] = ()


SHIPPED: Final = PatchVariant()
"""The shipped code."""


@contextmanager
def patched(*patches: Patch) -> Iterator[None]:
    """Replace attributes in this process within the context."""
    with ExitStack() as stack:
        for patch in patches:
            stack.enter_context(mock.patch.object(*patch))
        yield
