"""`lazy`: a property that is read once, by any number of threads for their own objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

_Value = TypeVar("_Value")


class lazy(Generic[_Value]):  # noqa: N801 - a decorator
    """A property whose value is kept in its object. For objects that one thread uses.

    ``functools.cached_property`` holds one lock for all objects of a class until Python 3.12. So a
    storage that does not answer for one partition would hold up all others.
    """

    def __init__(self, read: Callable[[Any], _Value]) -> None:
        self._read = read
        self.__doc__ = read.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type | None = None) -> _Value:
        """Read the value, and keep it where the next access finds it before this descriptor."""
        value = self._read(instance)
        instance.__dict__[self._name] = value
        return value
