"""`lazy`: a property whose value is read once, without a lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

_Value = TypeVar("_Value")


class lazy(Generic[_Value]):  # noqa: N801 - a decorator
    """A property whose value is kept in its object.

    ``functools.cached_property`` holds one lock for all objects of a class until Python 3.12: all
    threads that read a property which is a request would do so one after the other, and one that
    gets no answer would hold up the others. Here two threads that ask the same object for the first
    time may both read the value.
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
